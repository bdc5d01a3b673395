"""`gmip train`: train a task to a privacy target and record what an attacker would see."""

from __future__ import annotations

import contextlib
import math
import secrets
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import Field, model_validator

from gmip import _numbers
from gmip.accounting.account import account as account_run
from gmip.accounting.calibrate import with_least_noise
from gmip.cli import parse, show
from gmip.cli.errors import BadRequest, option_name
from gmip.cli.options import Count, Option, Positive, Seed, Settings, from_settings
from gmip.cli.shared_settings import YAML, NoiseSettings, OutputSettings, TargetSettings, once
from gmip.report.account_words import MU_OF_RUN, NO_PRIVACY, NOISE, clip_origin, found, members_found
from gmip.vocabulary import SAMPLINGS, NoisySGD, PrivacyTarget, Sampling

if TYPE_CHECKING:
    from gmip.accounting.tradeoff import TradeOff
    from gmip.canaries import DirectionCanaries
    from gmip.training import BatchScores
    from gmip.vocabulary import Recipe

RECIPE, TRACE = "The recipe (default: the task's own)", "The trace"
_SAID_IN_FILE: Final = (
    *("dataset_size", "batch_size", "num_steps", "epochs", "sampling", "optimizer", "learning_rate", "clip_norm"),
    *("noise_multiplier", "target", "notion"),
)
_MU_SHOWN: Final = 20  # how often the bar's mu is computed anew


def _clip(option: str, text: str) -> float | str:
    return text if text in ("auto", "none") else parse.positive(option, text, "auto, none or a finite number above 0")


class _TraceSettings(OutputSettings):
    """What is trained, and where its record goes."""

    task: Annotated[
        str | None,
        Option("TASK|RECIPE.YAML", argument=True),
        Field(
            description="A built-in task or path/to/file.py:make_task (default digits), or a recipe as gmip tune "
            "writes it: task, members, settings, noise and target in one file, without options that say the same."
        ),
    ] = None
    out: Annotated[
        str | None,
        Option("DIR", TRACE),
        Field(description="Folder for the trace, result.json and checkpoints (required)."),
    ] = None
    resume: Annotated[
        bool,
        Option(None, TRACE),
        Field(description="Continue the run in --out, with the same options; start it if there is none."),
    ] = False
    seed: Annotated[
        Seed | None,
        Option("SEED", TRACE),
        Field(description="Seed of members, batches, weights and noise (default: random)."),
    ] = None
    canaries: Annotated[
        Count | None,
        Option("M", TRACE),
        Field(
            description="Plant M canaries, each by a fair coin, to test the guarantee with: gmip audit "
            "DIR/canaries.csv. Needs --clip."
        ),
    ] = None


class _RecipeSettings(Settings):
    """Changes to the recipe, named like the fields of `gmip.Recipe`."""

    dataset_size: Annotated[
        Count | None, Option("N", RECIPE), Field(description="Members, drawn from the task's pool.")
    ] = None
    batch_size: Annotated[
        Count | None,
        Option("n", RECIPE),
        Field(description="Examples averaged in one step; with poisson, on average."),
    ] = None
    num_steps: Annotated[Count | None, Option("T", RECIPE), Field(description="Optimizer steps.")] = None
    epochs: Annotated[
        Positive | None,
        Option("E", RECIPE),
        Field(description="Passes over the data instead of --steps: N/n steps each, rounded up."),
    ] = None
    sampling: Annotated[
        Sampling | None,
        Option("|".join(SAMPLINGS), RECIPE),
        Field(description="How batches are drawn (see gmip account)."),
    ] = None
    optimizer: Annotated[
        tuple[str, dict[str, Any]] | None,
        Option("NAME[,OPTION=VALUE...]", RECIPE, parse.optimizer),
        Field(description="A class of torch.optim and its other arguments, such as Adam or SGD,momentum=0.9."),
    ] = None
    learning_rate: Annotated[Positive | None, Option("LR", RECIPE), Field(description="Learning rate.")] = None
    clip_norm: Annotated[
        float | str | None,
        Option("C|auto|none", RECIPE, _clip),
        Field(
            description="Clipping norm: the largest norm of one example's gradient. auto: the median norm, before "
            "training, of non-members. none: no clipping."
        ),
    ] = None
    fix_model: Annotated[
        bool,
        Option(None, RECIPE),
        Field(description="Replace layers that mix examples (BatchNorm becomes GroupNorm)."),
    ] = False
    device: Annotated[str, Option("NAME", RECIPE), Field(description="Where to train: cpu, cuda, mps.")] = "cpu"

    def changed(self, recipe: Recipe) -> Recipe:
        """A recipe with what was asked for, but for noise and a clipping norm that is to be found."""
        names = ("dataset_size", "batch_size", "num_steps", "sampling", "learning_rate")
        changes: dict[str, Any] = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.optimizer is not None:
            changes["optimizer"], options = self.optimizer
            if options or changes["optimizer"] != recipe.optimizer:
                changes["optimizer_options"] = options
        if self.clip_norm is not None and self.clip_norm != "auto":
            changes["clip_norm"] = None if self.clip_norm == "none" else self.clip_norm
        if "dataset_size" in changes and recipe.sampling == "full" and "sampling" not in changes:
            changes = {"batch_size": changes["dataset_size"]} | changes
        recipe = recipe.replace(**changes)
        if self.epochs is not None:
            recipe = recipe.replace(num_steps=recipe.run(1).with_epochs(self.epochs).num_steps)
        return recipe


class TrainSettings(_TraceSettings, TargetSettings, NoiseSettings, _RecipeSettings):
    """Settings of `gmip train`."""

    @property
    def in_file(self) -> bool:
        """Whether the task is a recipe's file."""
        return Path(self.task or "").suffix.lower() in YAML

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        said = next((name for name in _SAID_IN_FILE if self.in_file and name in self.model_fields_set), None)
        if said is not None:
            raise BadRequest(
                "is said in the recipe's file", argument=option_name(said), remedy="leave it out, or change it there"
            )
        if self.out is None:
            raise BadRequest(
                "--out is missing", remedy="name a folder for the trace and the result, as in --out runs/a"
            )
        if "notion" in self.model_fields_set and self.target is None:
            raise BadRequest(
                "--notion applies to a privacy target, and there is none", remedy="add one, as in --target mu=0.5"
            )
        once(self, "num_steps", "epochs", "number")
        if self.target is not None and self.noise_multiplier is not None:
            raise BadRequest("A privacy target determines the noise", remedy="pass a target or a noise, not both")
        if self.canaries is not None and self.resume:
            raise BadRequest(
                "--resume cannot go on with a run that has --canaries", remedy="start again in another --out"
            )
        return self

    def noisy(self, recipe: Recipe) -> Recipe:
        """The recipe with the noise that was asked for, in units of the clipping norm that the run will have."""
        if not self.noise_multiplier:
            return recipe if self.noise_multiplier is None else recipe.replace(noise_std=0.0)
        if recipe.clip_norm is None:
            raise BadRequest("--noise-multiplier needs --clip, its unit", remedy="add --clip")
        return recipe.with_noise_multiplier(self.noise_multiplier)


@dataclass(frozen=True)
class _PlannedRun:
    """What will be trained, and what is known about it before.

    keywords : of `gmip.train`.
    aim : the target of a recipe's file, which is kept.
    """

    task: Any
    recipe: Recipe
    run: NoisySGD
    curve: TradeOff
    keywords: dict[str, Any]
    aim: PrivacyTarget | None


@from_settings(TrainSettings)
def train(asked: TrainSettings) -> None:
    """Train to a privacy target and record what an attacker sees.

    Example: gmip train digits --target mu=0.5 --out runs/a

    Interrupted? Run the command again with --resume: it continues from the
    last checkpoint, and the result is the same bit for bit.

    The result is printed and saved as result.json beside the trace: recipe,
    seed, loss and accuracy on training and test data, and what a membership
    attacker can find (privacy.gmip, for a typical record; privacy.gdp is the
    differential privacy of the same run, null without noise; each with its
    kind, for_whom and adjacency). The folder names the members and holds the
    seed of the noise: protect it like the data.

    With --canaries the model also learns random directions: use it to test the
    training, and do not release it.
    """
    out = str(asked.out)
    target = None if asked.target is None else asked.wanted()
    with show.warnings_in_one_line():
        plan = _plan(asked, out, target)
        with _bar(plan.run) as watch:
            from gmip import training

            try:
                result = training.train(
                    plan.task, plan.recipe, out=out, resume=asked.resume, fix=asked.fix_model, **watch, **plan.keywords
                )
            except KeyboardInterrupt:
                print("Interrupted: run the command again with --resume to continue.", file=sys.stderr)
                raise
    answer = result.summary()
    if asked.canaries is not None:
        from gmip.canaries.coins import write_canaries

        planted = plan.keywords["canaries"]
        file = str(write_canaries(Path(out), planted, plan.run))
        answer["canaries"] = {"count": planted.count, "inside": int(planted.inside.sum()), "file": file}
    if plan.aim is not None:
        aim = {"target": _aim_words(plan.aim), "exposure": plan.curve.exposure(plan.aim)}
        answer["recipe_target"] = aim | {"kind": plan.curve.kind, "for_whom": plan.curve.for_whom}
    if asked.as_json:
        show.print_json(answer)
        return
    _print(asked, plan, answer)
    print(f"Trace and result: {out} (protect it like the data)")
    if asked.canaries is not None:
        test = f"gmip audit {shlex.quote(answer['canaries']['file'])}"
        print(f"{asked.canaries} canaries took part. Test the guarantee with them: {test}")


def _plan(asked: TrainSettings, out: str, target: PrivacyTarget | None) -> _PlannedRun:
    """All that is decided before training; torch is loaded only once the request has been read."""
    from gmip import tasks, training, tuning
    from gmip.tuning.recipe_search import read_recipe_file

    name, aim = asked.task or "digits", None
    written = read_recipe_file(name) if asked.in_file else None
    chosen = tasks.load(name if written is None else written.task)
    num_params = training.count_params(training.initial_model(chosen, 0, fix=asked.fix_model))
    keywords: dict[str, Any] = {"seed": asked.seed, "device": asked.device}
    if written is not None:
        recipe, aim, keywords["split_seed"] = written.kept(num_params), written.target, written.split_seed
    else:
        recipe = asked.changed(chosen.recipe)
        if asked.clip_norm == "auto":
            members = keywords["seed"] = _members_seed(out, asked.seed, asked.resume)
            found_clip = tuning.auto_clip(chosen, recipe.dataset_size, split_seed=members, fix=asked.fix_model)
            recipe = recipe.replace(clip_norm=found_clip.clip_norm)
            keywords["origins"] = {"clip_norm": clip_origin(found_clip.quantile, found_clip.records)}
        recipe = asked.noisy(recipe)
        if target is not None:
            recipe = with_least_noise(recipe, num_params, target)
    run, wanted = recipe.run(num_params), target or aim
    curve = account_run(run, **({} if wanted is None else wanted.whose))
    if asked.clip_norm != "auto":
        tuning.consider_clipping(chosen, recipe, fix=asked.fix_model)
    if asked.canaries is not None:
        keywords["canaries"] = _canaries(asked.canaries, recipe)
    return _PlannedRun(chosen, recipe, run, curve, keywords, aim)


def _print(asked: TrainSettings, plan: _PlannedRun, answer: dict[str, Any]) -> None:
    curve, gdp, recipe = plan.curve, answer["privacy"]["gdp"], plan.recipe
    rows = [
        ("accuracy on test data", _share(answer["test"]["accuracy"])),
        ("accuracy on training data", _share(answer["train"]["accuracy"])),
    ]
    if asked.clip_norm == "auto":
        rows.append(("clipping norm, from non-members", f"{recipe.clip_norm:g}"))
    rows.append((NOISE, _numbers.noise(recipe.noise_std)))
    for fpr in answer["privacy"]["gmip"]["tpr_at_fpr"]:
        shown = _numbers.percent(curve.tpr_at(float(fpr)), "up")
        rows.append((members_found(fpr, curve.kind), shown))
    rows.append((MU_OF_RUN, _numbers.number(curve.equivalent_mu(), "up")))
    if gdp is None:
        rows.append(NO_PRIVACY)
    elif curve.claim.adjacency is None:
        name = f"the same of differential privacy ({gdp['adjacency']})"
        rows.append((name, _numbers.number(gdp["mu"], "up")))
    rows.append(("seed", "in the trace" if asked.seed is None else str(asked.seed)))
    done = f"Trained {plan.task.name} in {recipe.num_steps} steps. "
    if plan.aim is not None:
        keeps = "Keeps" if curve.kind == "bound" else "Expected to keep"
        done = f"{keeps} the recipe's target: {_aim_words(plan.aim)}. {done}"
    show.print_answer(rows, done + found(curve, 0.01), curve, explain=None)
    if curve.claim.adjacency is None and gdp is not None and gdp["caveat"] is not None:
        print(f"Differential privacy here: {gdp['caveat']}")


def _canaries(count: int, recipe: Recipe) -> DirectionCanaries:
    """Coins of their own: the seed of the run says nothing about them."""
    from gmip.canaries import DirectionCanaries

    if recipe.clip_norm is None:
        raise BadRequest("--canaries needs --clip, which is the length of a canary", remedy="add --clip 1")
    return DirectionCanaries(count)


def _aim_words(aim: PrivacyTarget) -> str:
    return f"{aim}{' by differential privacy' if aim.notion == 'gdp' else ''}"


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
