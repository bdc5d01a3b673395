"""ResNet-56 against a plain functional forward pass, and its published weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from gmip.tasks.builtin import RESNET56_WEIGHTS, ResNet56, pretrained_resnet56, resnet56_features
from tests.unit.tasks.real import need


def random_model() -> ResNet56:
    """In eval mode, with statistics of BatchNorm that are not the neutral ones of a fresh layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ResNet56().eval()
        for name, tensor in model.state_dict().items():
            if name.endswith("running_mean"):
                tensor.normal_(0.0, 0.1)
            elif name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
    return model


def reference_features(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network of He et al. written out from the names in the state dict alone."""

    def conv_bn(conv: str, bn: str, x: Tensor, stride: int) -> Tensor:
        weight = state[f"{conv}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, var = state[f"{bn}.running_mean"], state[f"{bn}.running_var"]
        return F.batch_norm(x, mean, var, state[f"{bn}.weight"], state[f"{bn}.bias"], training=False, eps=1e-5)

    x = conv_bn("conv1", "bn1", x, 1).relu()
    for stage in (1, 2, 3):
        for block in range(9):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = conv_bn(f"{name}.conv1", f"{name}.bn1", x, stride).relu()
            y = conv_bn(f"{name}.conv2", f"{name}.bn2", y, 1)
            if f"{name}.downsample.0.weight" in state:
                x = conv_bn(f"{name}.downsample.0", f"{name}.downsample.1", x, stride)
            x = (x + y).relu()
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def test_forward_agrees_with_the_reference() -> None:
    model = random_model()
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference_features(model.state_dict(), x)
        assert torch.allclose(model.embed(x), expected, atol=1e-4 * float(expected.abs().max()))
        assert model(x).shape == (3, 100)


def test_size() -> None:
    assert sum(p.numel() for p in ResNet56().parameters()) == 861_620  # published as 0.86 million


def test_features_are_those_of_each_image_alone() -> None:
    model = random_model()
    images = np.random.default_rng(0).integers(0, 256, (103, 3, 32, 32), dtype=np.uint8)
    done: list[tuple[int, int]] = []
    together = resnet56_features(model, images, progress=lambda now, total: done.append((now, total)))
    assert together.shape == (103, 64) and done == [(100, 103), (103, 103)]
    assert torch.allclose(resnet56_features(model, images[101:102])[0], together[101], rtol=1e-4, atol=1e-5)
    assert not together.requires_grad and not together.is_inference()
    assert resnet56_features(model, images[:0]).shape == (0, 64)


def test_pixels_are_normalised_by_channel() -> None:
    class Passing(ResNet56):
        def embed(self, x: Tensor) -> Tensor:
            return x.mean(dim=(2, 3))

    images = np.stack([np.zeros((3, 32, 32), np.uint8), np.full((3, 32, 32), 255, np.uint8)])
    black, white = resnet56_features(Passing(), images).tolist()
    assert black == pytest.approx([-0.5070 / 0.2673, -0.4865 / 0.2564, -0.4409 / 0.2761], rel=1e-5)
    assert white == pytest.approx([0.4930 / 0.2673, 0.5135 / 0.2564, 0.5591 / 0.2761], rel=1e-5)


def test_the_published_weights_load_and_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    need(monkeypatch, RESNET56_WEIGHTS)
    model = pretrained_resnet56()
    assert not any(module.training for module in model.modules())
    assert not any(p.requires_grad for p in model.parameters())
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert model(x).shape == (2, 100)
    assert torch.allclose(model.embed(x), reference_features(model.state_dict(), x), atol=1e-4)
