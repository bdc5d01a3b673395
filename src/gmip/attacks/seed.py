"""The seed attack: a seed that can be guessed gives away who was in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import AttackedRecords, RunTraits, StepAttack
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.stats.scores import Fact
from gmip.tasks import Task
from gmip.trace import Trace
from gmip.training.loop import initial_model

_FAVOURITES: Final = (
    12345,
    31337,
    54321,
    65537,
    123456,
    271828,
    314159,
    1234567,
    12345678,
    123456789,
    2**31 - 1,
    2**32 - 1,
)
_SHOWN_EVERY: Final = 50


@dataclass(frozen=True, kw_only=True)
class Seed(StepAttack):
    """Tries the seeds that people choose, and compares the initial weights that they give with the published ones.

    The seed of a run of `gmip train` determines its members, batches, weights and noise. The parameters before the
    first step are published; who finds the seed that gives them knows the members, whatever the noise. A seed that gmip
    draws itself has 63 bits and is not found. Members of the split of the seed score 1 and all others 0; all 0 if none
    was found. Where members have a seed of their own (`split_seed`, as of `gmip tune`), that one is asked for instead:
    no weights tell it, but among so few splits the true one stands out, because its members' losses are lower.

    Parameters
    ----------
    tries : seeds 0, 1, ..., tries - 1 are tried, and a dozen favourites.
    """

    tries: int = 2500

    name: ClassVar[str] = "seed"

    def __post_init__(self) -> None:
        check.count("tries", self.tries)

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Runs where the audit did not choose the seeds itself."""
        return all(run.recorded and run.seeded for run in runs)

    def _score_steps(self, task: Task, trace: Trace, who: AttackedRecords, progress: Progress) -> ScoreSet:
        if trace.header.provenance.task != task.name:
            raise InvalidArgument(
                f"{trace.path} is not a run of gmip train on task {task.name!r}, so its members do not follow from a "
                "seed",
                remedy="leave out attack 'seed'",
            )
        if len(trace) == 0 or trace.recorded[0] != 0:
            raise InvalidArgument(
                f"{trace.path} does not hold the weights before the first step, which attack 'seed' compares",
                remedy="leave it out",
            )
        members_seed = trace.header.provenance.split_seed
        if members_seed is None:
            found = self._search(task, trace, progress)
        else:
            found = members_seed if members_seed in self._seeds() else None
        inside = np.zeros(len(who.ids))
        if found is not None:
            inside[np.isin(who.ids, task.split(trace.header.dataset_size, found).members)] = 1.0
        facts: dict[str, Fact] = {"tries": len(self._seeds())}
        return ScoreSet(ids=who.ids, scores=inside, attack=self.name, guessed_seed=found, facts=facts)

    def _seeds(self) -> list[int]:
        return [*range(self.tries), *(seed for seed in _FAVOURITES if seed >= self.tries)]

    def _search(self, task: Task, trace: Trace, progress: Progress) -> int | None:
        """The seed whose initial weights are the published ones, bit for bit."""
        fix = trace.header.provenance.options.fix
        names = [spec.name for spec in trace.header.parameters]
        published = trace.named(trace[0].parameters)
        seeds = self._seeds()
        for done, seed in enumerate(seeds):
            weights = dict(initial_model(task, seed, fix=fix).named_parameters())
            if all(np.array_equal(weights[name].detach().cpu().numpy(), published[name]) for name in names):
                return seed
            if done % _SHOWN_EVERY == 0 or done + 1 == len(seeds):
                progress(done + 1, len(seeds))
        return None
