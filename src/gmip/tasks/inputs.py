"""What a model is called with, one tensor or several by name, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from gmip.errors import InvalidArgument

# A tensor; or a dict of tensors, name -> one row for each record, for models that take several (input_ids and
# attention_mask, say). Not a union: users and tests index the tensor that they put in.
Inputs: TypeAlias = Any

# In one pass: a language model answers with a number for each position and word of its vocabulary.
_SEQUENCES: Final = 16


def checked(inputs: Any, *, argument: str = "inputs") -> Inputs:
    """A tensor as it is, a mapping of them as a dict; anything else is refused."""
    if isinstance(inputs, Tensor):
        return inputs
    if not isinstance(inputs, Mapping):
        raise InvalidArgument(
            f"must be a torch tensor, not {type(inputs).__name__}",
            argument=argument,
            remedy="convert it with torch.as_tensor",
        )
    for name, values in inputs.items():
        if not isinstance(values, Tensor) or values.ndim == 0:
            raise InvalidArgument(
                f"has {name!r}, which must be a torch tensor with one row for each record",
                argument=argument,
                remedy="convert it with torch.as_tensor, or leave it out",
            )
    if len({len(values) for values in inputs.values()}) != 1:
        sizes = ", ".join(f"{name}: {len(values)}" for name, values in inputs.items())
        raise InvalidArgument(
            f"has different numbers of rows ({sizes})" if inputs else "is empty",
            argument=argument,
            remedy="pass one row of each for every record",
        )
    return dict(inputs)


def mapped(function: Callable[[Tensor], Any], inputs: Inputs) -> Inputs:
    """The function of the tensor, or of each."""
    return {name: function(t) for name, t in inputs.items()} if isinstance(inputs, dict) else function(inputs)


def rows_of(inputs: Inputs, rows: Any) -> Inputs:
    """These rows: a slice, or a tensor of numbers."""
    return mapped(lambda t: t[rows], inputs)


def rows_per_pass(inputs: Inputs, usual: int) -> int:
    """How many records to ask about at a time: fewer than usual if they are sequences of tokens."""
    tokens = any(t.ndim > 1 and not t.is_floating_point() for t in named(inputs).values())
    return min(usual, _SEQUENCES) if tokens else usual


def named(inputs: Inputs) -> dict[str, Tensor]:
    """The tensors by name, in the order of their names; a single one has the name ""."""
    return dict(sorted(inputs.items())) if isinstance(inputs, dict) else {"": inputs}


def joined(ours: Inputs, theirs: Inputs) -> Inputs:
    """The rows of the one and then those of the other."""
    a, b = named(ours), named(theirs)
    if set(a) != set(b):
        raise InvalidArgument("Records with different inputs cannot be joined", remedy="give all the same names")
    both = {name: torch.cat([a[name], b[name]]) for name in a}
    return both if isinstance(ours, dict) else both[""]


def placed(inputs: Inputs, device: torch.device | str, dtype: torch.dtype | None = None) -> Inputs:
    """Moves them to that device; what is floating-point in that precision, if one is given."""
    return mapped(lambda t: t.to(device, dtype) if t.is_floating_point() else t.to(device), inputs)


def one_table(inputs: Inputs, why: str) -> Tensor:
    """The tensor itself; `why` says what needs there to be only one."""
    if isinstance(inputs, Tensor):
        return inputs
    raise InvalidArgument(f"The records have several inputs ({', '.join(inputs)}), and {why}")


def arguments(inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Positional and keyword arguments of the model."""
    return ((), inputs) if isinstance(inputs, dict) else ((inputs,), {})


def answer(model: nn.Module | Callable[..., Any], inputs: Inputs) -> Any:
    """What the model says of these records."""
    args, kwargs = arguments(inputs)
    return logits(model(*args, **kwargs))


def logits(output: Any) -> Any:
    """The logits of an answer that has some beside other things, as those of transformers do; else what it is."""
    return output if isinstance(output, Tensor) else getattr(output, "logits", output)


# -- losses of language models ----------------------------------------------------------------------------------------


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
