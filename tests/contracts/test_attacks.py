"""The attack contract, applied to every attack."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import numpy as np
import torch
from torch import nn

from gmip.attacks import (
    CFD,
    CFDLRT,
    RMIA,
    Attack,
    Decode,
    GLiR,
    Influence,
    LiRA,
    Loss,
    MinK,
    Optimum,
    OptimumDecode,
    Reference,
    Rehearsal,
    RehearsalSteps,
    Shadows,
    Window,
)
from gmip.attacks.attack_table import names
from gmip.attacks.glir import Play
from gmip.attacks.publications import CheckpointedModel, Moment, Way
from gmip.attacks.shadow import shadow_set
from gmip.trace import ReleasedModel
from tests.contracts.attacks import AttackContract, Scene, ShadowAttackContract, make_task, make_text_task


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Scene.at(tmp_path_factory.mktemp("scene"))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def pooled(scene):
    settings = scene.shadows(workers=2, folder=scene.folder / "pooled")
    signals = [*LiRA().signals(), *CFDLRT().signals()]
    shadow_set(scene.task, scene.trace, scene.everyone, scene.background, signals, settings)
    return settings


class TestGLiR(AttackContract):
    exact = False

    def make(self, shadows: Shadows) -> Attack:
        return GLiR(steps=(0, 1), play=Play(games=4, tuning_games=2, grid=((1e-12, 0.0), (1e-12, 1e-2))))


class TestDecode(AttackContract):
    exact = False
    null_candidates = 200

    def make(self, shadows: Shadows) -> Attack:
        return Decode(steps=range(3))


class TestOptimum(AttackContract):
    """The scene's network interpolates, which is said; what it takes to be right is in tests of its own."""

    pytestmark = pytest.mark.filterwarnings("ignore:the released model")
    exact = False

    def make(self, shadows: Shadows) -> Attack:
        return Optimum(play=Play(games=4, tuning_games=2, grid=((1e-12, 0.0), (1e-12, 1e-2))))


class TestOptimumDecode(AttackContract):
    pytestmark = pytest.mark.filterwarnings("ignore:the released", "ignore:a random draw from the list")
    exact = False
    null_candidates = 200

    def make(self, shadows: Shadows) -> Attack:
        return OptimumDecode()


class TestInfluence(AttackContract):
    exact = False

    def make(self, shadows: Shadows) -> Attack:
        return Influence(hessian_records=200)


class TestRehearsal(AttackContract):
    """Its checkpoints are the weights of some steps of the run, and a list needs a model with more parameters."""

    pytestmark = pytest.mark.filterwarnings("ignore:what was published does not fit")
    exact = False
    null_candidates = 200

    @pytest.fixture(scope="class")
    @classmethod
    def scene(cls, tmp_path_factory):
        wide = make_task(make_model=lambda: nn.Sequential(nn.Linear(8, 60), nn.Tanh(), nn.Linear(60, 3)))
        return Scene.at(tmp_path_factory.mktemp("wide"), wide)

    def make(self, shadows: Shadows) -> Attack:
        return Rehearsal(rehearsals=8, decoys=60)

    def target(self, scene, trace):
        if (final := trace.final_state()) is None:
            return trace
        state = {name: torch.as_tensor(value).numpy() for name, value in final.items()}
        who = {"members": trace.members, "non_members": trace.non_members}
        moments = [Moment(np.array(trace[i].parameters, dtype=np.float64)) for i in (0, 1)]
        way = Way(scene.task.recipe, (scene.task.recipe.learning_rate,))
        return CheckpointedModel(ReleasedModel(trace.path, trace.header, **who, state=state), moments, [way])


class TestRehearsalSteps(TestRehearsal):
    def make(self, shadows: Shadows) -> Attack:
        return RehearsalSteps(rehearsals=8, decoys=60)

    def target(self, scene, trace):
        return trace


class TestLoss(AttackContract):
    def make(self, shadows: Shadows) -> Attack:
        return Loss()


class TestReference(AttackContract):
    def make(self, shadows: Shadows) -> Attack:
        return Reference()


class TestMinK(AttackContract):
    """It is about tokens, and so has a scene of its own."""

    @pytest.fixture(scope="class")
    @classmethod
    def scene(cls, tmp_path_factory):
        return Scene.at(tmp_path_factory.mktemp("text"), make_text_task())

    def make(self, shadows: Shadows) -> Attack:
        return MinK()


class TestWindow(TestMinK):
    def make(self, shadows: Shadows) -> Attack:
        return Window()


class TestLiRA(ShadowAttackContract):
    def make(self, shadows: Shadows) -> Attack:
        return LiRA(shadows=shadows)


class TestOfflineLiRA(ShadowAttackContract):
    def make(self, shadows: Shadows) -> Attack:
        return LiRA(shadows=shadows, online=False)


class TestRMIA(ShadowAttackContract):
    ordered = False  # its p-value leaves out the models that were trained on the candidate: no background has such

    def make(self, shadows: Shadows) -> Attack:
        return RMIA(shadows=shadows)


class TestOfflineRMIA(ShadowAttackContract):
    def make(self, shadows: Shadows) -> Attack:
        return RMIA(shadows=shadows, online=False)


class TestCFD(AttackContract):
    def make(self, shadows: Shadows) -> Attack:
        return CFD()


class TestCFDLRT(ShadowAttackContract):
    null_candidates = 200

    def make(self, shadows: Shadows) -> Attack:
        return CFDLRT(shadows=shadows)


def test_every_attack_is_here():
    suites = [suite for suite in globals().values() if isinstance(suite, type) and issubclass(suite, AttackContract)]
    made = {suite().make(Shadows()).name for suite in suites if suite.__name__.startswith("Test")}
    assert made == set(names()) - {"seed"}  # knows runs of `gmip train` only, and its scores are 0 or 1: tested apart
