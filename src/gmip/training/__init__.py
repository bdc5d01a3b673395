"""Training: SGD and noisy SGD in PyTorch that record what an attacker would see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmip.training.evaluate import evaluate
from gmip.training.loop import Progress, fit, initial_model, make_optimizer, train
from gmip.training.models import check_model, count_params, fix_model
from gmip.training.plan import recipe_of, run_of, with_least_noise
from gmip.training.recorder import Recorder, record
from gmip.training.result import TrainResult
from gmip.training.samplers import FixedSize, FullBatch, Poisson, Sampler, Shuffled, make_sampler
from gmip.training.steppers import PlainStepper, Stepper, noise_generator

if TYPE_CHECKING:
    from gmip.training.noisy import NoisyStepper

__all__ = [
    "FixedSize",
    "FullBatch",
    "NoisyStepper",
    "PlainStepper",
    "Poisson",
    "Progress",
    "Recorder",
    "Sampler",
    "Shuffled",
    "Stepper",
    "TrainResult",
    "check_model",
    "count_params",
    "evaluate",
    "fit",
    "fix_model",
    "initial_model",
    "make_optimizer",
    "make_sampler",
    "noise_generator",
    "recipe_of",
    "record",
    "run_of",
    "train",
    "with_least_noise",
]


def __getattr__(name: str) -> Any:
    if name == "NoisyStepper":  # imports Opacus
        from gmip.training.noisy import NoisyStepper

        return NoisyStepper
    raise AttributeError(f"module 'gmip.training' has no attribute {name!r}")
