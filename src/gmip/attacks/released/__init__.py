"""Attacks on released weights alone (docs/released-models.md).

`optimum_scores` and `decode_optimum` work on arrays and import no deep-learning framework; `Optimum`, `OptimumDecode`
(in `optimum_attack`) and `Influence` (in `influence`) are the attacks on a model.
"""

from gmip.attacks.released.listed_optimum import decode_optimum
from gmip.attacks.released.optimality import OptimumOutcome, distance, optimum_scores

__all__ = ["OptimumOutcome", "decode_optimum", "distance", "optimum_scores"]
