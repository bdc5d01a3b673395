"""Attacks on predictions, as an audit chooses them: all that the predictions allow, or those that are named."""

from __future__ import annotations

from collections.abc import Sequence

from gmip import _validate as check
from gmip.attacks.arrays import Answers, Form, Reference, Signal, array_attacks, read_answers
from gmip.attacks.attack_table import ATTACKS, array_names
from gmip.auditing.schema import LeftOut
from gmip.errors import InvalidArgument

__all__ = ["Answers", "Form", "Reference", "Signal", "read_answers", "signals"]


def signals(
    model: Answers, references: Sequence[Reference] = (), attacks: Sequence[str] | None = None
) -> tuple[list[Signal], tuple[LeftOut, ...]]:
    """The attacks that what is there allows, the first ones those that use most of it; or those of `attacks`, and which
    of these it does not allow. Raises where it allows none of them.

    With two classes the margin and the modified entropy have the order of the loss, and are not among them.
    """
    found = array_attacks(model, references)
    if not attacks:
        return list(found.values()), ()
    errors: dict[str, InvalidArgument] = {}
    for name in attacks:
        check.one_of("attacks", name, array_names())
        if name not in found:
            needs = "columns of reference models" if ATTACKS[name].compares else "probabilities of 3 classes or more"
            needs = "labels, or losses" if name == "loss" else needs
            errors[name] = InvalidArgument(
                f"has {name!r}, and the predictions do not allow it",
                argument="attacks",
                remedy=f"it needs {needs}; they allow {check.listed(found)}",
            )
    if len(errors) == len(set(attacks)):
        raise next(iter(errors.values()))
    left_out = tuple(LeftOut.of(name, error) for name, error in errors.items())
    return [found[name] for name in dict.fromkeys(attacks) if name in found], left_out
