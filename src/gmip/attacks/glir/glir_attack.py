"""GLiR on a recorded run: gradients of candidates and background at every recorded step, then the array-level core."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, cast, get_args

import numpy as np

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Attack, Need, Parties, RunTraits, check_step_numbers, chosen_steps
from gmip.attacks.glir.played_run import PlayedRun
from gmip.attacks.glir.published_step import GramView, StepView, View, stack
from gmip.attacks.glir.scoring import Background, GlirOutcome, grid_of, scores_by_play, scores_without_play
from gmip.attacks.glir.selfplay import Play, background_needed
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.memory import as_bytes
from gmip.attacks.signals import run_model
from gmip.attacks.step_vectors import collect, inner_products, route_for
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
    background : "alone" estimates from the background alone. "with-candidates" adds the candidates, unlabelled: an
        attacker who holds a list that contains members, and judged as such by an audit. It needs self-play.
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
    distribution of gradients, for candidates drawn as the background was: exactly with candidates in the background,
    up to one record in as many as there are without (docs/theory/glir.md, "The whole background"). Without self-play
    p-values rest on the Gaussian model of the mean, a CLT approximation.
    """

    method: Method = "auto"
    play: Play | None = field(default_factory=Play)
    cutoff: float | None = None
    ridge: float | None = None
    shrinkage: Shrinkage | None = None
    background: Background = "alone"
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
        check.one_of("background", self.background, get_args(Background))
        if self.background == "with-candidates" and self.play is None:
            raise InvalidArgument(
                "needs self-play", argument="background", value=self.background, remedy="leave out `play` = None"
            )
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
        play = self._play(trace.header.dataset_size, who)
        grid = grid_of(play, self.cutoff, self.ridge)
        views = self._views(task, trace, who, steps, method, progress, compressed=play is None)
        if play is None:
            found = scores_without_play([cast(View, make()) for make in views], method, grid, self.shrinkage, self.seed)
        else:
            run = PlayedRun(
                background=len(who.background),
                candidates=len(who.candidates),
                dataset_size=trace.header.dataset_size,
                method=method,
                play=play,
                grid=grid,
                shrinkage=self.shrinkage,
                seed=self.seed,
                listed=self.background == "with-candidates",
            )
            found = scores_by_play(views, run)
        return self._scored(found, who)

    @property
    def holds_list(self) -> bool:
        """With candidates in the background."""
        return self.background == "with-candidates"

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
                "method": outcome.method + (", candidates in the background" if self.holds_list else ""),
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

    def _play(self, dataset_size: int, who: Parties) -> Play | None:
        listed = len(who.candidates) if self.background == "with-candidates" else 0
        needed = background_needed(dataset_size, listed)
        if self.play is None or listed or len(who.background) >= needed:
            return self.play
        warnings.warn(
            f"background has {len(who.background)} examples and self-play with {dataset_size} members needs "
            f"{needed}, so the attack runs without self-play: estimates are not tuned and "
            "p-values rest on the Gaussian model. Pass more background.",
            GmipWarning,
            stacklevel=3,
        )
        return None

    def _views(
        self,
        task: Task,
        trace: Trace,
        who: Parties,
        steps: list[Step],
        method: str,
        progress: Progress,
        *,
        compressed: bool,
    ) -> list[Callable[[], StepView]]:
        """How to get each view; the steps of a full-batch run are one."""
        model = run_model(task, trace, device=self.device)
        header = dataclasses.replace(trace.header, clip_norm=None) if self.doubt == "clipping" else trace.header
        gradients = PerExampleGradients.for_trace(model, task.loss, header, memory_limit=self.memory_limit)
        sizes = len(who.background), len(who.candidates)
        joint = method == "joint"
        route = route_for(gradients, *sizes, len(steps) if joint else 1, projection=self.projection)
        epochs = _epochs(trace)

        def made(some: list[Step], done: int) -> StepView:
            how = self._how(trace, some, epochs)
            scale = some[0].info.divisor / how["batch_size"]  # where a loop divided by another number than the batch's
            if route == "gram" and not compressed:
                count = lambda finished, _: progress(done + finished, len(steps))  # noqa: E731
                products = inner_products(gradients, some, who.background, who.candidates, after=count)
                products[-1] *= scale
                products[:, -1] *= scale
                dimension = len(some) * gradients.num_params
                return GramView(products=products, background_size=sizes[0], dimension=dimension, **how)
            parts = []
            for together in [some] if route == "gram" else [[step] for step in some]:
                found = collect(
                    gradients,
                    together,
                    who.background,
                    who.candidates,
                    projection=self.projection,
                    seed=self.seed,
                    route=route,
                )
                part = View(
                    mean=scale * found.mean,
                    candidates=found.candidates,
                    background=found.background,
                    **{**how, "extra_dims": found.extra_dims},
                )
                parts.append(part.reduced() if len(some) > 1 and len(together) == 1 else part)
                progress(done + len(parts), len(steps))
            return stack(parts) if joint else parts[0]

        if joint:
            return [lambda: made(steps, 0)]
        return [lambda done=done, step=step: made([step], done) for done, step in enumerate(steps)]  # type: ignore[misc]

    def _how(self, trace: Trace, steps: list[Step], epochs: int | None) -> dict[str, Any]:
        """What `StepView` asks about one step, or several full-batch steps as one."""
        header, info = trace.header, steps[0].info
        poisson = header.sampling == "poisson"
        n = header.batch_size if poisson else info.batch_size
        if any((step.info.batch_size, step.info.noise_std) != (info.batch_size, info.noise_std) for step in steps):
            raise InvalidArgument(
                f"{trace.path} has steps of different batch sizes or noise, which cannot be joined",
                remedy="choose `steps` that agree, or `method` = 'likelihood-ratio'",
            )
        how: dict[str, Any] = {
            "batch_size": n,
            "noise_std": 0.0 if self.doubt == "noise" else info.divisor / n * info.noise_std,
            "sample_rate": n / header.dataset_size,
            "sampling": "poisson" if poisson else "full" if n == header.dataset_size else "fixed",
            "length_counts": self.doubt != "noise" or info.noise_std == 0.0,
        }
        if epochs is not None and how["sampling"] == "fixed":
            epoch, place = divmod(info.index, epochs)
            how |= {"sampling": "shuffled", "epoch": epoch, "drawn": place * header.batch_size}
        return how


def _epochs(trace: Trace) -> int | None:
    """Batches in an epoch of a shuffled run; None where its batches are not those of shuffled epochs."""
    n, size = trace.header.batch_size, trace.header.dataset_size
    rest = size % n
    sizes = {info.batch_size for info in trace.infos}
    if trace.header.sampling != "shuffled" or not sizes <= ({n, rest} if rest else {n}):
        return None
    dropped = rest > 0 and rest not in sizes and len(trace.infos) > size // n
    return size // n + (rest > 0 and not dropped)


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
