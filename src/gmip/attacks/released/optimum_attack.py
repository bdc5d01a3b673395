"""Attacks on a model that was trained to an optimum: its weights tell the members' mean gradient."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, get_args

import numpy as np

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Attack, Need, Parties
from gmip.attacks.glir import Play, background_needed
from gmip.attacks.glir.scoring import Background
from gmip.attacks.memory import as_bytes
from gmip.attacks.released.listed_optimum import decode_optimum, decode_optimum_products, enough_background
from gmip.attacks.released.optimality import FAR, OptimumOutcome, optimum_scores
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
            listed = ", or the list does not contain its members" if found.decoded is not None else ""
            limit = FAR[found.decoded is not None]
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
        elif not found.explained:
            warnings.warn(
                "a random draw from the list does not explain the released weights (the members' sum of gradients "
                f"varies {found.excess:.3g} times as much): the list does not contain the members, or the model fits "
                "them so well that their gradients are unlike others'. So nobody counts as decided. Check the list, "
                "or pass `coverage` and background records, or use shadow models (lira).",
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
                "decoded": found.sure,
                "explained": found.explained,
                "bits": max(0.0, found.decoded.gain) if found.explained else 0.0,
                "misfit": found.decoded.misfit,
            }
            parts["p_values"] = np.exp(-np.maximum(scores, 0.0))
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
    background : "with-candidates" fits on background and candidates alike, as of GLiR: an attacker who holds a list
        that contains members, and judged as such by an audit. It needs self-play.
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
    background: Background = "alone"

    name: ClassVar[str] = "optimum"
    title: ClassVar[str] = "GLiR on released weights at an optimum"
    needs: ClassVar[frozenset[Need]] = frozenset({"weights", "loss", "population", "labels"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.play is not None and not isinstance(self.play, Play):
            raise InvalidArgument("must be a gmip.attacks.glir.Play or None", argument="play", value=self.play)
        check.one_of("background", self.background, get_args(Background))
        if self.holds_list and self.play is None:
            raise InvalidArgument(
                "needs self-play", argument="background", value=self.background, remedy="leave out `play` = None"
            )

    @property
    def holds_list(self) -> bool:
        """With candidates in the background."""
        return self.background == "with-candidates"

    def _found(self, task: Task, trace: Trace, who: Parties) -> OptimumOutcome:
        size, count = trace.header.dataset_size, len(who.background)
        if not count:
            raise InvalidArgument("has no records", argument="background", remedy="pass some that are not members")
        if self.play is not None and not self.holds_list and count < background_needed(size):
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
            with_candidates=self.holds_list,
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
    optimum is estimated. A p-value is exp(-score), at most 1. This attacker holds a list that contains the members: no
    promise for an attacker who knows nobody speaks about it. Away from an optimum, and where members drawn from the
    list do not explain the weights (strangers, a model that interpolates), scores are shrunk, with a GmipWarning. For c
    candidates memory is about four c x c matrices.
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
        model = released(task, trace, l2=self.l2, device=self.device, memory_limit=self.memory_limit)
        params = model.gradients.num_params
        how: dict[str, Any] = {
            "dataset_size": trace.header.dataset_size,
            "coverage": self.coverage,
            "most_sweeps": self.most_sweeps,
            "seed": self.seed,
        }
        if 2 * params > len(who.candidates) and not enough_background(len(who.background), params):
            found = decode_optimum_products(model.products(who.candidates), dims=params, **how)
        else:
            at = model.vectors(who)
            found = decode_optimum(at.candidates, penalty_gradient=at.penalty, background=at.background, **how)
        if found.at_optimum and found.explained and found.decoded is not None and found.decoded.gain < _NOTHING:
            warnings.warn(
                "the released weights do not tell the listed candidates apart: decoding finds less than "
                f"{_NOTHING:g} bits per candidate.",
                GmipWarning,
                stacklevel=4,
            )
        return found
