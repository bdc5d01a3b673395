"""What to do about a run: the sentences, and the commands that do it or show it, for page, Markdown and terminal."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from typing import Final, assert_never

from gmip._numbers import count, duration, noise, number, percent, setting, typed
from gmip.accounting.alternatives import Alternative, Change, ClosedWay, Ways
from gmip.auditing.schema import Advice, RunAudit, TrainingCommand, UntriedWay, Way
from gmip.report import answer_words
from gmip.report.account_words import goal_words, reached, target_shown
from gmip.vocabulary import NoisySGD, PrivacyTarget, Recipe

NAMES: Final[dict[Change, str]] = {
    "noise": "More noise",
    "noise-alone": "Noise, by differential privacy",
    "batch": "Larger batches",
    "steps": "Fewer steps",
    "clip": "Smaller clipping norm",
    "parameters": "Fewer parameters",
    "data": "More data",
}
_TRAINED: Final = ("noise_std", "clip_norm", "batch_size", "num_steps")  # what gmip train changes on the same data


# -- the advice of an audit -------------------------------------------------------------------------------------------


def text(advice: Advice, run: RunAudit) -> str:
    """One or a few sentences."""
    goal = goal_words(run.goal)
    match advice.kind:
        case "fix-record":
            return (
                "Fix what the check of the record found, in the training loop or in what was declared, and record the "
                "run again. Until then, finding little is no evidence."
            )
        case "claim-refuted":
            return _refuted(run)
        case "seed-guessed":
            return "The seed can be guessed, and it reveals the members. Train without --seed: a secret one is drawn."
        case "find-less":
            return (
                "To leak less, train on more records, or with more regularisation (fewer steps, smaller trees); "
                f"{'also' if run.facts.clients else 'a PyTorch model also'} {noisy_training(run)}."
            )
        case "say-claim":
            return "To test a claimed guarantee, add --claim, such as mu=1 or epsilon=3@1e-5."
        case "guaranteed-already":
            return f"Nothing to do for the target: {goal} is {answer_words.guaranteed(run)}."
        case "bound-already":
            return _bound_already(run, goal)
        case "forecast-already":
            share = percent(1.0 if advice.tpr is None else advice.tpr, "up")
            return f"The target is forecast, not guaranteed: about {share} for {advice.for_whom}."
        case "to-guarantee":
            return _to_guarantee(run)
        case "only-forecasts":
            return "These ways are forecasts: none of them guarantees the target."
        case "way":
            return "" if advice.way is None else _way(advice.way, run)
        case "clip-first":
            return (
                f"Clip the gradient of each record and add noise: without clipping no noise gives {goal}. "
                "(clip_grad_norm_ clips the mean of a batch, which does not limit single records.)"
            )
        case "closed-ways":
            return closed_sentence(advice.closed, _target(run))
        case "tune":
            return (
                "Each way changes one thing. gmip tune searches clipping norm, learning rate, batch size and steps "
                "together, among recipes within the target."
            )
        case "more-candidates":
            return (
                f"Audit more candidates: about {count(advice.candidates or 0)} in all, half of them members. Repeated "
                "runs count together."
            )
    assert_never(advice.kind)


def noisy_training(run: RunAudit) -> str:
    """How to train for a guarantee."""
    if run.facts.clients is not None:
        return (
            "with clients' updates clipped and noise on their average, as Flower's strategies for differential privacy "
            "do"
        )
    return "with clipping and noise (gmip train)"


def command(advice: Advice, run: RunAudit) -> str | None:
    """What does it, or shows it; None: the command line cannot say it, or the result is for others (`shareable`)."""
    facts = run.commands
    if facts is None:
        return None
    if advice.kind == "say-claim":
        return "gmip audit ... --claim mu=1"
    if advice.kind == "more-candidates":
        return "gmip audit audit.yaml    # with repeats: 5 in it; gmip init writes one" if run.declared else None
    train = facts.trained_by
    if advice.kind == "tune" and train is not None:
        size = train.recipe.dataset_size
        return f"gmip tune {shlex.quote(train.task)} --target tpr={run.goal} --dataset-size {size}"
    if advice.kind != "way" or advice.way is None:
        return None
    way, changes = advice.way, advice.way.changes(run.declared)
    if train is not None and changes and set(changes) <= set(_TRAINED):
        return _train_command(train, way, run.declared)
    return _calculator_command(way.change, way.runs, run.declared, _target(run), alone=way.change == "noise-alone")


def _refuted(run: RunAudit) -> str:
    if run.declared:
        return (
            "Do not rely on the guarantee: the training differs from what was declared. Check that the noise is "
            "independent in every entry, that each gradient is clipped before averaging, that the batch and data sizes "
            "are right, and that the seed is secret. Then train and audit again."
        )
    return (
        "Do not rely on the guarantee. Check that members and non-members differ in nothing but their membership. If "
        "so, the training does not do what was claimed: find out why, then train and audit again."
    )


def _bound_already(run: RunAudit, goal: str) -> str:
    if run.check is None or not 0.0 < run.check.least_noise < 1.0:
        return f"No more noise is needed: {goal} is guaranteed if the training is as declared."
    share, more = percent(run.check.least_noise, "down"), number(1.0 / run.check.least_noise, "up")
    why, todo = "gradients or a clip norm that are too large", f"train with {more} times the noise and audit again"
    if any(one.fault == "own-size" for one in run.check.beyond_reach):  # which more noise hides even more
        why, todo = "that batches were divided by their own size", "batches of a fixed size leave no such doubt"
    if len(run.check.steps) < sum(one.num_steps for one in run.declared):
        todo += ", or record more steps"
    return (
        f"{goal[0].upper()}{goal[1:]} is guaranteed if the training is as declared. The noise may hide {why}, so the "
        f"record proves only what {share} of that noise would: {todo}."
    )


def _to_guarantee(run: RunAudit) -> str:
    """The first way that proves the target."""
    ways = (one.way for one in run.advice if one.way is not None and one.way.kind == "bound")
    way = next(ways, None)
    if way is None:
        return "To guarantee the target, take a way that is proved."
    return f"To guarantee the target: {setting_words(way.change, way.runs, run.declared)}. Holds for {way.for_whom}."


def _way(way: Way, run: RunAudit) -> str:
    what, then = setting_words(way.change, way.runs, run.declared), reached(_target(run), way.tpr, way.kind)
    return f"{NAMES[way.change]}: {what}. {then.capitalize()}."


def _target(run: RunAudit) -> PrivacyTarget:
    """What the ways are to reach."""
    return PrivacyTarget(target_tpr=run.goal, attacker_knows=0.0 if run.answer is None else run.answer.knows)


def _train_command(train: TrainingCommand, way: Way, declared: Sequence[NoisySGD]) -> str:
    """The same training with the changes of a way; the seed is left out, so that a secret one is drawn."""
    now = train.recipe.replace(**way.changes(declared))
    pairs = [f"{name}={json.dumps(value)}" for name, value in now.optimizer_options.items()]
    options = {
        "dataset-size": now.dataset_size,
        "batch-size": now.batch_size,
        "steps": now.num_steps,
        "sampling": now.sampling,
        "optimizer": shlex.quote(",".join([now.optimizer, *pairs])),
        **({} if now.learning_rate is None else {"learning-rate": typed(now.learning_rate)}),
        "clip": "none" if now.clip_norm is None else typed(now.clip_norm),
        "noise-multiplier": _multiplier(now, 3 if way.change in ("noise", "noise-alone") else 9),
    }
    said = [shlex.quote(train.task), *(f"--{name} {value}" for name, value in options.items())]
    if train.fix:
        said.append("--fix-model")
    return f"gmip train {' '.join(said)} --out runs/{way.change}"


def not_tried(one: UntriedWay) -> str:
    """Why the accuracy of a way was not measured."""
    if one.why == "refused":
        return f"The accuracy of these ways was not measured: {one.problem}"
    name = "The run as it is" if one.change is None else NAMES[one.change]
    why = {
        "other-model": "it needs another model",
        "schedule": "the run is a schedule",
        "few-records": f"only {count(one.records or 0)} records that are not members are available",
        "too-slow": f"one training takes about {duration(one.seconds or 0.0)}, more than the time left",
        "diverged": "the training diverged",
    }[one.why]
    return f"{name} was not tried: {why}."


# -- ways to a target -------------------------------------------------------------------------------------------------


def setting_words(change: Change, new: Sequence[NoisySGD], old: Sequence[NoisySGD]) -> str:
    """What to set, and what it is now, as a clause."""
    match change:
        case "noise" | "noise-alone":
            return _noise(new, old)
        case "batch":
            return _batch(new, old)
        case "steps":
            fewer = f"{count(_steps(new))} steps instead of {count(_steps(old))}"
            return fewer if len(old) == 1 else f"{fewer}, in every phase in proportion"
        case "clip" if len(old) > 1:
            return f"clip at {setting(_ratio(new, old))} times the norm, with the same noise_std"
        case "clip":
            return f"clip at {setting(_clip(new[0]))} instead of {setting(_clip(old[0]))}, with the same noise_std"
        case "parameters":
            most, now = (max(run.num_params for run in runs) for runs in (new, old))
            return f"at most {count(most)} trainable instead of {count(now)} (freeze layers)"
        case "data":
            return f"{count(new[0].dataset_size)} records instead of {count(old[0].dataset_size)}, for as many steps"
    assert_never(change)


def _noise(new: Sequence[NoisySGD], old: Sequence[NoisySGD]) -> str:
    if len(new) > 1:
        if any(run.noise_std for run in old):
            factor = max(a.noise_std / b.noise_std for a, b in zip(new, old, strict=True) if b.noise_std > 0.0)
            return f"the noise of all phases times {number(factor, 'up', 5)}"
        return f"noise multiplier {noise(max(run.noise_multiplier or 0.0 for run in new))} in all phases"
    run = new[0]
    multiplier, now = (number(one.noise_multiplier or 0.0, "up") for one in (run, old[0]))
    return f"noise multiplier {multiplier} instead of {now} (clip {setting(_clip(run))})"


def _batch(new: Sequence[NoisySGD], old: Sequence[NoisySGD]) -> str:
    if len(old) > 1:
        larger = f"batches {number(new[0].batch_size / old[0].batch_size, 'up')} times as large"
    else:
        larger = f"batches of {count(new[0].batch_size)} instead of {count(old[0].batch_size)}"
    noise = ", with the same noise_std" if any(run.noise_std for run in old) else ""
    if _steps(new) == _steps(old):
        return f"{larger}, for as many steps{noise}"
    return f"{larger}, for as many epochs ({count(_steps(new))} steps instead of {count(_steps(old))}){noise}"


def _steps(runs: Sequence[NoisySGD]) -> int:
    return sum(run.num_steps for run in runs)


def _clip(run: NoisySGD) -> float:
    return math.inf if run.clip_norm is None else run.clip_norm


def _ratio(new: Sequence[NoisySGD], old: Sequence[NoisySGD]) -> float:
    return min(_clip(a) / _clip(b) for a, b in zip(new, old, strict=True) if b.clip_norm is not None)


def closed_sentence(closed: Sequence[ClosedWay], target: PrivacyTarget) -> str:
    """The ways that do not reach the target; empty if all do."""
    if not closed:
        return ""
    said = "; ".join(f"{NAMES[one.change].lower()} ({_why(one, target)})" for one in closed)
    return f"These alone do not reach the target: {said}."


def _why(one: ClosedWay, target: PrivacyTarget) -> str:
    shown = target_shown(target, 1.0 if one.value is None else one.value)
    return {
        "no-clip-norm": "noise needs a clip norm: clip the gradient of each record",
        "too-slow": "not computed: it takes too long",
        "batch": f"best size {count(one.size or 0)}: {shown}",
        "one-step": f"one step: {shown}",
        "one-parameter": f"one parameter: {shown}",
        "data": f"{count(one.size or 0)} times as many records: {shown}",
        "phases": "the phases without noise alone exceed it",
        "missed": "the search came close but did not reach it" if one.change != "noise" else "no noise is enough",
    }[one.why]


# -- commands of the accountant ---------------------------------------------------------------------------------------


def alternative_command(way: Alternative, ways: Ways) -> str | None:
    """The command that shows a way; None where the command line cannot say it."""
    return _calculator_command(way.change, way.runs, ways.runs, ways.target, alone=way.notion == "gdp")


def _calculator_command(
    change: Change, runs: Sequence[NoisySGD], before: Sequence[NoisySGD], target: PrivacyTarget, *, alone: bool
) -> str | None:
    """`gmip calibrate` for noise, else `gmip account`. `alone`: by noise alone (differential privacy)."""
    whom = _whom(target)
    if whom is None or target.adjacency is not None:
        return None
    if change in ("noise", "noise-alone"):
        sizes = _run_options([run.replace(noise_std=0.0) for run in before])
        if sizes is None:
            return None
        about = " --notion gdp" if alone else whom
        return f"gmip calibrate {sizes}{about} --target {target.text}"
    sizes = _run_options(runs)
    if sizes is None or alone:
        return None
    shown = "" if target.rate is None else f" --fpr {typed(target.rate.fpr)}"
    return f"gmip account {sizes}{whom}{shown}"


def run_options(run: NoisySGD, *, epochs: str | None = None, digits: int = 9) -> list[str]:
    """A run as options of `gmip account`; its length in epochs, where that is how it was said.

    digits : of the noise.
    """
    known = {
        "dataset-size": str(run.dataset_size),
        "batch-size": str(run.batch_size),
        "steps": str(run.num_steps) if epochs is None else None,
        "epochs": epochs,
        "params": str(run.num_params),
        "sampling": run.sampling,
        "clip": None if run.clip_norm is None else typed(run.clip_norm),
        "noise-multiplier": None if run.noise_std == 0.0 else _multiplier(run, digits),
        "rows-per-person": None if run.rows_per_person == 1 else str(run.rows_per_person),
    }
    return [word for name, value in known.items() if value is not None for word in (f"--{name}", value)]


def _run_options(runs: Sequence[NoisySGD]) -> str | None:
    """None for what no option says, as a schedule."""
    run = runs[0]
    if len(runs) > 1 or run.drop_last or run.rank or run.max_batch_size or run.shaped_noise:
        return None
    return " ".join(run_options(run))


def _multiplier(run: NoisySGD | Recipe, digits: int = 9) -> str:
    """The noise multiplier as one types it, rounded up: a run with this noise keeps what the run itself keeps."""
    return number(run.noise_multiplier or 0.0, "up", digits)


def _whom(target: PrivacyTarget) -> str | None:
    whom = target.susceptibility
    if isinstance(whom, tuple):
        return None  # a file, whose name is not known here
    said = ""
    if isinstance(whom, (str, float)):
        said += f" --susceptibility {whom if isinstance(whom, str) else typed(whom)}"
    if target.attacker_knows:
        said += f" --attacker-knows {typed(target.attacker_knows)}"
    return said
