"""`gmip train`: train a task to a privacy target and record what an attacker would see."""

from __future__ import annotations

import contextlib
import math
import secrets
import shlex
import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gmip import _numbers
from gmip.accounting.account import account as account_run
from gmip.accounting.calibrate import with_least_noise
from gmip.accounting.claims import at_most, found
from gmip.cli import options, parse, show
from gmip.cli.errors import BadRequest, needs_extra
from gmip.cli.stages import warnings_in_one_line
from gmip.errors import GmipWarning
from gmip.vocabulary import NOTIONS, SAMPLINGS, NoisySGD, PrivacyTarget

if TYPE_CHECKING:
    from gmip.accounting.tradeoff import TradeOff
    from gmip.canaries import DirectionCanaries
    from gmip.training import BatchScores
    from gmip.vocabulary import Recipe

__all__ = ["train"]

RECIPE, TRACE = "The recipe (default: the task's own)", "The trace"
GRAD_SAMPLE_MODES = ("auto", "hooks", "functorch", "ew", "ghost")
_WHOM: Final = ("susceptibility", "attacker_knows")
_CLIPS: Final = "auto, none or a finite number above 0"
_MU_SHOWN: Final = 20  # how often the bar's mu is computed anew


def _recipe(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=RECIPE, show_default=False, help=help)


def _trace(name: str, metavar: str | None, help: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=TRACE, show_default=False, help=help)


def train(
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="A built-in task, or path/to/file.py:make_task (default digits)."),
    ] = None,
    out: Annotated[
        str | None, _trace("--out", "DIR", "Folder for the trace, result.json and checkpoints (required).")
    ] = None,
    resume: Annotated[
        bool, _trace("--resume", None, "Continue the run in --out, with the same options; start it if there is none.")
    ] = False,
    every: Annotated[str | None, _trace("--every", "K", "Store every K-th step of the trace (default 1).")] = None,
    recipe: Annotated[
        str | None,
        _recipe(
            "--recipe",
            "FILE",
            "A recipe as gmip tune writes it: task, members, settings, noise and target in one file. If other options "
            "change what the target depends on, noise is calibrated to it again.",
        ),
    ] = None,
    seed: Annotated[
        str | None, _trace("--seed", "SEED", "Seed of members, batches, weights and noise (default: random).")
    ] = None,
    canaries: Annotated[
        str | None,
        _trace(
            "--canaries",
            "M",
            "Plant M canaries, each by a fair coin, to test the promise with: gmip audit --canaries DIR. Needs --clip.",
        ),
    ] = None,
    dataset_size: Annotated[str | None, _recipe("--dataset-size", "N", "Members, drawn from the task's pool.")] = None,
    batch_size: Annotated[
        str | None, _recipe("--batch-size", "n", "Examples averaged in one step; with poisson, on average.")
    ] = None,
    steps: Annotated[str | None, _recipe("--steps", "T", "Optimizer steps.")] = None,
    epochs: Annotated[
        str | None, _recipe("--epochs", "E", "Passes over the data instead of --steps: N/n steps each, rounded up.")
    ] = None,
    sampling: Annotated[
        str | None,
        _recipe(
            "--sampling",
            "|".join(SAMPLINGS),
            "How batches are drawn (see gmip account).",
        ),
    ] = None,
    optimizer: Annotated[str | None, _recipe("--optimizer", "NAME", "A class of torch.optim, such as Adam.")] = None,
    learning_rate: Annotated[str | None, _recipe("--learning-rate", "LR", "Learning rate.")] = None,
    optimizer_option: Annotated[
        list[str] | None,
        _recipe(
            "--optimizer-option",
            "NAME=VALUE",
            "Another argument of the optimizer, such as momentum=0.9; repeat for several.",
        ),
    ] = None,
    clip: Annotated[
        str | None,
        _recipe(
            "--clip",
            "C|auto|none",
            "Clipping norm: the largest norm of one example's gradient. auto: the median norm, before training, of "
            "records that are no members. none: no clipping.",
        ),
    ] = None,
    noise_std: options.NoiseStd = None,
    noise_multiplier: options.NoiseMultiplier = None,
    target_mu: options.TargetMu = None,
    target_tpr: options.TargetTpr = None,
    target_advantage: options.TargetAdvantage = None,
    target_epsilon: options.TargetEpsilon = None,
    delta: options.DeltaOption = None,
    notion: options.NotionOption = None,
    susceptibility: options.Susceptibility = None,
    attacker_knows: options.AttackerKnows = None,
    bound: options.BoundOption = None,
    composition: options.CompositionOption = None,
    fix_model: Annotated[
        bool, _recipe("--fix-model", None, "Replace layers that mix examples (BatchNorm becomes GroupNorm).")
    ] = False,
    grad_sample_mode: Annotated[
        str | None,
        _recipe(
            "--grad-sample-mode",
            "|".join(GRAD_SAMPLE_MODES),
            "How Opacus computes per-example gradients (default auto).",
        ),
    ] = None,
    physical_batch_size: Annotated[
        str | None,
        _recipe("--physical-batch-size", "n", "Compute larger batches in parts of this size, to save memory."),
    ] = None,
    device: Annotated[str | None, _recipe("--device", "NAME", "Where to train: cpu, cuda, mps (default cpu).")] = None,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Train to a privacy target and record what an attacker sees.

    Example: gmip train --task digits --target-mu 0.5 --out runs/a

    Interrupted? Run the command again with --resume: it continues from the
    last checkpoint, and the result is the same bit for bit.

    The result is printed and saved as result.json beside the trace: recipe,
    seed, loss and accuracy on training and test data, and what a membership
    attacker can find (privacy.gmip, for a typical record; privacy.gdp is the
    differential privacy of the same run, null without noise; each with its
    kind, for_whom and adjacency). The folder names the members and holds the
    seed of the noise: protect it like the data.

    With --canaries the model learns random directions, too: it is a model to
    test the training with, not one to release.
    """
    if out is None:
        raise BadRequest("--out is missing", remedy="name a folder for the trace and the result, as in --out runs/a")
    accounting = _read_accounting(notion, bound, composition, susceptibility, attacker_knows)
    target = None
    if any(value is not None for value in (target_mu, target_tpr, target_advantage, target_epsilon, delta)):
        whom = {name: accounting[name] for name in ("notion", *_WHOM) if name in accounting}
        target = options.read_target(target_mu, target_tpr, target_advantage, target_epsilon, delta, **whom)
    elif accounting:
        raise BadRequest(
            f"--{next(iter(accounting)).replace('_', '-')} applies to a privacy target, and there is none",
            remedy="add one, as in --target-mu 0.5",
        )
    noise = _read_noise(noise_std, noise_multiplier)
    if target is not None and noise:
        raise BadRequest("A privacy target determines the noise", remedy="pass a target or a noise, not both")
    if steps is not None and epochs is not None:
        raise BadRequest("--steps and --epochs set the same number", remedy="pass only one of them")
    if canaries is not None and resume:
        raise BadRequest(
            "--resume cannot go on with a run that has --canaries", remedy="train it anew, in another --out"
        )
    planted = None if canaries is None else parse.count("--canaries", canaries)
    passes = None if epochs is None else parse.positive("--epochs", epochs)
    changes: dict[str, Any] = {
        "dataset_size": dataset_size and parse.count("--dataset-size", dataset_size),
        "batch_size": batch_size and parse.count("--batch-size", batch_size),
        "num_steps": steps and parse.count("--steps", steps),
        "sampling": sampling and parse.one_of("--sampling", sampling, SAMPLINGS),
        "optimizer": optimizer,
        "learning_rate": learning_rate and parse.positive("--learning-rate", learning_rate),
        "clip_norm": clip and clip not in ("auto", "none") and parse.positive("--clip", clip, _CLIPS),
        "optimizer_options": parse.settings("--optimizer-option", optimizer_option) if optimizer_option else None,
    }
    changes = {name: value for name, value in changes.items() if value not in (None, False)}
    if clip == "none":
        changes["clip_norm"] = None
    settings: dict[str, Any] = {
        "seed": None if seed is None else parse.seed("--seed", seed),
        "every": parse.count("--every", every or "1"),
        "grad_sample_mode": parse.one_of("--grad-sample-mode", grad_sample_mode or "auto", GRAD_SAMPLE_MODES),
        "max_physical_batch_size": physical_batch_size and parse.count("--physical-batch-size", physical_batch_size),
        "device": device or "cpu",
    }

    with warnings_in_one_line():
        tasks, training, tuning = _framework()
        written = None if recipe is None else _read_recipe(recipe)
        if written is not None and task is not None and not written.belongs_to(task):
            raise BadRequest(
                f"--recipe {recipe} was found for {written.task}, and its promise is about that task",
                remedy="leave out --task, or run gmip tune for the other one",
            )
        chosen = tasks.load(task or ("digits" if written is None else written.task))
        num_params = training.count_params(training.initial_model(chosen, 0, fix=fix_model))
        made = _changed(chosen.recipe if written is None else written.recipe, changes, passes)
        if written is not None:
            settings["split_seed"] = written.split_seed
        if clip == "auto":
            settings["seed"] = _members_seed(out, settings["seed"], resume)
            members = settings.get("split_seed")
            members = settings["seed"] if members is None else members
            found_clip = tuning.auto_clip(chosen, made.dataset_size, split_seed=members, fix=fix_model)
            made = made.replace(clip_norm=found_clip.clip_norm)
            settings["origins"] = {"clip_norm": found_clip.words}
        made = _noisy(made, noise)
        if written is not None:
            made = written.kept(made, num_params, calibrate=target is None and not noise)
        if target is not None:
            how = {name: accounting[name] for name in ("bound", "composition") if name in accounting}
            made = with_least_noise(made, num_params, target, **how)
        described = made.run(num_params)
        promise = None if written is None or target is not None else written.target
        # For the record and the attacker that the target is about.
        whose = {name: accounting[name] for name in _WHOM if name in accounting} if promise is None else promise.whose
        curve = account_run(described, **whose)
        standing = None if promise is None else _standing(promise, curve)
        if clip != "auto":
            tuning.consider_clipping(chosen, made, fix=fix_model)
        if planted is not None:
            settings["canaries"] = _canaries(planted, made)
        with _bar(described) as watch:
            try:
                result = training.train(chosen, made, out=out, resume=resume, fix=fix_model, **watch, **settings)
            except KeyboardInterrupt:
                print("Interrupted: run the command again with --resume to continue.", file=sys.stderr)
                raise
    answer = result.summary()
    if planted is not None:
        answer["canaries"] = _written(out, settings["canaries"], described)
    if standing is not None:
        answer["recipe_target"] = standing
    if json:
        show.print_json(answer)
        return
    gdp = answer["privacy"]["gdp"]
    rows = [
        ("accuracy on test data", _share(result.test_accuracy)),
        ("accuracy on training data", _share(result.train_accuracy)),
        *([("clipping norm, from records that are no members", f"{made.clip_norm:g}")] if clip == "auto" else []),
        ("noise std on the mean gradient", _numbers.setting(made.noise_std)),
        *(
            (
                f"members found at {_numbers.rate(fpr)} false alarms, {at_most(curve)}",
                _numbers.percent(curve.tpr_at(float(fpr)), "up"),
            )
            for fpr in answer["privacy"]["gmip"]["tpr_at_fpr"]
        ),
        ("mu of the run, FPRs from 1e-5 to 1 - 1e-5", _numbers.number(curve.equivalent_mu(), "up")),
        ("differential privacy", "none without noise")
        if gdp is None
        else (
            f"mu of differential privacy, at every FPR ({gdp['adjacency']})",
            _numbers.number(gdp["gdp_mu"], "up"),
        ),
        ("seed", str(result.seed)),
    ]
    done = f"Trained {chosen.name} in {made.num_steps} steps. "
    if standing is not None:
        keeps = "Keeps" if standing["kind"] == "bound" else "Expected to keep"
        done = f"{keeps if standing['kept'] else 'MISSES'} the recipe's target: {standing['target']}. {done}"
    show.print_answer(rows, done + found(curve, 0.01), curve, explain=explain)
    if gdp is not None and gdp["caveat"] is not None:
        print(f"Differential privacy here: {gdp['caveat']}")
    print(f"Trace and result: {out} (protect it like the data)")
    if planted is not None:
        print(f"{planted} canaries took part. Test the promise with them: gmip audit --canaries {shlex.quote(out)}")


def _read_accounting(
    notion: str | None,
    bound: str | None,
    composition: str | None,
    susceptibility: str | None,
    attacker_knows: str | None,
) -> dict[str, Any]:
    """Keywords of gmip.calibrate, as far as given."""
    given: dict[str, Any] = {
        "notion": notion and parse.one_of("--notion", notion, NOTIONS),
        "bound": bound and options.read_bound(bound),
        "composition": composition and options.read_composition(composition),
        "susceptibility": options.read_susceptibility(susceptibility, None),
        "attacker_knows": None if attacker_knows is None else options.read_attacker(attacker_knows),
    }
    for option in ("bound", *_WHOM):
        if notion == "gdp" and given[option] is not None:
            raise BadRequest(f"--{option.replace('_', '-')} does not apply to --notion gdp", remedy="leave it out")
    return {name: value for name, value in given.items() if value is not None}


def _read_noise(std: str | None, multiplier: str | None) -> dict[str, float]:
    if std is not None and multiplier is not None:
        raise BadRequest("--noise-std and --noise-multiplier set the same noise", remedy="pass only one of them")
    if std is not None:
        return {"noise_std": parse.non_negative("--noise-std", std)}
    if multiplier is not None:
        return {"noise_multiplier": parse.non_negative("--noise-multiplier", multiplier)}
    return {}


def _canaries(count: int, recipe: Recipe) -> DirectionCanaries:
    """Coins of their own: the seed of the run says nothing about them."""
    from gmip.canaries import DirectionCanaries

    if recipe.clip_norm is None:
        raise BadRequest("--canaries needs --clip, which is the length of a canary", remedy="add --clip 1")
    return DirectionCanaries(count)


def _written(out: str, canaries: DirectionCanaries, run: NoisySGD) -> dict[str, Any]:
    from gmip.canaries.coins import write_canaries

    path = write_canaries(Path(out), canaries, run)
    return {"count": canaries.count, "inside": int(canaries.inside.sum()), "file": str(path)}


def _framework() -> tuple[Any, Any, Any]:
    """Packages that need torch; loaded only once the request has been read."""
    with needs_extra("train", "gmip train"):
        from gmip import tasks, training, tuning
    return tasks, training, tuning


def _read_recipe(path: str) -> Any:
    with needs_extra("audit", "gmip train --recipe"):
        from gmip.tuning.recipe_file import read_recipe_file
    return read_recipe_file(path)


def _standing(promise: PrivacyTarget, curve: TradeOff) -> dict[str, Any]:
    """The target of a recipe's file and whether the run keeps it; said at once where it does not."""
    notion = " by differential privacy" if promise.notion == "gdp" else ""
    exposure = curve.exposure(promise)
    kept = exposure <= promise.value
    if not kept:
        warnings.warn(
            f"The run misses the target of its recipe, {promise}{notion}: it comes to "
            f"{_numbers.number(exposure, 'up')}. Leave out the noise, and it is calibrated to the target.",
            GmipWarning,
            stacklevel=2,
        )
    known = {"target": f"{promise}{notion}", "kept": kept, "exposure": exposure}
    return known | {"kind": curve.kind, "for_whom": curve.for_whom}


def _members_seed(out: str, seed: int | None, resume: bool) -> int:
    """The seed of the run, which says who its members are, before the run begins."""
    if seed is not None:
        return seed
    if resume and (Path(out) / "trace.json").exists():
        from gmip.trace import Trace

        known = Trace.open(out).header.provenance.seed
        if known is not None:
            return known
    return secrets.randbits(63)


def _changed(recipe: Recipe, changes: dict[str, Any], epochs: float | None) -> Recipe:
    if "dataset_size" in changes and recipe.sampling == "full" and "sampling" not in changes:
        changes = {"batch_size": changes["dataset_size"]} | changes
    recipe = recipe.replace(**changes)
    if epochs is not None:
        recipe = recipe.replace(num_steps=recipe.run(1).with_epochs(epochs).num_steps)
    return recipe


def _noisy(recipe: Recipe, noise: dict[str, float]) -> Recipe:
    """With the noise that was asked for; a multiplier is in units of the clipping norm that the run will have."""
    if "noise_multiplier" in noise:
        if recipe.clip_norm is None:
            raise BadRequest("--noise-multiplier needs --clip, its unit", remedy="add --clip")
        return recipe.with_noise_multiplier(noise["noise_multiplier"])
    return recipe.replace(**noise)


@contextlib.contextmanager
def _bar(run: NoisySGD) -> Iterator[dict[str, Any]]:
    """Keywords of gmip.train that draw a bar on standard error with loss, accuracy and mu so far; none where nobody
    watches."""
    if not sys.stderr.isatty():
        yield {}
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    fields = ["{task.description}", "{task.completed}/{task.total}", "{task.fields[scores]}", "{task.fields[mu]}"]
    description, count, scores, mu = (TextColumn(field) for field in fields)
    columns = (description, BarColumn(), count, scores, mu, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=run.num_steps, scores="", mu="")
        mu_at = lru_cache(maxsize=None)(lambda steps: account_run(run.replace(num_steps=steps)).equivalent_mu())

        def on_batch(batch: BatchScores) -> None:
            loss = "" if batch.loss is None else f"loss {batch.loss:.3f}"
            accuracy = "" if batch.accuracy is None else f"accuracy {_share(batch.accuracy)}"
            bar.update(task, scores=f"{loss}  {accuracy}".strip())

        def progress(done: int, total: int) -> None:
            # mu of a few numbers of steps only, never below that of the steps taken.
            steps = max(1, math.ceil(total * math.ceil(_MU_SHOWN * done / total) / _MU_SHOWN))
            bar.update(task, completed=done, mu=f"mu about {_numbers.number(mu_at(steps), 'up')}")

        yield {"progress": progress, "on_batch": on_batch}


def _share(share: float | None) -> str:
    return "none: not a classification task" if share is None else _numbers.percent(share, "nearest")
