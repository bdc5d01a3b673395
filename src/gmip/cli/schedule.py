"""The run that the options describe: one `NoisySGD`, or one for each --phase; and the run as JSON, as understood."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from gmip._validate import did_you_mean
from gmip.cli import parse
from gmip.cli.errors import BadRequest, listed
from gmip.vocabulary import SAMPLINGS, NoisySGD

__all__ = ["as_understood", "build_runs", "slow_because"]

_EXAMPLES: Final = {"--dataset-size": "48000", "--batch-size": "400", "--steps": "1200", "--params": "650"}
Given = dict[str, tuple[str, str]]  # name of an option -> (what errors call it, the text)
# What a phase may set for itself. Its own value replaces the other one of a pair, too.
_NAMES: Final = (
    *("steps", "epochs", "batch-size", "params", "sampling", "rank"),
    *("clip", "noise-std", "noise-multiplier"),
)
_PAIRS: Final = {
    "steps": "epochs",
    "epochs": "steps",
    "noise-std": "noise-multiplier",
    "noise-multiplier": "noise-std",
}


def build_runs(
    *,
    dataset_size: str | None,
    batch_size: str | None,
    steps: str | None,
    epochs: str | None,
    params: str | None,
    sampling: str | None,
    drop_last: bool,
    rank: str | None,
    clip: str | None,
    noise_std: str | None,
    noise_multiplier: str | None,
    phase: Sequence[str] | None,
) -> list[NoisySGD]:
    """What will run, phase after phase."""
    if steps is not None and epochs is not None:
        raise BadRequest("--steps and --epochs set the same number", remedy="pass only one of them")
    if noise_std is not None and noise_multiplier is not None:
        raise BadRequest("--noise-std and --noise-multiplier set the same noise", remedy="pass only one of them")
    typed = {
        "dataset-size": dataset_size,
        "batch-size": batch_size,
        "steps": steps,
        "epochs": epochs,
        "params": params,
        "sampling": sampling,
        "rank": rank,
        "clip": clip,
        "noise-std": noise_std,
        "noise-multiplier": noise_multiplier,
    }
    common: Given = {name: (f"--{name}", text) for name, text in typed.items() if text is not None}
    if not phase:
        return [_run(common, drop_last)]
    return [_run(given, drop_last) for given in _phases(phase, common)]


def _phases(texts: Sequence[str], common: Given) -> list[Given]:
    phases = []
    for number, text in enumerate(texts, start=1):
        own: Given = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or name in own:
                raise BadRequest(
                    f"must be NAME=VALUE pairs with commas between them, each name once, not {text!r}",
                    argument="--phase",
                    remedy="pass one such as steps=300,noise-multiplier=1.5",
                )
            if name not in _NAMES:
                raise BadRequest(
                    f"cannot set {name!r}{did_you_mean(name, _NAMES)}",
                    argument="--phase",
                    remedy=f"set {listed(_NAMES, 'or')}",
                )
            if _PAIRS.get(name) in own:
                raise BadRequest(
                    f"sets {_PAIRS[name]} and {name}, which are the same thing",
                    argument="--phase",
                    remedy="set only one of them",
                )
            own[name] = (f"{name} of --phase {number}", value)
        phases.append({name: entry for name, entry in common.items() if _PAIRS.get(name) not in own} | own)
    return phases


def _run(given: Given, drop_last: bool) -> NoisySGD:
    missing = [
        f"--{name}"
        for name in ("dataset-size", "batch-size", "steps", "params")
        if name not in given and not (name == "steps" and "epochs" in given)
    ]
    if missing:
        example = " ".join(f"{name} {_EXAMPLES[name]}" for name in missing)
        be, pronoun = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise BadRequest(f"{listed(missing)} {be} missing", remedy=f"add {pronoun}, as in {example}")
    sampling = parse.one_of(*given["sampling"], SAMPLINGS) if "sampling" in given else "fixed"
    if drop_last and sampling != "shuffled":
        raise BadRequest("--drop-last applies to shuffled epochs", remedy="leave it out, or pass --sampling shuffled")
    run = NoisySGD(
        dataset_size=parse.count(*given["dataset-size"]),
        batch_size=parse.count(*given["batch-size"]),
        num_steps=parse.count(*given["steps"]) if "steps" in given else 1,
        num_params=parse.count(*given["params"]),
        clip_norm=parse.positive(*given["clip"]) if "clip" in given else None,
        noise_std=parse.non_negative(*given["noise-std"]) if "noise-std" in given else 0.0,
        sampling=sampling,
        rank=parse.count(*given["rank"]) if "rank" in given else None,
        drop_last=drop_last,
    )
    if "epochs" in given:
        run = run.with_epochs(parse.positive(*given["epochs"]))
    if "noise-multiplier" in given:
        run = run.with_noise_multiplier(parse.non_negative(*given["noise-multiplier"]))
    return run


def as_understood(runs: Sequence[NoisySGD]) -> list[dict[str, Any]]:
    """All that is known of each phase, as JSON."""
    return [
        dataclasses.asdict(run)
        | {
            "noise_multiplier": run.noise_multiplier,
            "sample_rate": run.sample_rate,
            "steps_per_epoch": run.steps_per_epoch,
            "epochs": run.epochs,
        }
        for run in runs
    ]


def slow_because(runs: Sequence[NoisySGD], record: Any) -> str:
    """Why an answer takes its time, to be said if it does."""
    what = [
        "shuffled epochs" if any(run.sampling == "shuffled" for run in runs) else "",
        "the worst spread of a random record" if isinstance(record, str) else "",
    ]
    named = " and ".join(one for one in what if one)
    return f"Still computing: {named} can take minutes" if named else "Still computing"
