"""Steppers against gradients of single examples, taken one by one by autograd. Laws of the noise: tests/statistical."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.training import NoisyStepper, PlainStepper, Stepper, noise_generator
from gmip.training.steppers import GRAD_SAMPLE_MODES

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook is firing:UserWarning",  # torch, of any model whose inputs need no gradient, in Opacus
    "ignore:In CPU autocast, but the target dtype:UserWarning",  # Opacus' functorch mode, of any integer input
)
all_modes = pytest.mark.parametrize("mode", GRAD_SAMPLE_MODES)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class MeanOverTime(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def convolutional() -> Any:
    return nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3))


def sequential() -> Any:
    return nn.Sequential(
        nn.Embedding(6, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh(), MeanOverTime(), nn.Linear(4, 3)
    )


def data(kind: Any = perceptron, size: int = 8, seed: int = 1) -> tuple[Any, Tensor, Tensor]:
    """A model and a batch for it."""
    torch.manual_seed(seed)
    model = kind()
    inputs = {perceptron: (size, 5), convolutional: (size, 2, 8, 8), sequential: (size, 5)}[kind]
    x = torch.randint(0, 6, inputs) if kind is sequential else torch.randn(inputs)
    return model, x, torch.randint(0, 3, (size,))


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def per_example_gradients(model: nn.Module, inputs: Tensor, targets: Tensor, loss: Any = cross_entropy) -> Tensor:
    """One by one in float64, shape (n, d)."""
    model = copy.deepcopy(model).double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for x, y in zip(inputs, targets, strict=True):
        rows.append(flat(torch.autograd.grad(loss(model(x[None]), y[None]).sum(), parameters)))
    return torch.stack(rows)


def mean_of_clipped(gradients: Tensor, clip_norm: float, divisor: int) -> Tensor:
    """sum_i g_i min(1, C/|g_i|) / n."""
    total = torch.zeros(gradients.shape[1], dtype=torch.float64)
    for g in gradients:
        norm = float(g.norm())
        total += g * (1.0 if norm <= clip_norm else clip_norm / norm)
    return total / divisor


def noisy(model: nn.Module, loss: Any = cross_entropy, *, lr: float = 0.0, **options: Any) -> NoisyStepper:
    options = {"clip_norm": 1.0, "noise_std": 0.0, "generator": noise_generator(0), **options}
    parameters = [p for p in model.parameters() if p.requires_grad]
    return NoisyStepper(model, torch.optim.SGD(parameters, lr=lr), loss, **options)


def handed(stepper: Stepper, inputs: Tensor, targets: Tensor, divisor: int) -> Tensor:
    """The gradient that the torch optimizer is handed in one step, in float64."""
    inner = getattr(stepper.optimizer, "original_optimizer", stepper.optimizer)
    seen: list[Tensor] = []
    parameters = [p for group in inner.param_groups for p in group["params"]]
    hook = inner.register_step_pre_hook(lambda *_: seen.append(flat(p.grad for p in parameters).double()))
    stepper.step(inputs, targets, divisor=divisor)
    hook.remove()
    assert len(seen) == 1  # one step, whatever the parts
    return seen[0]


def assert_same_vector(got: Tensor, want: Tensor, tolerance: float = 2.0e-6) -> None:
    """Up to the rounding of float32 (6e-8) over some dozen operations, relative to the norm."""
    assert float((got - want).norm()) <= tolerance * float(want.norm())


# Clipping


@all_modes
@pytest.mark.parametrize("part", [None, 3])
@pytest.mark.parametrize("kind", [perceptron, convolutional, sequential])
def test_mean_of_clipped_gradients(kind, part, mode):
    model, x, y = data(kind)
    gradients = per_example_gradients(model, x, y)
    clip_norm = float(gradients.norm(dim=1).median())  # half of them are clipped
    want = mean_of_clipped(gradients, clip_norm, 8)
    assert float((want - gradients.mean(0)).norm()) > 0.05 * float(want.norm())
    stepper = noisy(model, clip_norm=clip_norm, grad_sample_mode=mode, max_physical_batch_size=part)
    assert_same_vector(handed(stepper, x, y, 8), want)
    assert_same_vector(handed(stepper, x[:5], y[:5], 5), mean_of_clipped(gradients[:5], clip_norm, 5))  # nothing stays


@all_modes
@pytest.mark.parametrize("clip_norm", [3.0e-8, 5.0e-7])
def test_gradients_of_tiny_norm(clip_norm, mode):
    """Norms of order 1e-7, which are clipped at 3e-8 and must not be at 5e-7."""
    model, x, y = data()

    def tiny(outputs: Tensor, targets: Tensor) -> Tensor:
        return 1.0e-7 * cross_entropy(outputs, targets)

    gradients = per_example_gradients(model, x, y, tiny)
    assert gradients.norm(dim=1).min() > 3.0e-8 and gradients.norm(dim=1).max() < 5.0e-7
    want = mean_of_clipped(gradients, clip_norm, 8)
    assert_same_vector(handed(noisy(model, tiny, clip_norm=clip_norm, grad_sample_mode=mode), x, y, 8), want)


def test_gradients_of_tiny_norm_in_stock_opacus():
    """Its C/(norm + 1e-6) makes less than a half of them: the reason for a clipping of our own."""
    model, x, y = data()
    want = mean_of_clipped(1.0e-7 * per_example_gradients(model, x, y), 5.0e-7, 8)
    wrapped = GradSampleModule(model, loss_reduction="sum")
    inner = torch.optim.SGD(wrapped.parameters(), lr=0.0)
    stock = DPOptimizer(inner, noise_multiplier=0.0, max_grad_norm=5.0e-7, expected_batch_size=8)
    (1.0e-7 * cross_entropy(wrapped(x), y)).sum().backward()
    stock.step()
    assert flat(p.grad for p in wrapped.parameters()).norm() < 0.5 * want.norm()


@all_modes
def test_gradients_of_zero(mode):
    """Some examples without a gradient, then all of them: they count in the mean, and nothing is NaN."""
    model, x, y = data()
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])

    def only_class_two(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets) * (targets == 2)

    gradients = per_example_gradients(model, x, y, only_class_two)
    assert (gradients.norm(dim=1) == 0.0).sum() == 6
    stepper = noisy(model, only_class_two, clip_norm=0.1, grad_sample_mode=mode)
    assert_same_vector(handed(stepper, x, y, 8), mean_of_clipped(gradients, 0.1, 8))
    got = handed(stepper, x, torch.zeros_like(y), 8)
    assert torch.equal(got, torch.zeros_like(got))


@all_modes
@pytest.mark.parametrize("clip_norm", [1.0e6, 1.0e300])  # the second is infinity in float32
def test_no_clipping_is_the_plain_step(clip_norm, mode):
    model, x, y = data()
    plain_model = copy.deepcopy(model)
    plain = PlainStepper(plain_model, torch.optim.SGD(plain_model.parameters(), lr=0.5), cross_entropy)
    stepper = noisy(model, lr=0.5, clip_norm=clip_norm, grad_sample_mode=mode)
    for _ in range(3):
        plain.step(x, y, divisor=8)
        stepper.step(x, y, divisor=8)
    moved = flat(stepper.release().parameters()) - flat(data()[0].parameters())
    assert_same_vector(moved, flat(plain_model.parameters()) - flat(data()[0].parameters()))


@all_modes
def test_no_gradient_moves_the_sum_by_more_than_the_clip_norm(mode):
    """What the privacy claim rests on: leave one example out, the sum moves by at most C."""
    model, x, y = data(size=6)
    stepper = noisy(model, clip_norm=0.05, grad_sample_mode=mode)
    whole = handed(stepper, x, y, 1)
    for left_out in range(6):
        rest = [i for i in range(6) if i != left_out]
        moved = float((whole - handed(stepper, x[rest], y[rest], 1)).norm())
        assert moved == pytest.approx(0.05, rel=1e-5)  # all of them are clipped


@all_modes
@pytest.mark.parametrize("size", [3, 11])
def test_divisor_is_what_it_is_told(size, mode):
    """Poisson batches are divided by the expected size, whatever their own."""
    model, x, y = data(size=size)
    gradients = per_example_gradients(model, x, y)
    stepper = noisy(model, clip_norm=0.1, grad_sample_mode=mode, max_physical_batch_size=4)
    assert_same_vector(handed(stepper, x, y, 8), mean_of_clipped(gradients, 0.1, 8))
    plain = PlainStepper(model, torch.optim.SGD(model.parameters(), lr=0.0), cross_entropy)
    stepper.release()
    assert_same_vector(handed(plain, x, y, 8), gradients.sum(0) / 8)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])  # torch's expanded weights know no such parameter
def test_parameter_of_no_dimension(mode):
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = nn.Linear(5, 3), nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * self.linear(x)

    torch.manual_seed(0)
    model, (_, x, y) = Scaled(), data()
    want = mean_of_clipped(per_example_gradients(model, x, y), 1.0, 8)
    stepper = noisy(model, clip_norm=1.0, grad_sample_mode=mode)
    assert_same_vector(handed(stepper, x, y, 8), want)
    assert handed(stepper, x[:0], y[:0], 8).shape == (19,)


@all_modes
def test_frozen_parameters_and_double_precision(mode):
    model, x, y = data()
    model[0].requires_grad_(False)
    model, x = model.double(), x.double()
    frozen = copy.deepcopy(model[0].state_dict())
    want = mean_of_clipped(per_example_gradients(model, x, y), 0.5, 8)
    stepper = noisy(model, lr=1.0, clip_norm=0.5, grad_sample_mode=mode)
    assert_same_vector(handed(stepper, x, y, 8), want, tolerance=1e-13)
    assert all(torch.equal(value, frozen[name]) for name, value in model[0].state_dict().items())


def test_padding_row_has_no_gradient():
    """Opacus gives it one, but with functorch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(6, 4, padding_idx=0), MeanOverTime(), nn.Linear(4, 3))
    x, y = torch.randint(0, 6, (8, 5)), torch.randint(0, 3, (8,))
    want = mean_of_clipped(per_example_gradients(model, x, y), 0.5, 8)
    assert_same_vector(handed(noisy(model, clip_norm=0.5, grad_sample_mode="functorch"), x, y, 8), want)
    for mode in ("hooks", "ew", "ghost"):
        with pytest.raises(UnsupportedModel, match=rf"ignores padding_idx of layer 0.*'{mode}': use 'functorch'"):
            noisy(nn.Sequential(nn.Embedding(6, 4, padding_idx=0)), grad_sample_mode=mode)


# Empty batches


@all_modes
def test_empty_batch_without_noise_is_a_step_on_zero(mode):
    """The optimizer does take it: momentum goes on."""
    model, x, y = data()
    twin = copy.deepcopy(model)
    plain = PlainStepper(twin, torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9), cross_entropy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    stepper = NoisyStepper(
        model,
        optimizer,
        cross_entropy,
        clip_norm=1e6,
        noise_std=0.0,
        generator=noise_generator(0),
        grad_sample_mode=mode,
    )
    for size in (8, 0, 0, 8):
        assert (stepper.step(x[:size], y[:size], divisor=8) is None) == (size == 0)
        assert (plain.step(x[:size], y[:size], divisor=8) is None) == (size == 0)
    assert_same_vector(flat(stepper.release().parameters()), flat(twin.parameters()))
    start = flat(data()[0].parameters())
    by_hand = SGDByHand(start, lr=0.1, momentum=0.9)
    zero = torch.zeros_like(start, dtype=torch.float64)
    for size in (8, 0, 0, 8):
        current, _, _ = data()
        nn.utils.vector_to_parameters(by_hand.w.float(), current.parameters())
        by_hand.step(per_example_gradients(current, x, y).mean(0) if size else zero)
    assert_same_vector(flat(twin.parameters()).double(), by_hand.w)


class SGDByHand:
    def __init__(self, start: Tensor, *, lr: float, momentum: float) -> None:
        self.w, self.lr, self.momentum = start.double(), lr, momentum
        self.velocity = torch.zeros_like(self.w)

    def step(self, gradient: Tensor) -> None:
        self.velocity = self.momentum * self.velocity + gradient
        self.w = self.w - self.lr * self.velocity


# Any torch optimizer

OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_plain_step_is_the_torch_loop_bit_for_bit(name):
    model, x, y = data()
    twin = copy.deepcopy(model)
    stepper = PlainStepper(model, OPTIMIZERS[name](model.parameters()), cross_entropy)
    optimizer = OPTIMIZERS[name](twin.parameters())
    for start in (0, 2, 4, 1, 3):
        batch, labels = x[start : start + 4], y[start : start + 4]
        stepper.step(batch, labels, divisor=4)
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(batch), labels).backward()
        optimizer.step()
    assert stepper.release() is model
    assert torch.equal(flat(model.parameters()), flat(twin.parameters()))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_noisy_step_is_the_torch_optimizer_on_another_gradient(name):
    """Clipped and noisy: the same gradients handed to a bare optimizer lead to the same place, bit for bit."""
    model, x, y = data()
    twin = copy.deepcopy(model)
    optimizer, bare = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](twin.parameters())
    gradients: list[list[Tensor]] = []
    optimizer.register_step_pre_hook(lambda *_: gradients.append([p.grad.clone() for p in model.parameters()]))
    options = {"clip_norm": 0.2, "noise_std": 0.1, "generator": noise_generator(3)}
    stepper = NoisyStepper(model, optimizer, cross_entropy, **options)
    for _ in range(4):
        stepper.step(x, y, divisor=8)
    for step in gradients:
        for p, g in zip(twin.parameters(), step, strict=True):
            p.grad = g
        bare.step()
    assert torch.equal(flat(stepper.release().parameters()), flat(twin.parameters()))


def test_plain_step_in_parts():
    model, x, y = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    stepper = PlainStepper(model, optimizer, cross_entropy, max_physical_batch_size=3)
    assert_same_vector(handed(stepper, x, y, 8), per_example_gradients(model, x, y).mean(0))


# What a step returns, and what it leaves


@all_modes
@pytest.mark.parametrize("part", [None, 3, 8, 100])
def test_outputs_and_losses_in_order(part, mode):
    model, x, y = data()
    with torch.no_grad():
        outputs, losses = model(x), cross_entropy(model(x), y)
    twin = copy.deepcopy(model)
    plain = PlainStepper(twin, torch.optim.SGD(twin.parameters(), lr=0.0), cross_entropy, max_physical_batch_size=part)
    for stepper in (plain, noisy(model, grad_sample_mode=mode, max_physical_batch_size=part)):
        seen = stepper.step(x, y, divisor=8)
        assert seen is not None and not seen[0].requires_grad and not seen[1].requires_grad
        torch.testing.assert_close(seen[0], outputs)
        torch.testing.assert_close(seen[1], losses)


@all_modes
def test_release_leaves_no_trace(mode):
    model, x, y = data()
    fresh = {name: set(vars(module)) for name, module in model.named_modules()}
    for _ in range(2):  # and the model can be trained again
        stepper = noisy(model, lr=0.1, noise_std=0.1, grad_sample_mode=mode, max_physical_batch_size=5)
        stepper.step(x, y, divisor=8)
        assert stepper.release() is model
    for name, module in model.named_modules():
        assert not module._forward_hooks and not module._forward_pre_hooks and not module._backward_hooks
        assert {key for key in set(vars(module)) - fresh[name] if getattr(module, key)} == set()
    for p in model.parameters():
        assert p.grad is None and type(p) is nn.Parameter
        assert all(value is None for value in vars(p).values())
    # A plain step afterwards sees plain gradients.
    plain = PlainStepper(model, torch.optim.SGD(model.parameters(), lr=0.0), cross_entropy)
    assert_same_vector(handed(plain, x, y, 8), per_example_gradients(model, x, y).mean(0))


# Noise generator


def test_generator_is_the_mersenne_twister_of_the_seed_sequence():
    """NumPy's MT19937 gives the words, of which torch makes a float32 by the low 24 bits. Beyond one state of 624.

    NumPy starts at the last word of the state (position 623), torch with the next state.
    """
    for seed in (0, 12345, 2**40 + 7, 2**63 - 1):
        words = np.random.MT19937(np.random.SeedSequence([seed, 2])).random_raw(2001)[1:]
        ours = torch.rand(2000, generator=noise_generator(seed))
        np.testing.assert_array_equal(ours.numpy(), (words % 2**24).astype(np.float32) / np.float32(2**24))


def test_generator_is_deterministic_by_the_whole_seed():
    def draws(generator: torch.Generator) -> tuple[float, ...]:
        return tuple(torch.randn(32, generator=generator).tolist())

    assert draws(noise_generator(5)) == draws(noise_generator(5))
    seeds = [5, 6, 5 + 2**32, 5 + 2**33, 5 + 2**62, 6 + 2**32]
    assert len({draws(noise_generator(seed)) for seed in seeds}) == len(seeds)
    # torch's own forgets the high bits.
    assert draws(torch.Generator().manual_seed(5)) == draws(torch.Generator().manual_seed(5 + 2**32))


def test_noise_leaves_the_global_generator_alone():
    model, x, y = data()
    before = torch.get_rng_state()
    noisy(model, noise_std=1.0, generator=noise_generator(1)).step(x, y, divisor=8)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, None, "1"])
def test_generator_wants_a_whole_number(wrong):
    with pytest.raises(InvalidArgument, match=r"seed = .* must be a whole number from 0"):
        noise_generator(wrong)


# What is refused


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"clip_norm": 0.0}, "clip_norm = 0.0 must be positive"),
        ({"clip_norm": float("inf")}, "clip_norm"),
        ({"noise_std": -0.1}, "noise_std = -0.1"),
        ({"noise_std": float("nan")}, "noise_std"),
        (
            {"grad_sample_mode": "magic"},
            "grad_sample_mode = 'magic' is not known: pass one of 'auto', 'hooks', 'functorch'",
        ),
        ({"max_physical_batch_size": 0}, "max_physical_batch_size = 0"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(InvalidArgument, match=match):
        noisy(perceptron(), **options)


@all_modes
@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (lambda outputs, targets: nn.functional.cross_entropy(outputs, targets), r"\(\)"),
        (lambda outputs, targets: cross_entropy(outputs, targets)[:, None], r"\(8, 1\)"),
        (lambda outputs, _: outputs, r"\(8, 3\)"),
    ],
    ids=["mean", "column", "outputs"],
)
def test_loss_must_be_per_example(loss, shape, mode):
    """In ghost mode a column times the factors would be a matrix, and the gradient not clipped at all."""
    model, x, y = data()
    plain = PlainStepper(copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=0.0), loss)
    for stepper in (plain, noisy(model, loss, grad_sample_mode=mode)):
        with pytest.raises(InvalidArgument, match=rf"loss returned shape {shape} for 8 examples.*shape \(8,\)"):
            stepper.step(x, y, divisor=8)


@all_modes
def test_parameter_without_a_part_in_the_loss(mode):
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(5, 3), nn.Linear(5, 3)
            self.through_both = True

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x) + self.idle(x) if self.through_both else self.used(x)

    model, (_, x, y) = Idle(), data()
    stepper = noisy(model, grad_sample_mode=mode)
    stepper.step(x, y, divisor=8)
    model.through_both = False
    with pytest.raises(UnsupportedModel, match=r"no per-example gradient of parameter idle\.weight.*requires_grad_"):
        stepper.step(x, y, divisor=8)


def test_input_that_ghost_clipping_does_not_know():
    """A Linear on four dimensions has no norm there; that of the batch before must not take its place."""

    class MeanOfAll(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.ndim == 2 else x.mean((1, 2))

    model = nn.Sequential(nn.Linear(5, 3), MeanOfAll())
    stepper = noisy(model, grad_sample_mode="ghost")
    _, x, y = data()
    stepper.step(x, y, divisor=8)
    with pytest.raises(UnsupportedModel, match=r"parameter 0\.weight.*another grad_sample_mode"):
        stepper.step(torch.randn(8, 2, 4, 5), y, divisor=8)


def test_model_that_mixes_examples():
    with pytest.raises(UnsupportedModel, match=r"Layer 1 \(BatchNorm1d\)"):
        noisy(nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)))


def test_stepper_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Stepper(perceptron(), torch.optim.SGD(perceptron().parameters(), lr=0.1), cross_entropy)  # type: ignore[abstract]
