"""Decoding: all candidates of a list at once, from the gradients that training published (docs/attacks.md).

`decode` works on arrays and imports no deep-learning framework; `Decode` (in `decode_attack`) is the attack on a run.
"""

from gmip.attacks.decode.decoding import DecodeOutcome, decode
from gmip.attacks.decode.listed_sum import PublishedSum, from_products, from_rows

__all__ = ["DecodeOutcome", "PublishedSum", "decode", "from_products", "from_rows"]
