"""Attacks on a model that was trained to an optimum: its weights tell the members' mean gradient."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Attack, Need, Parties
from gmip.attacks.glir import Play, background_needed
from gmip.attacks.memory import as_bytes
from gmip.attacks.released.optimality import FAR, OptimumOutcome, decode_optimum, optimum_scores
from gmip.attacks.released.released_gradients import Penalty, check_penalty, released
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats import ScoreSet
from gmip.tasks import Task
from gmip.trace import Trace

__all__ = ["Optimum", "OptimumDecode"]

_NOTHING: Final = 0.01  # bits per candidate: less is not decoded


@dataclass(frozen=True, kw_only=True)
class _AtOptimum(Attack):
    l2: Penalty = None
    memory_limit: float | str | None = None
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        check_penalty(self.l2)
        if self.memory_limit is not None:
            as_bytes("memory_limit", self.memory_limit)
        check.seed(self.seed)

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress) -> ScoreSet:
        order = np.argsort(who.ids)
        found = self._found(task, trace, Parties(who.ids, who.candidates[order], who.background))
        if not found.at_optimum:
            listed = ", or the list does not contain its members" if "list" in self.needs else ""
            limit = FAR["list" in self.needs]
            warnings.warn(
                f"the released model is no optimum of its loss and penalty{listed}: the mean gradient of the records "
                f"at hand is {found.distance:.3g} times what chance explains, squared (up to {limit:g} is an optimum), "
                f"so attack {self.name!r} is unreliable here and its scores are shrunk. Check `l2`, or attack the "
                "gradients of training, or use shadow models (lira).",
                GmipWarning,
                stacklevel=3,
            )
        elif found.fitted:
            warnings.warn(
                "the released model fits its members so well that their gradients are much smaller than others' (the "
                f"mean gradient of the records at hand is {found.distance:.2g} of what chance gives it, squared), so "
                f"attack {self.name!r} is weak and its log-odds are too sure. Use shadow models (lira) beside it.",
                GmipWarning,
                stacklevel=3,
            )
        scores = np.empty(len(who.ids))
        scores[order] = found.log_odds
        parts: dict[str, Any] = {"facts": {"distance": found.distance, "at_optimum": found.at_optimum}}
        if found.glir is not None:
            if found.glir.p_values is not None:
                parts["p_values"] = np.empty(len(who.ids))
                parts["p_values"][order] = found.glir.p_values
            if found.glir.prediction is not None and found.at_optimum and not found.fitted:
                parts["prediction"] = found.glir.prediction.expected()
            parts["facts"] |= {"rank": found.glir.ranks[0], "cutoff": found.glir.cutoff, "ridge": found.glir.ridge}
            parts["facts"]["background"] = len(who.background)
        if found.decoded is not None:
            parts["facts"] |= {
                "residual": float(found.residual or 0.0),
                "coverage": found.decoded.coverage,
                "decoded": found.decoded.sure,
                "bits": max(0.0, found.decoded.gain),
                "misfit": found.decoded.misfit,
            }
        progress(len(scores), len(scores))
        return ScoreSet(ids=who.ids, scores=scores, attack=self.name, calibration=(1.0, 0.0), **parts)

    def _found(self, task: Task, trace: Trace, who: Parties) -> OptimumOutcome:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Optimum(_AtOptimum):
    """GLiR on released weights, for models trained to an optimum (docs/released-models.md). Nothing is trained.

    Where loss + (l2/2)|w|^2 is least, the members' mean gradient is -l2 w: GLiR takes that for a published mean. Of the
    trace only the header and the released model are used.

    Parameters
    ----------
    l2 : strength of the penalty (l2/2)|w|^2 on the MEAN loss: a number, or numbers by the name of a parameter (those
        not named are not penalised); None: the weight decay of the run's recipe, or 0. For scikit-learn's
        LogisticRegression it is 1/(C N), of the weights and not of the bias.
    play : self-play, as of GLiR; None: none.
    memory_limit : bytes or "3 GiB"; None: half of what is free.
    device : where gradients are computed.
    seed : of self-play; the same seed gives the same scores.

    Guarantees
    ----------
    No label of the run is used. With self-play p-values hold whatever the model, as GLiR's do. Scores are log-odds at
    even prior odds at an optimum, approximately; how far the model is from one is measured (`distance` in facts: the
    pool's mean gradient, squared, in units of what chance explains), and where that is above 2 scores are divided by it
    and a GmipWarning says so; another says where the model fits its members too well for the test.
    """

    play: Play | None = field(default_factory=Play)

    name: ClassVar[str] = "optimum"
    title: ClassVar[str] = "GLiR on released weights at an optimum"
    needs: ClassVar[frozenset[Need]] = frozenset({"weights", "loss", "population", "labels"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.play is not None and not isinstance(self.play, Play):
            raise InvalidArgument("must be a gmip.attacks.glir.Play or None", argument="play", value=self.play)

    def _found(self, task: Task, trace: Trace, who: Parties) -> OptimumOutcome:
        size, count = trace.header.dataset_size, len(who.background)
        if not count:
            raise InvalidArgument("has no records", argument="background", remedy="pass some that are not members")
        if self.play is not None and count < background_needed(size):
            warnings.warn(
                f"background has {count} examples and self-play with {size} members needs {background_needed(size)}, "
                "so the attack runs without self-play. Pass more background.",
                GmipWarning,
                stacklevel=4,
            )
        at = released(task, trace, l2=self.l2, device=self.device, memory_limit=self.memory_limit).vectors(who)
        return optimum_scores(
            at.candidates,
            at.background,
            penalty_gradient=at.penalty,
            dataset_size=size,
            play=self.play,
            extra_dims=at.extra_dims,
            seed=self.seed,
        )


@dataclass(frozen=True, kw_only=True)
class OptimumDecode(_AtOptimum):
    """Decoding of released weights, for models trained to an optimum (docs/released-models.md). Nothing is trained.

    Where loss + (l2/2)|w|^2 is least, the members' gradients add up to -N l2 w: decoding solves that for all candidates
    of a list at once. Of the trace only the header and the released model are used.

    Parameters
    ----------
    l2, memory_limit, device : as of `Optimum`.
    coverage : q, the share of the members that the candidates contain; None: estimated.
    most_sweeps : as of `Decode`.
    seed : of the measure of the distance from an optimum.

    Guarantees
    ----------
    As of `Decode`: log-odds at even prior odds, without a label of the run, approximate. How exactly training met its
    optimum is estimated. This attacker holds a list that contains the members: no promise for an attacker who knows
    nobody speaks about it. Away from an optimum scores are shrunk, with a GmipWarning.
    """

    coverage: float | None = None
    most_sweeps: int = 15

    name: ClassVar[str] = "optimum-decode"
    title: ClassVar[str] = "Decoding of released weights at an optimum"
    needs: ClassVar[frozenset[Need]] = frozenset({"weights", "loss", "labels", "list"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coverage is not None:
            check.probability("coverage", self.coverage, open_low=True)
        check.count("most_sweeps", self.most_sweeps)

    def _found(self, task: Task, trace: Trace, who: Parties) -> OptimumOutcome:
        at = released(task, trace, l2=self.l2, device=self.device, memory_limit=self.memory_limit).vectors(who)
        found = decode_optimum(
            at.candidates,
            penalty_gradient=at.penalty,
            dataset_size=trace.header.dataset_size,
            background=at.background,
            coverage=self.coverage,
            most_sweeps=self.most_sweeps,
            extra_dims=at.extra_dims,
            seed=self.seed,
        )
        if found.at_optimum and found.decoded is not None and found.decoded.gain < _NOTHING:
            warnings.warn(
                "the released weights do not tell the listed candidates apart: decoding finds less than "
                f"{_NOTHING:g} bits per candidate.",
                GmipWarning,
                stacklevel=4,
            )
        return found
