"""In which precision a model computed is seen, wherever autocast was switched on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gmip.training.watches import PrecisionWatch


class Casting(nn.Module):
    """A wrapper like accelerate's: autocast begins within the model's own forward."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        self.dtype = dtype

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.layers(inputs).float()


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bfloat16"), (torch.float16, "float16")])
def test_autocast_within_the_model(dtype, name):
    model = Casting(dtype)
    watch = PrecisionWatch(model)
    watch.start()
    for _ in range(2):
        model(torch.ones(5, 4))
        assert watch.take() == name
        assert watch.take() is None
    with torch.no_grad():  # evaluation is not part of a step
        model(torch.ones(5, 4))
    assert watch.take() is None
    watch.stop()
    model(torch.ones(5, 4))
    assert watch.take() is None and not any(layer._forward_pre_hooks for layer in model.modules())


def test_parameters_of_reduced_precision_and_plain_ones():
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float32, None), (torch.float64, None)):
        model = nn.Linear(4, 2).to(dtype)
        watch = PrecisionWatch(model)
        watch.start()
        model(torch.ones(5, 4, dtype=dtype))
        assert watch.take() == name
        watch.stop()
