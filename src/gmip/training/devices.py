"""Where tensors live: the device that was asked for, or the CPU with a sentence if this machine does not have it."""

from __future__ import annotations

import warnings

import torch

from gmip.errors import GmipWarning, InvalidArgument

__all__ = ["usable_device"]


def usable_device(device: str, *, float64: bool = False) -> str:
    """`device` itself if it can be used here, else "cpu", with a GmipWarning that says why.

    Parameters
    ----------
    device : "cpu", "cuda", "cuda:1", "mps" or another that torch knows; a name that is none raises InvalidArgument.
    float64 : whether the work needs double precision, which MPS does not have.
    """
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        raise InvalidArgument(
            "is not a device", argument="device", value=device, remedy="pass cpu, cuda (or cuda:1, ...) or mps"
        ) from None
    if kind == "cpu":
        return device
    reason = "it has no double precision, which this work needs" if float64 and kind == "mps" else _refusal(device)
    if reason is None:
        return device
    warnings.warn(f"device = {device!r} cannot be used ({reason}): the CPU is used.", GmipWarning, stacklevel=3)
    return "cpu"


def _refusal(device: str) -> str | None:
    """Why a tensor cannot be made, moved and read there; None if it can."""
    try:
        torch.ones(1, device=device).add(1.0).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return " ".join(str(error).split("\n")[0].split()).rstrip(".") or type(error).__name__
    return None
