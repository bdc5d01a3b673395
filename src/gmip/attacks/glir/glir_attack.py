"""GLiR on a recorded run: gradients of candidates and background at every recorded step, then the array-level core."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, get_args

import numpy as np

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Attack, Need, Parties, RunTraits, check_step_numbers, chosen_steps
from gmip.attacks.glir.published_step import View
from gmip.attacks.glir.scoring import GlirOutcome, glir_scores
from gmip.attacks.glir.selfplay import Play, background_needed
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.memory import as_bytes
from gmip.attacks.signals import run_model
from gmip.attacks.step_vectors import collect
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats import ScoreSet
from gmip.stats.covariance import Shrinkage
from gmip.tasks import Task
from gmip.trace import Step, Trace

__all__ = ["DoubtClipping", "DoubtNoise", "GLiR"]

Method = Literal["auto", "paper", "likelihood-ratio", "mixture", "joint"]
Doubt = Literal["noise", "clipping"]
_METHODS: Final = ("auto", "paper", "likelihood-ratio", "mixture", "joint")


@dataclass(frozen=True, kw_only=True)
class GLiR(Attack):
    """The gradient likelihood-ratio attack (docs/theory/glir.md): nothing is trained, one recorded run is enough.

    Parameters
    ----------
    method : "auto" takes what the trace calls for: full batches: "joint", one likelihood ratio for all steps
        ("likelihood-ratio" for a single one); mini-batches: "mixture". "paper" is the paper's Algorithm 1, errata
        applied, for comparison.
    play : self-play on the background: chooses cutoff and ridge, predicts the ROC, makes p-values and posteriors valid;
        None: no self-play.
    cutoff, ridge, shrinkage : of the covariance, see `gmip.stats.GaussianModel.fit`; cutoff and ridge None: by
        self-play.
    steps : numbers of the recorded steps to use; None: all.
    projection : project gradients to this many dimensions, for models too large otherwise; costs power.
    doubt : what the trace says and the attack does not believe: "noise" tests as if there were none, "clipping" as if
        gradients were averaged as they are. On a sound run both are weaker than the plain attack; on a run whose noise
        or clipping is broken they find what it does not look for.
    memory_limit : bytes or "3 GiB"; None: half of what is free.
    device : where gradients are computed.
    seed : of self-play and projection; the same seed gives the same scores.

    Guarantees
    ----------
    Scores need no label of the run. With self-play a p-value p has P(p <= a | not a member) <= a, whatever the
    distribution of gradients, for candidates drawn as the background was; without it p-values rest on the Gaussian
    model of the mean, a CLT approximation.
    """

    method: Method = "auto"
    play: Play | None = field(default_factory=Play)
    cutoff: float | None = None
    ridge: float | None = None
    shrinkage: Shrinkage | None = None
    steps: Sequence[int] | None = None
    projection: int | None = None
    doubt: Doubt | None = None
    memory_limit: float | str | None = None
    device: str = "cpu"
    seed: int = 0

    name: ClassVar[str] = "glir"
    title: ClassVar[str] = "Gradient LRT (GLiR, Leemann et al. 2023)"
    needs: ClassVar[frozenset[Need]] = frozenset({"gradients", "loss", "population", "labels"})
    analytical: ClassVar[bool] = True

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Always."""
        return True

    def __post_init__(self) -> None:
        check.one_of("method", self.method, _METHODS)
        if self.play is not None and not isinstance(self.play, Play):
            raise InvalidArgument("must be a gmip.attacks.glir.Play or None", argument="play", value=self.play)
        for name in ("cutoff", "ridge"):
            if getattr(self, name) is not None:
                check.non_negative(name, getattr(self, name))
        if self.shrinkage is not None:
            check.one_of("shrinkage", self.shrinkage, get_args(Shrinkage))
        check_step_numbers(self.steps)
        if self.projection is not None:
            check.count("projection", self.projection)
        if self.doubt is not None:
            check.one_of("doubt", self.doubt, get_args(Doubt))
        if self.memory_limit is not None:
            as_bytes("memory_limit", self.memory_limit)
        check.seed(self.seed)

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress) -> ScoreSet:
        steps = chosen_steps(trace, self.steps)
        method = self._method(trace, len(steps))
        play = self._play(trace.header.dataset_size, len(who.background))
        outcome = glir_scores(
            self._views(task, trace, who, steps, method, progress),
            method=method,
            play=play,
            cutoff=self.cutoff,
            ridge=self.ridge,
            shrinkage=self.shrinkage,
            seed=self.seed,
        )
        return self._scored(outcome, who)

    def _scored(self, outcome: GlirOutcome, who: Parties) -> ScoreSet:
        """A doubting attack measures and plays another run than the recorded one, so it makes no statement on that."""
        if len(who.ids) > 1 and np.ptp(outcome.scores) == 0.0:
            warnings.warn(
                f"Attack {self.name!r} gives all {len(who.ids)} candidates the same score, so it says nothing about "
                "this run: what was published is far from what the attack assumes. Use `method` = 'likelihood-ratio'.",
                GmipWarning,
                stacklevel=3,
            )
        believed = self.doubt is None
        told = believed and outcome.susceptibility is not None
        return ScoreSet(
            ids=who.ids,
            scores=outcome.scores,
            attack=self.name,
            p_values=outcome.p_values,
            susceptibility=outcome.susceptibility,
            susceptibility_of=("run" if outcome.method == "joint" else "step") if told else None,
            calibration=outcome.calibration,
            prediction=outcome.prediction.expected() if believed and outcome.prediction is not None else None,
            facts={
                "method": outcome.method,
                "rank": outcome.ranks[0],
                "cutoff": outcome.cutoff,
                "ridge": outcome.ridge,
                "background": len(who.background),
            },
        )

    def _method(self, trace: Trace, num_steps: int) -> str:
        if self.method != "auto":
            return self.method
        if trace.header.sampling != "full" and trace.header.batch_size < trace.header.dataset_size:
            return "mixture"
        return "joint" if num_steps > 1 else "likelihood-ratio"

    def _play(self, dataset_size: int, count: int) -> Play | None:
        if self.play is None or count >= background_needed(dataset_size):
            return self.play
        warnings.warn(
            f"background has {count} examples and self-play with {dataset_size} members needs "
            f"{background_needed(dataset_size)}, so the attack runs without self-play: estimates are not tuned and "
            "p-values rest on the Gaussian model. Pass more background.",
            GmipWarning,
            stacklevel=3,
        )
        return None

    def _views(
        self, task: Task, trace: Trace, who: Parties, steps: list[Step], method: str, progress: Progress
    ) -> Iterator[View]:
        model = run_model(task, trace, device=self.device)
        header = dataclasses.replace(trace.header, clip_norm=None) if self.doubt == "clipping" else trace.header
        gradients = PerExampleGradients.for_trace(model, task.loss, header, memory_limit=self.memory_limit)
        vectors = len(who.background) + len(who.candidates) + 1
        if method == "joint" and gradients.num_params > vectors and self.projection is None:
            yield self._view(gradients, trace, who, steps)  # inner products of all steps add up
            progress(len(steps), len(steps))
            return
        for done, step in enumerate(steps):
            view = self._view(gradients, trace, who, [step])
            yield view.reduced() if method == "joint" else view
            progress(done + 1, len(steps))

    def _view(self, gradients: PerExampleGradients, trace: Trace, who: Parties, steps: list[Step]) -> View:
        """One step, or several full-batch steps as one."""
        header, info = trace.header, steps[0].info
        poisson = header.sampling == "poisson"
        n = header.batch_size if poisson else info.batch_size
        if any((step.info.batch_size, step.info.noise_std) != (info.batch_size, info.noise_std) for step in steps):
            raise InvalidArgument(
                f"{trace.path} has steps of different batch sizes or noise, which cannot be joined",
                remedy="choose `steps` that agree, or `method` = 'likelihood-ratio'",
            )
        found = collect(gradients, steps, who.background, who.candidates, projection=self.projection, seed=self.seed)
        scale = info.divisor / n  # where a loop divided by another number than the batch's own
        return View(
            mean=scale * found.mean,
            candidates=found.candidates,
            background=found.background,
            batch_size=n,
            noise_std=0.0 if self.doubt == "noise" else scale * info.noise_std,
            sample_rate=n / header.dataset_size,
            sampling="poisson" if poisson else "full" if n == header.dataset_size else "fixed",
            extra_dims=found.extra_dims,
            length_counts=self.doubt != "noise" or info.noise_std == 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class DoubtNoise(GLiR):
    """GLiR that assumes that no noise was added (`doubt = "noise"`)."""

    doubt: Doubt | None = "noise"

    name: ClassVar[str] = "glir-no-noise"
    title: ClassVar[str] = "GLiR, assuming that no noise was added"

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Where noise is recorded."""
        return any(run.noisy for run in runs)


@dataclass(frozen=True, kw_only=True)
class DoubtClipping(GLiR):
    """GLiR that assumes that gradients were not clipped (`doubt = "clipping"`)."""

    doubt: Doubt | None = "clipping"

    name: ClassVar[str] = "glir-no-clip"
    title: ClassVar[str] = "GLiR, assuming that gradients were not clipped"

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Where noise relies on the clipping."""
        return any(run.noisy for run in runs)
