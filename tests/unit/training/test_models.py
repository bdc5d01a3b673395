"""check_model, fix_model, and names seen through wrappers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from gmip.errors import UnsupportedModel
from gmip.training import NoisyStepper, check_model, count_params, fix_model, noise_generator
from gmip.training.models import has_norms, plain_name, trainable_parameters, unwrapped


def convolutional(norm: nn.Module) -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(norm, nn.ReLU()), nn.Flatten(), nn.Linear(8 * 4 * 4, 2))


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")  # the wrapper, without a compiler behind it


def images(size: int = 5) -> torch.Tensor:
    return torch.randn(size, 3, 6, 6, generator=torch.Generator().manual_seed(0))


MIXING: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(8),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(8),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(8, track_running_stats=True),
}


# check_model


@pytest.mark.parametrize("name", MIXING)
def test_names_the_layer_that_mixes(name):
    with pytest.raises(UnsupportedModel, match=rf"Layer 1\.0 \({name}\) mixes the examples.*fix_model.*GroupNorm"):
        check_model(convolutional(MIXING[name]()))


def test_names_a_model_that_is_one_layer():
    with pytest.raises(UnsupportedModel, match=r"Layer model \(BatchNorm1d\)"):
        check_model(nn.BatchNorm1d(3))


def test_names_the_layer_without_its_wrappers():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    wrapped = compiled(model)
    model.train()
    with pytest.raises(UnsupportedModel, match=r"Layer 1 \(BatchNorm1d\)"):
        check_model(wrapped)


@pytest.mark.parametrize("name", MIXING)
def test_eval_mode_does_not_mix(name):
    model = convolutional(MIXING[name]())
    model[1][0].eval()
    check_model(model)


def test_eval_mode_without_running_statistics_does():
    """Then torch normalises by the batch in eval mode, too: the output of an example depends on the others."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)).eval()
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0], [-1.0, 0.0]])
    assert not torch.allclose(model(x)[:2], model(x[:2]))
    with pytest.raises(UnsupportedModel, match=r"Layer 1 \(BatchNorm1d\)"):
        check_model(model)


def test_embedding_that_counts_its_rows_in_the_batch():
    model = nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True), nn.Linear(3, 2))
    with pytest.raises(UnsupportedModel, match=r"Layer 0 \(Embedding\).*set scale_grad_by_freq=False"):
        check_model(model)
    model[0].requires_grad_(False)
    check_model(model)


@pytest.mark.parametrize("layer", [nn.GroupNorm(2, 8), nn.InstanceNorm2d(8), nn.LocalResponseNorm(2), nn.Dropout()])
def test_layers_that_do_not_mix(layer):
    check_model(convolutional(layer), per_example=True)


class WithBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.get_buffer("shift")


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (nn.LSTM(2, 2), r"Opacus cannot clip layer 1 \(LSTM\) and says .*fix_model"),
        (nn.MultiheadAttention(2, 1), r"Opacus cannot clip layer 1 \(MultiheadAttention\)"),
        (
            nn.BatchNorm1d(2).eval(),
            r"Opacus cannot clip layer 1 \(BatchNorm1d\) in eval mode: .*requires_grad_\(False\)",
        ),
        (nn.Linear(2, 2).eval(), r"Opacus cannot clip layer 1 \(Linear\) in eval mode: call train\(\)"),
        (WithBuffer(), r"Opacus cannot clip layer 1 \(WithBuffer\), which holds buffers"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_opacus_cannot_clip(layer, match):
    model = nn.Sequential(nn.Linear(2, 2), layer)
    check_model(model)
    with pytest.raises(UnsupportedModel, match=match):
        check_model(model, per_example=True)
    layer.requires_grad_(False)
    check_model(model, per_example=True)


def test_checking_does_not_change_the_mode():
    """A frozen BatchNorm in eval mode stays there: in train mode it would mix the examples after all."""
    model = convolutional(nn.BatchNorm2d(8))
    model[1][0].eval().requires_grad_(False)
    modes = [module.training for module in model.modules()]
    check_model(model, per_example=True)
    assert [module.training for module in model.modules()] == modes
    NoisyStepper(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        lambda outputs, _: outputs.sum(1),
        clip_norm=1.0,
        noise_std=0.0,
        generator=noise_generator(0),
    )
    assert [module.training for module in model.modules()] == modes


def test_has_norms():
    assert has_norms(convolutional(nn.BatchNorm2d(8).eval()))
    assert not has_norms(convolutional(nn.GroupNorm(2, 8)))


# fix_model


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_becomes_group_norm(affine):
    model = convolutional(nn.BatchNorm2d(8, affine=affine))
    weights = copy.deepcopy(model.state_dict())
    fixed: Any = fix_model(model)
    check_model(fixed, per_example=True)
    norm = fixed[1][0]
    assert isinstance(norm, nn.GroupNorm) and (norm.num_channels, norm.affine) == (8, affine)
    assert isinstance(model[1][0], nn.BatchNorm2d)  # the one handed in is left as it was
    assert torch.equal(fixed[0].weight, model[0].weight) and fixed[0].weight is not model[0].weight
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    # Examples no longer see each other.
    torch.testing.assert_close(fixed(images())[:2], fixed(images()[:2]))


@pytest.mark.parametrize("affine", [True, False])
def test_instance_norm_loses_its_statistics(affine):
    fixed: Any = fix_model(convolutional(nn.InstanceNorm2d(8, affine=affine, track_running_stats=True)))
    check_model(fixed, per_example=True)
    assert isinstance(fixed[1][0], nn.InstanceNorm2d) and not list(fixed[1][0].buffers())
    before = fixed(images())
    torch.testing.assert_close(fixed.eval()(images()), before)


def test_recurrent_layer_becomes_opacus_own():
    class Recurrent(nn.Module):  # of a class that cannot be pickled
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(2, 3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    model = Recurrent().double()
    fixed = fix_model(model)
    check_model(fixed, per_example=True)
    assert type(fixed.lstm).__name__ == "DPLSTM"
    x = torch.randn(4, 5, 2, dtype=torch.float64)
    torch.testing.assert_close(fixed(x), model(x))


def test_the_root_and_the_mode():
    assert isinstance(fix_model(nn.BatchNorm1d(4)), nn.GroupNorm)
    fixed = fix_model(convolutional(nn.BatchNorm2d(8)).eval())
    assert not any(module.training for module in fixed.modules())


def test_a_frozen_layer_keeps_its_statistics():
    fixed: Any = fix_model(convolutional(nn.BatchNorm2d(8).eval().requires_grad_(False)))
    assert isinstance(fixed[1][0], nn.BatchNorm2d)


def test_what_cannot_be_fixed_is_refused():
    class Own(nn.BatchNorm2d):
        """Does who knows what beside normalising."""

    with pytest.raises(UnsupportedModel, match=r"Layer 1\.0 \(Own\)"):
        fix_model(convolutional(Own(8)))


# Names


def test_plain_name():
    assert plain_name("_module.head.weight") == "head.weight"
    assert plain_name("_orig_mod.head.weight") == "head.weight"
    assert plain_name("_module._orig_mod._module.head.weight") == "head.weight"
    assert plain_name("head._module.weight") == "head._module.weight"
    assert plain_name("module.weight") == "module.weight"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: GradSampleModule(model),
        compiled,
        nn.DataParallel,
        lambda model: compiled(GradSampleModule(model)),
        lambda model: GradSampleModule(nn.DataParallel(model)),
    ],
)
def test_names_and_counts_through_wrappers(wrap):
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model[0].bias.requires_grad_(False)
    wrapped = wrap(model)
    assert unwrapped(wrapped) is model
    assert [name for name, _ in trainable_parameters(wrapped)] == ["0.weight", "1.weight", "1.bias"]
    assert all(p is dict(model.named_parameters())[name] for name, p in trainable_parameters(wrapped))
    assert count_params(wrapped) == count_params(model) == 6 + 3 + 1


def test_a_part_called_module_keeps_its_name():
    """Its parameters would otherwise share names with the model's own, and be lost."""

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)
            self.weight = nn.Parameter(torch.ones(2))

    model = Part()
    for wrapped in (model, GradSampleModule(model)):
        assert {name for name, _ in trainable_parameters(wrapped)} == {"weight", "module.weight", "module.bias"}
        assert count_params(wrapped) == 8
    empty = nn.Sequential()
    assert unwrapped(compiled(empty)) is empty
