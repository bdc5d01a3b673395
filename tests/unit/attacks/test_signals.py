"""Losses and confidences: known answers, digits that must not be lost, what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import mpmath
import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import Tensor, nn

from gmip.attacks.arrays import log_probabilities
from gmip.attacks.signals import AUGMENTATIONS, Confidence, confidences, losses
from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task
from gmip.tasks.task import cross_entropy
from gmip.vocabulary import Recipe


def task_of(loss: Any, targets: Tensor, inputs: Tensor | None = None) -> Task:
    """A task whose model is the identity: inputs are what it puts out."""
    data = Examples(torch.zeros(len(targets), 2) if inputs is None else inputs, targets)
    recipe = Recipe(dataset_size=1, batch_size=1, num_steps=1, learning_rate=1.0)
    return Task(name="given", make_model=nn.Identity, pool=data, test=data, recipe=recipe, loss=loss)


def phi_of(outputs: Tensor, targets: Tensor, loss: Any = cross_entropy) -> np.ndarray:
    return confidences(task_of(loss, targets), nn.Identity(), Examples(outputs, targets))


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Takes no outputs in double precision, as its weights are in single."""
    return nn.functional.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 1.5, 2.0]), reduction="none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_confidence_of_logits(dtype):
    """Against mpmath, also where p is 1 or 0 to machine precision."""
    outputs = torch.tensor([[1.0, -2.0, 0.5], [300.0, 0.0, -1.0], [-400.0, 3.0, 2.0], [40.0, 0.0, 0.0]], dtype=dtype)
    targets = torch.tensor([0, 0, 0, 1])
    found = phi_of(outputs, targets)
    assert found.dtype == np.float64
    with mpmath.workdps(400):
        for row, y, phi in zip(outputs.tolist(), targets.tolist(), found, strict=True):
            total = mpmath.fsum(mpmath.e**z for z in row)
            p = mpmath.e ** mpmath.mpf(row[y]) / total
            assert phi == pytest.approx(float(mpmath.log(p / (1 - p))), rel=1e-12)


def test_log_probabilities():
    phi = np.array([[-np.inf, -800.0, -1.0], [0.0, 50.0, np.inf]])
    expected = [[-np.inf, -800.0, -np.log1p(np.e)], [-np.log(2.0), -np.exp(-50.0), 0.0]]
    np.testing.assert_allclose(log_probabilities(phi), expected, rtol=1e-14)


def test_two_ways_agree():
    """-log(expm1(loss)) and the margin of the logits are one function; the user's own cross-entropy is known."""
    generator = torch.Generator().manual_seed(0)
    outputs, targets = 3.0 * torch.randn(50, 3, generator=generator), torch.arange(50) % 3
    margins = phi_of(outputs, targets)
    loss = cross_entropy(outputs.double(), targets).numpy()
    np.testing.assert_allclose(margins, -np.log(np.expm1(loss)), rtol=1e-9)
    np.testing.assert_array_equal(phi_of(outputs, targets, nn.CrossEntropyLoss(reduction="none")), margins)
    extreme = torch.tensor([[90.0, 0.0, 0.0]])
    assert phi_of(extreme, torch.tensor([0]), nn.CrossEntropyLoss(reduction="none")) == pytest.approx(
        90.0 - np.log(2.0), rel=1e-12
    )


@pytest.mark.parametrize("loss", [smoothed, weighted])
def test_losses_that_only_look_like_cross_entropy(loss):
    outputs, targets = torch.tensor([[1.0, 0.0, 0.3], [0.5, 2.0, 0.0]], dtype=torch.float32), torch.tensor([1, 2])
    expected = -np.log(np.expm1(loss(outputs, targets).double().numpy()))
    np.testing.assert_allclose(phi_of(outputs, targets, loss), expected, rtol=1e-6)


def test_one_logit_and_other_targets():
    logits = torch.tensor([-3.0, 0.2, 12.0, 20.0])

    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")

    np.testing.assert_allclose(phi_of(logits, torch.ones(4), binary), logits.numpy(), rtol=1e-6)
    np.testing.assert_allclose(phi_of(-logits, torch.zeros(4), binary), logits.numpy(), rtol=1e-6)

    def squares(outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs - targets) ** 2).sum(1)

    outputs = torch.tensor([[0.0, 0.0], [1.0, 1.0], [np.inf, 0.0], [40.0, 0.0]])
    found = phi_of(outputs, torch.zeros(4, 2), squares)
    np.testing.assert_allclose(found, [np.inf, -np.log(np.expm1(2.0)), -np.inf, -1600.0])


def test_losses_are_the_tasks_own():
    outputs, targets = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])
    found = losses(task_of(cross_entropy, targets), nn.Identity(), Examples(outputs, targets))
    np.testing.assert_allclose(found, [np.log1p(np.exp(-1.0)), np.log1p(np.exp(3.0))], rtol=1e-6)
    assert found.dtype == np.float64


def test_losses_of_a_model_that_is_sure_keep_their_order():
    """Single precision has 0 for all of them, which is a tie of everybody."""
    margins = torch.arange(20.0, 120.0, 2.5)
    outputs, targets = torch.stack([margins, torch.zeros_like(margins)], 1), torch.zeros(len(margins), dtype=torch.long)
    assert (cross_entropy(outputs, targets) == 0.0).float().mean() > 0.9
    for loss in (cross_entropy, lambda out, y: nn.functional.cross_entropy(out, y, reduction="none")):
        found = losses(task_of(loss, targets), nn.Identity(), Examples(outputs, targets))
        np.testing.assert_allclose(found, np.exp(-margins.double().numpy()), rtol=1e-8)
        assert (np.diff(found) < 0.0).all()


@pytest.mark.parametrize("compute", [losses, confidences])
def test_what_cannot_be_used(compute):
    targets = torch.tensor([0, 1])
    data = Examples(torch.tensor([[1.0, np.nan], [0.0, 1.0]]), targets)
    with pytest.raises(InvalidArgument, match="gives NaN for 1 records, so training diverged"):
        compute(task_of(cross_entropy, targets), nn.Identity(), data)
    mean = task_of(nn.functional.cross_entropy, targets)
    mean = dataclasses.replace(mean, loss=lambda outputs, targets: nn.functional.mse_loss(outputs, targets))
    with pytest.raises(InvalidArgument, match=r"loss of task 'given' has shape \(\) for 2 records"):
        compute(mean, nn.Identity(), Examples(torch.zeros(2, 2), torch.zeros(2, 2)))


def test_negative_losses_have_no_confidence():
    density = task_of(lambda outputs, targets: outputs[:, 0], torch.zeros(2))
    data = Examples(torch.tensor([[1.0], [-0.25]]), torch.zeros(2))
    with pytest.raises(InvalidArgument, match=r"loss of task 'given' is -0\.25.*use the attack 'loss'"):
        confidences(density, nn.Identity(), data)
    np.testing.assert_array_equal(losses(density, nn.Identity(), data), [1.0, -0.25])


def test_streamed_in_eval_mode_without_a_trace_left():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
    model[0].eval()  # frozen by whoever trains it
    data = Examples(torch.randn(2500, 4), torch.arange(2500) % 3)
    task = task_of(cross_entropy, data.targets)
    for compute in (losses, confidences):
        found = compute(task, model, data)
        assert [module.training for module in model.modules()] == [True, False, True, True]
        parts = [compute(task, model, data[range(first, min(first + 700, 2500))]) for first in range(0, 2500, 700)]
        np.testing.assert_allclose(found, np.concatenate(parts), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found, compute(task, model.eval(), data))
        model.train()[0].eval()
    assert all(p.grad is None for p in model.parameters())
    assert confidences(task, model, data[[]]).shape == (0,)


def test_model_mode_is_restored_after_an_error():
    model = nn.Sequential(nn.Linear(2, 2)).train()
    with pytest.raises(InvalidArgument):
        losses(task_of(lambda o, t: o, torch.zeros(1)), model, Examples(torch.zeros(1, 2), torch.zeros(1)))
    assert model.training


# -- augmentations ----------------------------------------------------------------------------------------------------


def test_named_augmentations():
    image = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    expected = {
        "flip": [[2, 1], [4, 3], [6, 5]],
        "left": [[2, 2], [4, 4], [6, 6]],
        "right": [[1, 1], [3, 3], [5, 5]],
        "up": [[3, 4], [5, 6], [5, 6]],
        "down": [[1, 2], [1, 2], [3, 4]],
    }
    assert set(AUGMENTATIONS) == set(expected)
    for name, pixels in expected.items():
        assert AUGMENTATIONS[name](image).tolist() == [pixels]
        assert AUGMENTATIONS[name](image[:, None].expand(1, 3, 3, 2)).tolist() == [[pixels] * 3]


class Brighter:
    def __init__(self, by: float) -> None:
        self.by = by

    @property
    def key(self) -> str:
        return f"brighter-{self.by}"

    def __call__(self, inputs: Tensor) -> Tensor:
        return inputs + self.by


def test_a_column_for_each_augmentation():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    data = Examples(torch.randn(5, 3, 4), torch.arange(5) % 3)
    task = task_of(cross_entropy, data.targets)
    found = Confidence(("flip", Brighter(0.5)))(task, model, data)
    assert found.shape == (5, 3)
    np.testing.assert_allclose(found[:, 0], confidences(task, model, data))
    np.testing.assert_allclose(found[:, 1], confidences(task, model, Examples(data.inputs.flip(2), data.targets)))
    np.testing.assert_allclose(found[:, 2], confidences(task, model, Examples(data.inputs + 0.5, data.targets)))
    assert Confidence()(task, model, data).shape == (5, 1)


def test_key_changes_with_the_augmentations():
    signals = [(), ("flip",), ("flip", "left"), ("left", "flip"), (Brighter(0.5),), (Brighter(0.25),)]
    keys = [Confidence(augmentations).key for augmentations in signals]
    assert len(set(keys)) == len(keys)
    assert Confidence(("flip",)).key == Confidence(("flip",)).key
    assert Confidence().population


def test_bad_augmentations():
    wrong: list[tuple[Any, str]] = [
        ("flip", "must be a tuple"),
        (("spin",), "augmentations has 'spin': pass some of 'flip'"),
        ((lambda inputs: inputs,), "not a callable with a key"),
        ((3,), "not a callable with a key"),
    ]
    for augmentations, words in wrong:
        with pytest.raises(InvalidArgument, match=words):
            Confidence(augmentations)
    data = Examples(torch.zeros(2, 3), torch.tensor([0, 1]))
    task = task_of(cross_entropy, data.targets)
    with pytest.raises(InvalidArgument, match=r"are for images and inputs have shape \(2, 3\)"):
        Confidence(("up",))(task, nn.Identity(), data)

    class Shrink(Brighter):
        def __call__(self, inputs: Tensor) -> Tensor:
            return inputs[:, :1]

    with pytest.raises(InvalidArgument, match="keep the shape"):
        Confidence((Shrink(0.0),))(task, nn.Identity(), data)
