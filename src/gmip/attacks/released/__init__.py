"""Attacks on released weights alone (docs/released-models.md).

`optimum_scores` and `decode_optimum` work on arrays and import no deep-learning framework; `Optimum`, `OptimumDecode`
and `Influence` (in `released_attacks`) are the attacks on a model.
"""

from gmip.attacks.released.optimality import OptimumOutcome, decode_optimum, distance, optimum_scores

__all__ = ["OptimumOutcome", "decode_optimum", "distance", "optimum_scores"]
