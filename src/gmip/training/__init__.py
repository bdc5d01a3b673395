"""Training: SGD and noisy SGD in PyTorch that record what an attacker would see."""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.training", "torch")

from typing import TYPE_CHECKING, Any

from gmip.training.loop import BatchScores, TrainResult, fit, initial_model, make_optimizer, recipe_of, train
from gmip.training.models import check_model, count_params, evaluate, fix_model
from gmip.training.recorder import Recorder, record
from gmip.training.samplers import BallsInBins, FixedSize, FullBatch, Poisson, Sampler, Shuffled, make_sampler
from gmip.training.steppers import PlainStepper, Stepper, noise_generator

if TYPE_CHECKING:
    from gmip.training.noisy_stepper import NoisyStepper

__all__ = [
    "BallsInBins",
    "BatchScores",
    "FixedSize",
    "FullBatch",
    "NoisyStepper",
    "PlainStepper",
    "Poisson",
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
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "NoisyStepper":  # imports Opacus
        from gmip.training.noisy_stepper import NoisyStepper

        return NoisyStepper
    raise AttributeError(f"module 'gmip.training' has no attribute {name!r}")
