"""Losses of language models, one number for each sequence."""

from __future__ import annotations

from typing import Final

from torch import Tensor, nn

__all__ = ["IGNORED", "next_token_loss"]

IGNORED: Final = -100  # as a label: no prediction is asked for there (padding, a prompt)


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over a sequence of the cross-entropy of each next token, shape (n,); 0 where none is asked for.

    Parameters
    ----------
    logits : shape (n, length, vocabulary); those at position t predict label t + 1, as in transformers' causal models.
    labels : shape (n, length), the tokens themselves; -100 where no prediction is asked for.
    """
    wanted = labels[:, 1:]
    found = nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), wanted, ignore_index=IGNORED, reduction="none")
    return found.sum(1) / (wanted != IGNORED).sum(1).clamp(min=1)
