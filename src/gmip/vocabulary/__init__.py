"""The words that all rooms share. Read this package first: `run` says what will run,
`targets` what is good enough, `claims` what an answer is worth.

Nothing here computes privacy, trains or prints; NumPy is all that it needs.
"""

from __future__ import annotations

from gmip.vocabulary.claims import ADJACENCIES, Adjacency, Claim, Kind, weakest
from gmip.vocabulary.run import (
    RANDOM_SIZES,
    SAMPLINGS,
    NoisySGD,
    Recipe,
    Sampling,
    SamplingFault,
    SGDSettings,
)
from gmip.vocabulary.targets import (
    ANY,
    GOOD_ENOUGH,
    NOTIONS,
    AnyRecord,
    Notion,
    PrivacyTarget,
    Rate,
    RateLike,
    Susceptibility,
    as_claim,
)

__all__ = [
    "ADJACENCIES",
    "ANY",
    "GOOD_ENOUGH",
    "NOTIONS",
    "RANDOM_SIZES",
    "SAMPLINGS",
    "Adjacency",
    "AnyRecord",
    "Claim",
    "Kind",
    "NoisySGD",
    "Notion",
    "PrivacyTarget",
    "Rate",
    "RateLike",
    "Recipe",
    "SGDSettings",
    "Sampling",
    "SamplingFault",
    "Susceptibility",
    "as_claim",
    "weakest",
]
