"""What the experiment `value` says: gains over pairs of runs, and the claims that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from reproduction.experiment import Claim, Row, judged

TARGETS: Final = (0.03, 0.05, 0.1)
MIDDLE: Final = 0.05
TITLES: Final = {
    "digits": "Digits",
    "breast-cancer": "Breast cancer",
    "adult": "Adult",
    "location": "Location",
    "cifar10": "CIFAR-10",
}
_CONFIDENCE: Final = 0.95


class Gain(NamedTuple):
    """What one arm gains over another, in points of accuracy: pairs of runs share members, batches and noise."""

    task: str
    size: int
    target: float
    mean: float
    error: float
    p_value: float  # two-sided

    @property
    def words(self) -> str:
        return f"{self.mean:+.1f} ± {self.error:.1f} ({TITLES[self.task]}, N = {self.size:,}, {percent(self.target)})"


def percent(target: float) -> str:
    return f"{100 * target:g}%"


def places(rows: Sequence[Row]) -> dict[str, list[int]]:
    return {
        task: sorted({row["dataset_size"] for row in rows if row["task"] == task})
        for task in TITLES
        if any(row["task"] == task for row in rows)
    }


def select(rows: Sequence[Row], task: str, size: int, arm: str, target: float | None) -> list[Row]:
    wanted = (task, size, arm, None if arm == "none" else target)
    mine = [row for row in rows if (row["task"], row["dataset_size"], row["arm"], row["target"]) == wanted]
    return sorted(mine, key=lambda row: int(row["seed"]))


def accuracies(rows: Sequence[Row], task: str, size: int, arm: str, target: float | None) -> NDArray[np.float64]:
    """In percent, by seed; empty where this was not measured."""
    return 100.0 * np.array([row["test_accuracy"] for row in select(rows, task, size, arm, target)], dtype=np.float64)


def error_of(values: NDArray[np.float64]) -> float:
    """Standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def gains(rows: Sequence[Row], better: str, worse: str, *, targets: Sequence[float] = TARGETS) -> list[Gain]:
    """Wherever both were measured."""
    found = []
    for task, sizes in places(rows).items():
        for size in sizes:
            for target in targets:
                ours, theirs = (accuracies(rows, task, size, arm, target) for arm in (better, worse))
                if ours.size and ours.size == theirs.size:
                    pairs = ours - theirs
                    error = error_of(pairs)
                    p = 1.0 if error == 0.0 else float(2.0 * student.sf(abs(pairs.mean()) / error, pairs.size - 1))
                    found.append(Gain(task, size, target, float(pairs.mean()), error, p))
    return found


def short_table(rows: Sequence[Row], shown: Sequence[tuple[str, int]]) -> str:
    """Accuracies at the middle target as a Markdown table, for docs/reproduction.md."""
    lines = [
        "| 5% found | no noise | GMIP, tuned (a typical record, about) | GDP, tuned (any record, at most) "
        "| GMIP over GDP | GDP, the task's own recipe and model |",
        "|---|---|---|---|---|---|",
    ]
    found = {(gain.task, gain.size): gain for gain in gains(rows, "gmip", "gdp", targets=[MIDDLE])}
    for task, size in shown:
        means = [accuracies(rows, task, size, arm, MIDDLE) for arm in ("none", "gmip", "gdp", "own-gdp")]
        told = [f"{values.mean():.1f}%" if values.size else "" for values in means]
        gain = found[task, size]
        told.insert(3, f"{gain.mean:+.1f} ± {gain.error:.1f}")
        lines.append(f"| {TITLES[task]}, {size:,} members | {' | '.join(told)} |")
    return "\n".join(lines)


def all_claims(rows: Sequence[Row]) -> list[Claim]:
    pairs = {
        "gmip": "a typical record",
        "half": "a typical record, and an attacker who holds half of the others",
        "measured": "measured records",
    }
    found = [_notion(rows, arm, whom) for arm, whom in pairs.items()]
    found += [_saved(rows), _quiet(rows)]
    found += [claim for claim in (_any_record(rows), _poisson(rows), _recipe(rows)) if claim is not None]
    return found


def _notion(rows: Sequence[Row], arm: str, whom: str) -> Claim:
    mine = gains(rows, arm, "gdp")
    level = (1.0 - _CONFIDENCE) / len(mine)
    up = [gain for gain in mine if gain.p_value < level and gain.mean > 0.0]
    down = [gain for gain in mine if gain.p_value < level and gain.mean < 0.0]
    large = sorted((gain for gain in mine if gain.mean >= 1.0), key=lambda gain: -gain.mean)
    means = [gain.mean for gain in mine]
    told = "; ".join(gain.words for gain in large[:4]) or "none"
    return Claim(
        what=f"Accuracy under GMIP for {whom}, against GDP, both tuned",
        published="more accuracy, as with one recipe for both",
        measured=f"{min(means):+.1f} to {max(means):+.1f} points, mean {float(np.mean(means)):+.2f}, median "
        f"{float(np.median(means)):+.2f}, over {len(mine)} settings; significantly better in {len(up)}, worse in "
        f"{len(down)}. One point or more: {told}",
        verdict=judged(agrees=2 * len(up) > len(mine), differs=len(up) > len(down) or not (up or down)),
        ours=True,
        words="Where data randomness alone would do, the noise that GDP needs is no larger than the sampling noise "
        "that batches have anyway. It costs accuracy only where data are few. GMIP's is a forecast for the records it "
        "names, GDP's a bound for any. Validation records choose the recipe of either.",
    )


def _saved(rows: Sequence[Row]) -> Claim:
    """The share of the noise of GDP's best recipe that GMIP does not need."""
    shares, most = {}, 0.0
    for task, sizes in places(rows).items():
        for size in sizes:
            for target in TARGETS:
                for row in select(rows, task, size, "gdp", target)[:1]:
                    ours, theirs = row["typical_multiplier"], row["noise_multiplier"]
                    shares[task, size, target] = 1.0 - ours / theirs
                    batch = row["batch_size"] * (1.0 - row["batch_size"] / size)
                    if row["sampling"] == "poisson" and batch > 0.0 and ours > 0.0:
                        most = max(most, (theirs**2 - ours**2) * row["num_params"] / batch)
    free = sum(share == 1.0 for share in shares.values())
    little = sum(share < 0.1 for share in shares.values())
    return Claim(
        what="Noise that data randomness saves, with GDP's best recipe",
        published="theory: as much variance as the batch's own sampling has if all gradients are of norm C",
        measured=f"all of it in {free} of {len(shares)} settings, less than a tenth in {little}; where some noise is "
        f"left, the variance saved is at most {most:.2f} times that of sampling",
        verdict=judged(agrees=most <= 1.02, differs=most <= 1.1),
        ours=True,
        words="It is all where members are many against parameters, and little where they are few or batches are full.",
    )


def _quiet(rows: Sequence[Row]) -> Claim:
    exposures = {
        (task, size): select(rows, task, size, "none", None)[0]["exposure"]
        for task, sizes in places(rows).items()
        for size in sizes
    }
    largest = exposures[max(exposures, key=lambda place: place[1])]
    kept = [f"{TITLES[task]}, N = {size:,}" for (task, size), tpr in exposures.items() if tpr <= MIDDLE]
    return Claim(
        what="Exposure of a typical record with the best recipe without noise, at 1% false alarms (forecast)",
        published="no noise is needed at large N",
        measured=f"{100 * min(exposures.values()):.2g}% to {100 * max(exposures.values()):.3g}% found; at most 5% in "
        f"{len(kept)} of {len(exposures)} places ({'; '.join(kept) or 'none'})",
        verdict=judged(agrees=largest <= MIDDLE, differs=bool(kept)),
        words="" if kept else "The most accurate recipe takes many steps.",
        ours=True,
    )


def _any_record(rows: Sequence[Row]) -> Claim | None:
    parts, less = [], []
    for task, sizes in places(rows).items():
        for size in sizes:
            found = {arm: select(rows, task, size, arm, MIDDLE) for arm in ("any-fixed", "gdp-fixed", "any", "gdp")}
            if all(found.values()):
                told = ", ".join(
                    f"{title} {100 * np.mean([r['test_accuracy'] for r in found[arm]]):.1f}% (noise multiplier "
                    f"{found[arm][0]['noise_multiplier']:.2f})"
                    for arm, title in (
                        ("gdp-fixed", "GDP"),
                        ("any-fixed", "any record"),
                        ("gdp", "with Poisson batches GDP"),
                        ("any", "any record"),
                    )
                )
                noise = {arm: each[0]["noise_multiplier"] for arm, each in found.items()}
                less.append([1.0 - noise["any-fixed"] / noise["gdp-fixed"], 1.0 - noise["any"] / noise["gdp"]])
                parts.append(f"{TITLES[task]}, N = {size:,}, {percent(MIDDLE)}: with fixed or full batches {told}")
    if not parts:
        return None
    return Claim(
        what="A random record, whatever the records are like",
        published="theory: up to half the noise, because a random gradient is within C of the mean, not 2C",
        measured="; ".join(parts),
        verdict=judged(agrees=min(map(min, less)) > 0.02, differs=max(map(max, less)) > 0.02),
        ours=True,
        words="It helps where a record is replaced by another. Poisson batches, where a record is there or not, need "
        "half the noise for anybody, and leave it nothing to save.",
    )


def _poisson(rows: Sequence[Row]) -> Claim | None:
    mine = gains(rows, "gdp", "gdp-fixed", targets=[MIDDLE])
    if not mine:
        return None
    best = max(mine, key=lambda gain: gain.mean)
    better = sum(gain.mean > 0.0 and gain.p_value < 1.0 - _CONFIDENCE for gain in mine)
    return Claim(
        what="GDP with Poisson batches instead of batches of fixed size, both tuned",
        published="theory: half the noise, since a record is added or removed, not replaced",
        measured=f"up to {best.words}; median {float(np.median([gain.mean for gain in mine])):+.2f} points over "
        f"{len(mine)} settings",
        verdict=judged(agrees=2 * better > len(mine), differs=better > 0),
        ours=True,
        words="The guarantees differ: that nobody can tell whether a record was there, or which of two it was.",
    )


def _recipe(rows: Sequence[Row]) -> Claim | None:
    recipe = gains(rows, "gdp", "own-gdp", targets=[MIDDLE])
    if not recipe:
        return None
    notion = {(gain.task, gain.size): gain for gain in gains(rows, "gmip", "gdp", targets=[MIDDLE])}
    told = [f"{gain.words}, the notion {notion[gain.task, gain.size].mean:+.1f}" for gain in recipe]
    more = sum(gain.mean > notion[gain.task, gain.size].mean for gain in recipe)
    return Claim(
        what="A tuned recipe against the task's own, under GDP",
        published="worth more than the notion",
        measured="; ".join(told),
        verdict=judged(agrees=more == len(recipe), differs=more > 0),
        ours=True,
        words=f"In {more} of {len(recipe)} places a good recipe is worth more than the notion. Features and sampling "
        "are part of it: the tasks' own recipes take all features, and batches of fixed size, where a record is "
        "replaced.",
    )
