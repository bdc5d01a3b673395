"""The words that all rooms share. Read this package first: `run` says what will run, `rates` what
is good enough, `claims` what an answer is worth.

Nothing here computes privacy, trains or prints; NumPy is all that it needs.
"""

from __future__ import annotations

from gmip.vocabulary.claims import Adjacency, Claim, Kind, weakest
from gmip.vocabulary.rates import Rate, RateLike
from gmip.vocabulary.run import SAMPLINGS, NoisySGD, Recipe, Sampling, SGDSettings

__all__ = [
    "SAMPLINGS",
    "Adjacency",
    "Claim",
    "Kind",
    "NoisySGD",
    "Rate",
    "RateLike",
    "Recipe",
    "SGDSettings",
    "Sampling",
    "weakest",
]
