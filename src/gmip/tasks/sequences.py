"""Losses of language models, one number for each sequence."""

from __future__ import annotations

from typing import Final

from torch import Tensor, nn

__all__ = ["IGNORED", "masked_token_loss", "mean_of_tokens", "next_token_loss", "token_losses"]

IGNORED: Final = -100  # as a label: no prediction is asked for there (padding, a prompt)


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over a sequence of the cross-entropy of each next token, shape (n,); 0 where none is asked for.

    Parameters
    ----------
    logits : shape (n, length, vocabulary); those at position t predict label t + 1, as in transformers' causal models.
    labels : shape (n, length), the tokens themselves; -100 where no prediction is asked for.
    """
    return mean_of_tokens(*token_losses(logits[:, :-1], labels[:, 1:]))


def masked_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over a sequence of the cross-entropy of each hidden token, shape (n,); 0 where none is asked for.

    Parameters
    ----------
    logits : shape (n, length, vocabulary); those at position t predict label t, as in transformers' masked models.
    labels : shape (n, length): the token where it was hidden; -100 elsewhere.
    """
    return mean_of_tokens(*token_losses(logits, labels))


def token_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(cross-entropy of each label, whether it is asked for), each of shape (n, length); 0 where it is not."""
    found = nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
    return found, labels != IGNORED


def mean_of_tokens(losses: Tensor, wanted: Tensor) -> Tensor:
    """The mean over the wanted tokens of each sequence, shape (n,); losses of others are 0."""
    return losses.sum(1) / wanted.sum(1).clamp(min=1)
