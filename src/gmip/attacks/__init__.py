"""Attacks: from a recorded run to one membership score per candidate.

`gmip.attacks.glir` works on arrays and imports no deep-learning framework; what computes gradients needs torch.
"""

from __future__ import annotations

__all__: list[str] = []
