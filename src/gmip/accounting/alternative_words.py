"""The ways to a privacy target in words, and as commands that can be copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gmip._numbers import count, number, percent, rate, setting, typed
from gmip.accounting.alternatives import Alternative, Change, Closed, Ways
from gmip.vocabulary import NoisySGD, PrivacyTarget

__all__ = ["NAMES", "calculator_command", "closed_sentence", "reached", "run_options", "setting_words"]

NAMES: Final[dict[Change, str]] = {
    "noise": "More noise",
    "noise-alone": "Noise, by differential privacy",
    "batch": "Larger batches",
    "steps": "Fewer steps",
    "clip": "Smaller clipping norm",
    "parameters": "Fewer parameters",
    "data": "More data",
}


def setting_words(way: Alternative, before: Sequence[NoisySGD]) -> str:
    """What to set, and what it is now, as a clause."""
    new, old = way.runs, tuple(before)
    if way.change in ("noise", "noise-alone"):
        return _noise(new, old)
    if way.change == "batch":
        return _batch(new, old)
    if way.change == "steps":
        fewer = f"{count(_steps(new))} steps instead of {count(_steps(old))}"
        return fewer if len(old) == 1 else f"{fewer}, in every phase in proportion"
    if way.change == "clip":
        if len(old) > 1:
            return f"clip at {setting(_ratio(new, old))} times the norm, with the same noise_std"
        return f"clip at {setting(_clip(new[0]))} instead of {setting(_clip(old[0]))}, with the same noise_std"
    if way.change == "parameters":
        most, now = (max(run.num_params for run in runs) for runs in (new, old))
        return f"at most {count(most)} trainable instead of {count(now)} (freeze layers)"
    return f"{count(new[0].dataset_size)} records instead of {count(old[0].dataset_size)}, for as many steps"


def _noise(new: Sequence[NoisySGD], old: Sequence[NoisySGD]) -> str:
    if len(new) > 1:
        if any(run.noise_std for run in old):
            factor = max(a.noise_std / b.noise_std for a, b in zip(new, old, strict=True) if b.noise_std > 0.0)
            return f"the noise of all phases times {number(factor, 'up', 5)}"
        return f"noise multiplier {number(max(run.noise_multiplier or 0.0 for run in new), 'up', 5)} in all phases"
    run = new[0]
    return (
        f"noise_std = {setting(run.noise_std)} on the mean gradient, clipped at {setting(_clip(run))} (noise "
        f"multiplier {number(run.noise_multiplier or 0.0, 'up', 5)}); {setting(old[0].noise_std)} now"
    )


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


def reached(way: Alternative, target: PrivacyTarget) -> str:
    """What then holds, in the words that its kind allows."""
    kind = "proved: at most" if way.curve.kind == "bound" else "forecast: about"
    if target.rate is not None:
        return f"{kind} {percent(way.value, 'up')} of the members at {rate(target.rate.fpr)} false alarms"
    return f"{kind} {target.measure} {number(way.value, 'up')}"


def closed_sentence(closed: Sequence[Closed]) -> str:
    """The ways that lead nowhere; empty if all lead to the target."""
    if not closed:
        return ""
    return (
        "These alone are not enough: " + "; ".join(f"{NAMES[one.change].lower()} ({one.why})" for one in closed) + "."
    )


# -- commands ---------------------------------------------------------------------------------------------------------


def calculator_command(way: Alternative, ways: Ways) -> str | None:
    """The command that shows it: `gmip calibrate` for noise, else `gmip account`; None where the command line cannot
    say it."""
    accounting = _accounting(ways)
    if accounting is None:
        return None
    if way.change in ("noise", "noise-alone"):
        quiet = [run.replace(noise_std=0.0) for run in ways.runs] if len(ways.runs) == 1 else ways.runs
        sizes, notion = run_options(quiet), " --notion gdp" if way.notion == "gdp" else ""
        if sizes is None:
            return None
        whom = "" if way.notion == "gdp" else accounting
        return f"gmip calibrate {sizes}{whom}{notion} {_target(ways.target)}"
    sizes = run_options(way.runs)
    if sizes is None or way.notion == "gdp":
        return None
    shown = "" if ways.target.rate is None else f" --fpr {typed(ways.target.rate.fpr)}"
    return f"gmip account {sizes}{accounting}{shown}"


def run_options(runs: Sequence[NoisySGD]) -> str | None:
    """A run or schedule as options of `gmip account`; None where it has none."""
    if any(run.drop_last or run.rank is not None for run in runs):
        return None
    parts = [_options(run) for run in runs]
    size = f"--dataset-size {runs[0].dataset_size}"
    if len(runs) == 1:
        return f"{size} " + " ".join(f"--{name} {value}" for name, value in parts[0].items())
    if len({run.dataset_size for run in runs}) > 1:
        return None
    phases = (f"--phase {','.join(f'{name}={value}' for name, value in part.items())}" for part in parts)
    return f"{size} {' '.join(phases)}"


def _options(run: NoisySGD) -> dict[str, str]:
    known = {
        "batch-size": str(run.batch_size),
        "steps": str(run.num_steps),
        "params": str(run.num_params),
        "sampling": run.sampling,
        "clip": None if run.clip_norm is None else typed(run.clip_norm),
        "noise-std": None if run.noise_std == 0.0 else typed(run.noise_std),
    }
    return {name: value for name, value in known.items() if value is not None}


def _target(target: PrivacyTarget) -> str:
    if target.rate is not None:
        return f"--target-tpr {target.rate}"
    delta = "" if target.delta is None else f" --delta {typed(target.delta)}"
    return f"--target-{target.measure} {typed(target.value)}{delta}"


def _accounting(ways: Ways) -> str | None:
    whom = ways.target.susceptibility
    if isinstance(whom, tuple) or ways.bound != "tight" or ways.composition != "exact":
        return None
    said = ""
    if isinstance(whom, (str, float)):
        said += f" --susceptibility {whom if isinstance(whom, str) else typed(whom)}"
    if ways.target.attacker_knows:
        said += f" --attacker-knows {typed(ways.target.attacker_knows)}"
    return said
