"""What every attack keeps to."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr
from torch import nn

from gmip.attacks.attack import Attack
from gmip.attacks.attack_table import NEEDS, kind, names
from gmip.attacks.shadow import ShadowAttack, Shadows
from gmip.errors import GmipWarning, InvalidArgument, TraceError, TraceMismatch
from gmip.stats import ScoreSet
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import next_token_loss
from gmip.trace import ModelRecord, Trace
from gmip.training import record
from gmip.vocabulary import Recipe

__all__ = ["AttackContract", "Scene", "make_task", "make_text_task", "record_run"]

WIDTH, CLASSES, MEMBERS, ROWS, TOKENS = 8, 3, 40, 900, 12


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 12), nn.Tanh(), nn.Linear(12, CLASSES))


def make_task(seed: int = 0, rows: int = ROWS, **changes: Any) -> Task:
    """Three classes that overlap, so that there is something to learn by heart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (rows + 50,), generator=generator)
    inputs = torch.randn(rows + 50, WIDTH, generator=generator)
    inputs[:, :CLASSES] += 1.2 * nn.functional.one_hot(labels, CLASSES)
    data = Examples(inputs, labels)
    recipe = Recipe(dataset_size=MEMBERS, batch_size=MEMBERS, num_steps=60, learning_rate=0.5, sampling="full")
    parts: dict[str, Any] = {
        "name": "overlap",
        "make_model": make_model,
        "pool": data[range(rows)],
        "test": data[range(rows, rows + 50)],
        "recipe": recipe,
    }
    return Task(**parts | changes)


def make_text_task() -> Task:
    """Sequences of tokens, and a model that predicts each from the one before."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, TOKENS, (ROWS + 50, WIDTH), generator=generator)
    return make_task(
        name="text",
        make_model=lambda: nn.Sequential(nn.Embedding(TOKENS, 6), nn.Linear(6, TOKENS)),
        pool=Examples(tokens[:ROWS], tokens[:ROWS]),
        test=Examples(tokens[ROWS:], tokens[ROWS:]),
        loss=next_token_loss,
    )


def record_run(
    task: Task,
    folder: Path,
    inside: ArrayLike,
    *,
    members: ArrayLike | None = None,
    non_members: ArrayLike | None = None,
    num_steps: int | None = None,
    every: int = 1,
    finish: bool = True,
) -> Trace:
    """Full-batch gradient descent on the rows `inside`, by the task's recipe, with any members written down."""
    recipe, rows = task.recipe, task.pool[inside]
    torch.manual_seed(5)
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate)
    sizes: dict[str, Any] = {"dataset_size": len(rows), "batch_size": len(rows), "sampling": "full", "every": every}
    recorder = record(model, optimizer, folder, **sizes, members=members, non_members=non_members, data=task)
    try:
        with recorder:
            for _ in range(recipe.num_steps if num_steps is None else num_steps):
                optimizer.zero_grad()
                task.loss(model(rows.inputs), rows.targets).mean().backward()
                optimizer.step()
            if not finish:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    return Trace.open(folder)


@dataclass(frozen=True, eq=False)
class Scene:
    """A task, a run of it that names its members, and a folder to keep shadow sets in."""

    folder: Path
    task: Task
    inside: NDArray[np.int64]
    outside: NDArray[np.int64]

    @classmethod
    def at(cls, folder: Path, task: Task | None = None) -> Scene:
        order = np.random.default_rng(3).permutation(ROWS)
        return cls(folder, task or make_task(), np.sort(order[:MEMBERS]), np.sort(order[MEMBERS : 2 * MEMBERS]))

    @cached_property
    def trace(self) -> Trace:
        return record_run(self.task, self.folder / "run", self.inside, members=self.inside, non_members=self.outside)

    @cached_property
    def everyone(self) -> NDArray[np.int64]:
        return np.sort(np.concatenate([self.inside, self.outside]))

    @cached_property
    def background(self) -> Examples:
        return self.task.pool[np.setdiff1d(np.arange(ROWS), self.everyone)]

    def shadows(self, **changes: Any) -> Shadows:
        settings: dict[str, Any] = {"count": 8, "workers": 1, "folder": self.folder / "shadows"}
        return Shadows(**settings | changes)


def _numpy_state() -> Any:
    state: Any = np.random.get_state()  # noqa: NPY002
    return state[1].copy()


def _digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


class AttackContract:
    """Inherit, and provide `make(shadows)`; a module has one fixture `scene`, so that suites share what is trained."""

    exact = True  # whether scores are the same to the last bit for any order of the candidates
    null_candidates = 400

    def make(self, shadows: Shadows) -> Attack:
        raise NotImplementedError

    def target(self, scene: Scene, trace: Trace) -> ModelRecord:
        """What of a run is attacked."""
        return trace

    def run(self, scene: Scene, trace: Trace | None = None, candidates: Any = None, **rest: Any) -> ScoreSet:
        target = self.target(scene, scene.trace if trace is None else trace)
        return self.make(scene.shadows()).run(scene.task, target, candidates, **rest)

    def same(self, ours: ScoreSet, theirs: ScoreSet) -> None:
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        if self.exact:
            np.testing.assert_array_equal(ours.scores, theirs.scores)
        else:
            np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-6, atol=1e-6 * np.ptp(theirs.scores))

    ordered: ClassVar[bool] = True  # whether a higher score always has a lower p-value

    # -- what it says of itself ---------------------------------------------------------------------------------------

    def test_declares_itself(self, scene: Scene) -> None:
        attack = self.make(scene.shadows())
        assert attack.name in names() and type(attack) is kind(attack.name)
        assert attack.title and attack.needs and attack.needs <= set(NEEDS)
        assert ("shadows" in attack.needs) == isinstance(attack, ShadowAttack)

    # -- scores -------------------------------------------------------------------------------------------------------

    def test_one_score_for_each_candidate(self, scene: Scene) -> None:
        found = self.run(scene)
        np.testing.assert_array_equal(found.ids, scene.everyone)
        assert found.attack == self.make(scene.shadows()).name
        assert found.scores.shape == scene.everyone.shape and np.isfinite(found.scores).all()
        assert len(np.unique(found.scores)) > len(found) // 2
        if found.p_values is not None:
            assert np.all((found.p_values >= 0.0) & (found.p_values <= 1.0))
            if self.ordered:
                assert np.all(np.diff(found.p_values[np.argsort(found.scores)]) <= 1e-12)  # they tell the same story
            else:
                assert spearmanr(found.scores, -found.p_values).statistic > 0.9  # nearly the same

    def test_repeats_itself_and_leaves_random_states_alone(self, scene: Scene) -> None:
        first = self.run(scene)  # what is imported on the way may draw numbers of its own, once
        torch_state, numpy_state = torch.get_rng_state(), _numpy_state()
        again = self.run(scene)
        np.testing.assert_array_equal(first.scores, again.scores)
        assert torch.equal(torch.get_rng_state(), torch_state)
        assert np.array_equal(_numpy_state(), numpy_state)

    def test_order_of_candidates_does_not_matter(self, scene: Scene) -> None:
        order = np.random.default_rng(0).permutation(scene.everyone)
        usual, mixed = self.run(scene), self.run(scene, candidates=order)
        np.testing.assert_array_equal(mixed.ids, order)
        back = np.argsort(mixed.ids)
        self.same(usual, ScoreSet(ids=mixed.ids[back], scores=mixed.scores[back], attack=usual.attack))

    def test_who_was_in_does_not_matter(self, scene: Scene, tmp_path: Path) -> None:
        """The same run, written down with members and non-members exchanged, and with neither."""
        truth = self.run(scene, candidates=scene.everyone, background=scene.background)
        for number, said in enumerate([{"members": scene.outside, "non_members": scene.inside}, {}]):
            trace = record_run(scene.task, tmp_path / str(number), scene.inside, **said)
            found = self.run(scene, trace, candidates=scene.everyone, background=scene.background)
            np.testing.assert_array_equal(found.scores, truth.scores)

    def test_nothing_is_changed(self, scene: Scene) -> None:
        files, pool = _digest(scene.trace.path), scene.task.pool.inputs.clone()
        self.run(scene)
        assert _digest(scene.trace.path) == files
        assert torch.equal(scene.task.pool.inputs, pool)

    def test_progress_ends_at_the_end(self, scene: Scene) -> None:
        calls: list[tuple[int, int]] = []
        self.run(scene, progress=lambda done, total: calls.append((done, total)))
        assert calls and calls[-1][0] == calls[-1][1] > 0
        assert all(a[0] <= b[0] for a, b in pairwise(calls))

    def test_candidates_who_were_never_seen(self, scene: Scene) -> None:
        """Nothing to find: two halves of strangers are told apart as chance does."""
        strangers = np.setdiff1d(np.arange(ROWS), scene.everyone)[: self.null_candidates]
        rest = np.setdiff1d(np.arange(ROWS), np.concatenate([scene.everyone, strangers]))
        with warnings.catch_warnings(action="ignore", category=GmipWarning):  # less background than self-play wants
            attack = self.make(scene.shadows(count=4 * len(strangers) // MEMBERS))
            found = attack.run(scene.task, self.target(scene, scene.trace), strangers, scene.task.pool[rest])
        first = np.random.default_rng(1).random(len(strangers)) < 0.5
        error = np.sqrt((1.0 / first.sum() + 1.0 / (~first).sum()) / 12.0)
        assert abs(auc(found.scores[first], found.scores[~first]) - 0.5) < 4.0 * error

    # -- what is refused ----------------------------------------------------------------------------------------------

    def test_data_of_another_task(self, scene: Scene) -> None:
        with pytest.raises(TraceMismatch, match="other data"):
            self.make(scene.shadows()).run(make_task(seed=1), scene.trace)

    def test_another_model(self, scene: Scene) -> None:
        wide = replace(scene.task, make_model=lambda: nn.Linear(WIDTH, CLASSES))
        with pytest.raises(TraceMismatch, match=r"model|parameter"):
            self.make(scene.shadows()).run(wide, self.target(scene, scene.trace))

    @pytest.mark.parametrize(
        ("candidates", "words"),
        [([], "non-empty"), ([0.5], "whole numbers"), ([ROWS], "rows 0 to"), ([-1], "rows 0 to"), ([3, 3], "twice")],
    )
    def test_bad_candidates(self, scene: Scene, candidates: Any, words: str) -> None:
        with pytest.raises(InvalidArgument, match=words):
            self.run(scene, candidates=candidates)

    def test_background_of_another_kind(self, scene: Scene) -> None:
        with pytest.raises(InvalidArgument, match="background must be"):
            self.run(scene, background=np.zeros((5, WIDTH)))

    def test_nobody_is_named(self, scene: Scene, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgument, match="neither members nor non-members"):
            self.run(scene, record_run(scene.task, tmp_path / "a", scene.inside))

    def test_what_is_lacking_is_said(self, scene: Scene, tmp_path: Path) -> None:
        """Everything that the attack says it needs and that can be missing."""
        needs = self.make(scene.shadows()).needs
        whole = {"members": scene.inside, "non_members": scene.outside}
        if needs & {"query", "weights", "recourse"}:
            trace = record_run(scene.task, tmp_path / "unfinished", scene.inside, **whole, finish=False)
            with pytest.raises(InvalidArgument, match="holds no trained model"):
                self.run(scene, trace)
        if "gradients" in needs:
            with pytest.raises(TraceError, match="has no steps"):
                record_run(scene.task, tmp_path / "no-step", scene.inside, **whole, num_steps=0)
            with pytest.raises(InvalidArgument, match="has no recorded step"):
                self.run(scene, Trace.open(tmp_path / "no-step"))
        if "population" in needs:
            ignored = warnings.catch_warnings(action="ignore", category=GmipWarning)  # that self-play lacks it too
            with ignored, pytest.raises(InvalidArgument, match="background"):
                self.run(scene, candidates=scene.everyone[:10], background=scene.task.pool[[]])
            trace = record_run(scene.task, tmp_path / "nobody", scene.inside)
            with pytest.raises(InvalidArgument, match=r"does not name its members.*pass background"):
                self.run(scene, trace, candidates=scene.everyone)
        else:
            trace = record_run(scene.task, tmp_path / "nobody", scene.inside)
            self.same(self.run(scene, trace, candidates=scene.everyone), self.run(scene))
        if "shadows" in needs:
            trace = record_run(scene.task, tmp_path / "short", scene.inside, **whole, num_steps=3)
            with pytest.raises(TraceMismatch, match="num_steps = 3, and the recipe of task"):
                self.run(scene, trace)


class ShadowAttackContract(AttackContract):
    """For attacks with shadow models; `pooled` is a fixture, the settings of shadow models that two workers trained."""

    @pytest.mark.slow
    def test_number_of_workers_does_not_matter(self, scene: Scene, pooled: Shadows) -> None:
        together = self.make(pooled).run(scene.task, scene.trace)
        np.testing.assert_array_equal(self.run(scene).scores, together.scores)

    def test_seed_of_shadows_matters(self, scene: Scene) -> None:
        other = self.make(scene.shadows(seed=1)).run(scene.task, scene.trace)
        assert not np.array_equal(self.run(scene).scores, other.scores)
