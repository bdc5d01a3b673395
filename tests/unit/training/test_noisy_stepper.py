"""Per-example gradients that Opacus gets wrong are refused before anything is clipped by them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

import torch
from torch import nn

from gmip.errors import UnsupportedModel
from gmip.tasks import cross_entropy
from gmip.trace import Trace
from gmip.training import NoisyStepper, noise_generator, record
from gmip.training.steppers import GRAD_SAMPLE_MODES

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # torch, of any model under Opacus


class Reused(nn.Module):
    """A weight that is used outside its layer, where hooks do not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.tanh(nn.functional.linear(torch.tanh(self.inner(x)), self.inner.weight)))


def padded(mode: str) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode=mode), nn.Flatten(), nn.Dropout(), nn.Linear(32, 3))


def step(model: nn.Module, inputs: torch.Tensor, mode: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = NoisyStepper(
        model,
        optimizer,
        cross_entropy,
        clip_norm=1.0,
        noise_std=0.0,
        generator=noise_generator(0),
        grad_sample_mode=mode,
    )
    stepper.step(inputs, torch.arange(len(inputs)) % 3, divisor=len(inputs))


@pytest.mark.parametrize("mode", GRAD_SAMPLE_MODES)
def test_weight_used_outside_its_layer(mode):
    torch.manual_seed(0)
    if mode == "ew":  # torch's expanded weights follow the weight wherever it goes
        step(Reused(), torch.randn(8, 6), mode)
        return
    with pytest.raises(UnsupportedModel, match=r"gradient of parameter inner\.weight for one example is off by \d+%"):
        step(Reused(), torch.randn(8, 6), mode)


@pytest.mark.parametrize("mode", GRAD_SAMPLE_MODES)
@pytest.mark.parametrize("padding", ["zeros", "reflect"])
def test_padding_mode(mode, padding):
    torch.manual_seed(0)
    images = torch.randn(6, 1, 4, 4)
    if padding == "zeros" or mode in ("functorch", "ew"):
        step(padded(padding), images, mode)
        return
    with pytest.raises(UnsupportedModel, match=r"ignores padding_mode = 'reflect' of layer 0 \(Conv2d\)"):
        step(padded(padding), images, mode)


def test_verification_leaves_no_trace():
    """Dropout draws the same masks with and without it, and nothing is left in the gradients."""
    results = []
    for verified in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        stepper = NoisyStepper(
            model, optimizer, cross_entropy, clip_norm=1.0, noise_std=0.1, generator=noise_generator(0)
        )
        stepper._verified = verified
        inputs, targets = torch.randn(8, 6), torch.arange(8) % 3
        for _ in range(3):
            stepper.step(inputs, targets, divisor=8)
        results.append([p.detach().clone() for p in model.parameters()])
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("mode", GRAD_SAMPLE_MODES)
def test_recorder_does_not_count_the_example(tmp_path, mode):
    model = nn.Linear(6, 3)
    stepper = NoisyStepper(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        cross_entropy,
        clip_norm=1.0,
        noise_std=0.0,
        generator=noise_generator(0),
        grad_sample_mode=mode,
    )
    with record(stepper.model, stepper.optimizer, tmp_path / "run", dataset_size=10, batch_size=5, sampling="fixed"):
        for _ in range(2):
            stepper.step(torch.randn(5, 6), torch.arange(5) % 3, divisor=5)
    assert [info.batch_size for info in Trace.open(tmp_path / "run").infos] == [5, 5]


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (nn.Linear(6, 3), "ghost"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Sequential(nn.Dropout(), nn.Tanh()), nn.Linear(4, 3)),
            "ghost",
        ),
        (nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)), "hooks"),
        (Reused(), "hooks"),
        (padded("zeros"), "hooks"),
        (nn.Sequential(*[nn.Linear(6, 6)] * 2), "hooks"),  # one weight, used twice
    ],
)
def test_auto_takes_ghost_for_stacks_of_linear_layers(model, mode):
    stepper = NoisyStepper(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        cross_entropy,
        clip_norm=1.0,
        noise_std=0.0,
        generator=noise_generator(0),
    )
    assert stepper._mode == mode
    stepper.release()
