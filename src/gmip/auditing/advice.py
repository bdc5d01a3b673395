"""What to do about a run: the least noise, or the batch, for a target; what weakens the audit itself."""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gmip._numbers import count, number, percent, rate, typed
from gmip.accounting.account import account, coarsely
from gmip.accounting.alternative_words import (
    NAMES,
    calculator_command,
    closed_sentence,
    reached,
    setting_words,
)
from gmip.accounting.alternatives import Alternative, Ways, alternatives
from gmip.auditing.advice_schema import Advice, Way, WhatIf
from gmip.auditing.schema import AttackerAnswer, AttackOutcome, Verdict
from gmip.vocabulary import Claim, NoisySGD, PrivacyTarget, Rate, Recipe, weakest

__all__ = ["TrainingCommand", "advise", "ranked", "what_if"]

_SECONDS: Final = 20.0  # for all ways to the target: shuffled epochs of long runs are left out one by one
_TRAINED: Final = ("noise_std", "clip_norm", "batch_size", "num_steps")  # what gmip train changes on the same data


@dataclass(frozen=True, kw_only=True)
class TrainingCommand:
    """The `gmip train` of a run; `task` as the command line names it, `fix` for --fix-model."""

    task: str
    recipe: Recipe
    fix: bool = False

    def changed(self, changes: Mapping[str, Any], *, out: str) -> str:
        """The same training with these changes; the seed is left out, so that a secret one is drawn."""
        now = dataclasses.asdict(self.recipe) | dict(changes)
        pairs = [f"{name}={json.dumps(value)}" for name, value in now["optimizer_options"].items()]
        options = {
            "task": shlex.quote(self.task),
            "dataset-size": now["dataset_size"],
            "batch-size": now["batch_size"],
            "steps": now["num_steps"],
            "sampling": now["sampling"],
            "optimizer": shlex.quote(",".join([now["optimizer"], *pairs])),
            "learning-rate": typed(now["learning_rate"]),
            "clip": "none" if now["clip_norm"] is None else typed(now["clip_norm"]),
            "noise-std": typed(now["noise_std"]),
        }
        said = [f"--{name} {value}" for name, value in options.items()]
        if self.fix:
            said.append("--fix-model")
        return f"gmip train {' '.join(said)} --out {out}"


def advise(
    runs: Sequence[NoisySGD],
    verdict: Verdict,
    attacks: Sequence[AttackOutcome],
    *,
    goal: Rate,
    trained_by: TrainingCommand | None = None,
    answer: AttackerAnswer | None = None,
) -> tuple[Advice, ...]:
    """Sentences in the order of what matters.

    Parameters
    ----------
    runs : what ran, phase after phase; empty: how the model was trained is not known.
    goal : what is good enough.
    trained_by : the command that trained the run; None: it was not `gmip train`.
    answer : about the strongest attacker that was tried, whose target the ways are to reach; None: about one who holds
        no list of members.
    """
    said: list[Advice] = []
    if verdict.kind == "exposed":
        said.append(
            Advice(
                text="Do not rely on the promise: the training differs from what the accountant was told. Check that "
                "the noise is independent in every entry, that each gradient is clipped before averaging, that "
                "the batch and data sizes are right, and that the seed is secret. Then train and audit again."
                if runs
                else "Do not rely on the promise. Check that members and non-members differ in nothing but their "
                "membership; if so, the training does not do what was promised: find out why, train and audit again."
            )
        )
    if any(one.guessed_seed is not None for one in attacks):
        said.append(
            Advice(
                text="The seed can be guessed, and it reveals the members: train without --seed, so that a secret one "
                "is drawn."
            )
        )
    if not runs:
        said += _unknown_training(verdict, attacks)
    elif answer is not None and answer.target == "guaranteed":
        said.append(Advice(text=f"Nothing to do for the target: a bound keeps {_goal(goal)}."))
    else:
        said += _towards(runs, goal, trained_by, answer)
    if verdict.kind == "inconclusive" and verdict.candidates_needed is not None:
        said.append(
            Advice(
                text=f"Audit more candidates: about {count(verdict.candidates_needed)} in all, half of them members. "
                "Repeated runs add up.",
                command="gmip audit ... --repeats 5" if runs else None,
            )
        )
    return tuple(said)


def _unknown_training(verdict: Verdict, attacks: Sequence[AttackOutcome]) -> list[Advice]:
    said = []
    if any(one.mu_lower > 0.0 for one in attacks):  # an attacker with a list comes last, and counts, too
        said.append(
            Advice(
                text="To find less: train on more records, for fewer steps or with more regularisation, or with "
                "clipping and noise (gmip train)."
            )
        )
    if verdict.kind == "measured":
        said.append(
            Advice(
                text="Say what was promised, and the audit tests it: a mu, or an epsilon and a delta.",
                command="gmip audit ... --claim-mu 1",
            )
        )
    return said


def _goal(goal: Rate) -> str:
    return f"at most {rate(goal.tpr)} of the members at {rate(goal.fpr)} false alarms"


def _towards(
    runs: Sequence[NoisySGD],
    goal: Rate,
    trained_by: TrainingCommand | None,
    answer: AttackerAnswer | None,
) -> list[Advice]:
    """The ways to the goal, by the accountant: those that prove it first."""
    wanted = _goal(goal)
    target = PrivacyTarget(target_tpr=goal, attacker_knows=0.0 if answer is None else answer.knows)
    ways = alternatives(runs, target, seconds=_SECONDS)
    ways = dataclasses.replace(ways, open=tuple(sorted(ways.open, key=lambda way: way.curve.kind != "bound")))
    said = [Advice(text=text) for text in (_as_it_is(ways, wanted), _lead(ways)) if text]
    said += [_advice(way, ways, trained_by) for way in ways.open]
    if any(one.change == "noise" for one in ways.closed) and any(run.clip_norm is None for run in runs):
        said.append(
            Advice(
                text="Clip the gradient of each record and add noise: without a clip norm no amount of noise gives "
                f"{wanted}. (clip_grad_norm_ clips the mean of a batch, which bounds nobody's part in it.)"
            )
        )
    if ways.closed:
        said.append(Advice(text=closed_sentence(ways.closed)))
    if trained_by is not None and not ways.met:
        task, size = shlex.quote(trained_by.task), trained_by.recipe.dataset_size
        said.append(
            Advice(
                text="Each way changes one thing. gmip tune searches clipping norm, learning rate, batch size and "
                "steps together, among recipes that keep the target.",
                command=f"gmip tune {task} --target-tpr {goal} --dataset-size {size}",
            )
        )
    return said


def _as_it_is(ways: Ways, goal: str) -> str:
    """That the accountant's answer keeps the goal already, where it does, and what that is worth."""
    if not ways.met:
        return ""
    if ways.curve.kind == "bound":
        return f"The accountant's bound keeps {goal} already, if the training is as declared: that needs no more noise."
    return (
        f"The target is forecast, not guaranteed: about {percent(ways.now, 'up')} for {ways.curve.for_whom}, and a "
        "forecast is no bound."
    )


def _lead(ways: Ways) -> str:
    """The way that turns the target into a guarantee."""
    if ways.met and ways.curve.kind == "bound":
        return ""
    first = next(iter(ways.open), None)
    if first is not None and first.curve.kind == "bound":
        return f"To guarantee the target: {setting_words(first, ways.runs)}. That is proved for {first.curve.for_whom}."
    return "None of the ways here guarantees the target: they are forecasts." if ways.open else ""


def _advice(way: Alternative, ways: Ways, trained_by: TrainingCommand | None) -> Advice:
    name, what = NAMES[way.change], setting_words(way, ways.runs)
    changes = {}
    if len(ways.runs) == 1:
        before, after = (dataclasses.asdict(run) for run in (ways.runs[0], way.runs[0]))
        changes = {name: value for name, value in after.items() if value != before[name] and name != "rank"}
    command = None
    if trained_by is not None and changes and set(changes) <= set(_TRAINED):
        command = trained_by.changed(changes, out=f"runs/{way.change}")
    return Advice(
        text=f"{name}: {what}. {reached(way, ways.target).capitalize()}.",
        command=command or calculator_command(way, ways),
        way=Way(
            change=way.change,
            name=name,
            setting=what,
            changes=changes,
            tpr=way.value,
            kind=way.curve.kind,
            for_whom=way.curve.for_whom,
        ),
    )


def ranked(advice: Sequence[Advice]) -> tuple[Advice, ...]:
    """The ways to the goal by their measured accuracy, the best first, then those that were not measured; other advice
    keeps its place around them."""
    ways = [one for one in advice if one.way is not None]
    best = iter(sorted(ways, key=_loss))
    return tuple(one if one.way is None else next(best) for one in advice)


def _loss(advice: Advice) -> float:
    tried = None if advice.way is None else advice.way.accuracy
    return 2.0 if tried is None else 1.0 - tried.mean  # what was not measured comes last


# -- what would be promised with other noise and other batches --------------------------------------------------------


_GRID_SECONDS: Final = 10.0
_NOISE: Final = (0.25, 0.5, 0.71, 1.0, 1.4, 2.0, 4.0)  # of the noise that the goal needs
_BATCHES: Final = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the batch size


def what_if(
    runs: Sequence[NoisySGD], *, fpr: float, needed: float | None = None, seconds: float = _GRID_SECONDS
) -> WhatIf | None:
    """The promised TPR at `fpr` over a grid around the run; None without runs.

    Parameters
    ----------
    needed : noise_std of the (first phase of the) run that reaches the goal, where it is known: the grid is centred
        on it; else on the run's own noise, or on a noise multiplier of 1.
    seconds : columns that take longer are left out, that of the run's own batch size excepted.

    Guarantees
    ----------
    Each number is that of `account`, on grids that err on the attacker's side (shuffled epochs: on coarse ones).
    """
    if not runs:
        return None
    first = runs[0]
    levels, sizes = _levels(first, needed), _sizes(runs)
    column = sizes.index(first.batch_size)
    deadline = time.monotonic() + seconds
    found: dict[int, list[float]] = {}
    claims: list[Claim] = []
    for size in sorted(sizes, key=lambda size: abs(sizes.index(size) - column)):
        values = []
        for level in levels:
            if found and time.monotonic() > deadline:
                break
            with coarsely():  # which only shuffled epochs take notice of
                curve = account(_changed(runs, level, size))
            claims.append(curve.claim)
            values.append(min(1.0, max(0.0, float(curve.tpr_at(fpr)))))
        if len(values) == len(levels):
            found[size] = values
    kept = sorted(found)
    return WhatIf(
        noise_std=levels,
        batch_size=tuple(kept),
        tpr=tuple(tuple(found[size][i] for size in kept) for i in range(len(levels))),
        own=(levels.index(first.noise_std), kept.index(first.batch_size)),
        kind=weakest(claim.kind for claim in claims),
        for_whom=claims[0].for_whom,
        left_out=_left_out(runs, len(sizes) - len(kept)),
    )


def _left_out(runs: Sequence[NoisySGD], slow: int) -> str | None:
    said = []
    if any(run.clip_norm is None for run in runs):
        said.append("Noise needs clipped gradients, and these are not: only the batch size changes.")
    if len(runs) > 1:
        said.append("Phases keep their batch sizes; their noise changes in proportion.")
    if slow:
        said.append(f"{slow} batch {'size was' if slow == 1 else 'sizes were'} left out: they take long to compute.")
    return " ".join(said) or None


def _levels(run: NoisySGD, needed: float | None) -> tuple[float, ...]:
    if run.clip_norm is None:
        return (0.0,)
    centre = needed or run.noise_std or run.clip_norm / run.batch_size
    rounded = {float(number(centre * factor, "up", 3)) for factor in _NOISE if factor != 1.0}
    own = run.noise_std
    apart = {level for level in rounded if abs(level - own) > 0.1 * own}  # hardly another noise
    return tuple(sorted({0.0, own, centre, *apart}))


def _sizes(runs: Sequence[NoisySGD]) -> list[int]:
    run = runs[0]
    if len(runs) > 1 or run.sampling == "full":
        return [run.batch_size]
    return sorted({min(run.dataset_size, max(1, round(run.batch_size * factor))) for factor in _BATCHES})


def _changed(runs: Sequence[NoisySGD], level: float, size: int) -> list[NoisySGD]:
    first = runs[0]
    if len(runs) == 1:
        return [first.replace(noise_std=level, batch_size=size)]
    if level == first.noise_std:
        return list(runs)

    def scaled(run: NoisySGD) -> float:
        if first.noise_std > 0.0:
            return run.noise_std * (level / first.noise_std)
        return level if run.clip_norm is None or first.clip_norm is None else _in_units(run, first, level)

    return [run.replace(noise_std=scaled(run)) for run in runs]


def _in_units(run: NoisySGD, first: NoisySGD, level: float) -> float:
    """The same noise multiplier in each phase, where none had noise."""
    multiplier = first.replace(noise_std=level).noise_multiplier
    assert multiplier is not None  # gradients are clipped
    return run.with_noise_multiplier(multiplier).noise_std
