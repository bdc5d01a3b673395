"""Attacks of an audit on one run, each kept the moment it is done."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip._random import Stream
from gmip.attacks import registry
from gmip.attacks.base import Attack, parties
from gmip.attacks.shadow import Shadows, Signal, shadow_set
from gmip.errors import GmipWarning
from gmip.pipeline.config import AttackConfig, AuditConfig
from gmip.pipeline.scored import Scored, read_scored, scored_key, write_scored
from gmip.pipeline.targets import Target, Watch
from gmip.tasks.task import Task
from gmip.trace import Trace

__all__ = ["choose_candidates", "default_attacks", "make_attacks", "run_attacks"]


def make_attacks(config: AuditConfig, wanted: Sequence[AttackConfig]) -> list[Attack]:
    """The attacks asked for, with their options."""
    made = []
    for one in wanted:
        options: dict[str, Any] = dict(one.options)
        if "shadows" in registry.kind(one.name).needs:
            options = {"shadows": Shadows(**config.shadows.model_dump())} | options
        made.append(registry.make(one.name, **options))
    return made


def default_attacks(targets: Sequence[Target], task: Task) -> list[AttackConfig]:
    """GLiR and the loss; on noisy runs also GLiR that doubts noise and clipping; on recorded runs of gmip train the
    guessed seed, too."""
    names = ["glir", "loss"]
    if any(info.noise_std > 0.0 for target in targets for info in target.trace.infos):
        names += ["glir-no-noise", "glir-no-clip"]
    if all(t.recorded and t.trace.header.recipe.get("task") == task.name for t in targets):
        names.append("seed")
    return [AttackConfig(name=name) for name in names]


def choose_candidates(trace: Trace, most: int, seed: int) -> NDArray[np.int64]:
    """Ids in rising order: the members and non-members of the run, at most so many of each, drawn by the seed."""
    rng = Stream.CANDIDATES.rng(seed)
    chosen = []
    for part in (trace.members, trace.non_members):
        assert part is not None
        chosen.append(part if len(part) <= most else rng.choice(part, most, replace=False))
    return np.sort(np.concatenate(chosen).astype(np.int64))


def run_attacks(
    task: Task, target: Target, attacks: Sequence[Attack], config: AuditConfig, folder: Path, seed: int, watch: Watch
) -> dict[str, list[Scored]]:
    """Scores by attack, one entry for each repetition; what `folder` already holds is not computed again."""
    found: dict[str, list[Scored]] = {attack.name: [] for attack in attacks}
    for repeat, trace in enumerate(target.traces):
        ids = choose_candidates(trace, config.candidates, seed)
        paths = {
            attack.name: folder / f"{attack.name}-{scored_key(trace, ids, attack, version('gmip'))}.safetensors"
            for attack in attacks
        }
        known = {name: read_scored(path) for name, path in paths.items()}
        which = target.name if len(target.traces) == 1 else f"{target.name}, {repeat + 1} of {len(target.traces)}"
        training = _train_shadows(task, trace, ids, [a for a in attacks if known[a.name] is None], which, watch)
        for attack in attacks:
            scored = known[attack.name]
            if scored is None:
                scored = _run(task, trace, attack, ids, watch(f"{attack.name} on {which}"))
                scored = dataclasses.replace(scored, seconds=scored.seconds + training.get(attack.name, 0.0))
                write_scored(paths[attack.name], scored)
            found[attack.name].append(scored)
    return found


def _train_shadows(
    task: Task, trace: Trace, ids: NDArray[np.int64], attacks: Sequence[Attack], which: str, watch: Watch
) -> dict[str, float]:
    """One training of the shadow models for all attacks that use the same ones; attack -> seconds that it took."""
    groups: dict[Shadows, list[Any]] = {}
    for attack in attacks:
        if "shadows" in attack.needs:
            groups.setdefault(attack.shadows, []).append(attack)  # type: ignore[attr-defined]
    seconds: dict[str, float] = {}
    for settings, users in groups.items():
        start = time.perf_counter()
        background = parties(task, trace, ids, None).background
        unique: dict[str, Signal] = {signal.key: signal for user in users for signal in user.signals()}
        shadow_set(
            task, trace, ids, background, list(unique.values()), settings, progress=watch(f"shadow models for {which}")
        )
        seconds |= {user.name: time.perf_counter() - start for user in users}
    return seconds


def _run(task: Task, trace: Trace, attack: Attack, ids: NDArray[np.int64], stage: Any) -> Scored:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GmipWarning)
        scores = attack.run(task, trace, ids, progress=stage)
    said = []
    for warning in caught:
        if issubclass(warning.category, GmipWarning):
            said.append(" ".join(str(warning.message).split()))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return Scored.of(scores, time.perf_counter() - start, said)
