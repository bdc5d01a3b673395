"""What the run check found: as result.json has it."""

from __future__ import annotations

from typing import Final, Literal

from gmip.auditing.frozen import Frozen, Share

__all__ = ["BeyondReach", "CheckOutcome", "CheckStatus", "RunCheck", "SmallFault"]

CheckStatus = Literal["passed", "failed", "unchecked"]  # unchecked: the sentence says why
SmallFault = Literal["noise-size", "scale", "clip-norm", "own-size", "records", "inputs", "steps"]
# A bound rests on these. Who the members are, and a clip of the whole gradient, change nothing about it.
_BOUNDS_REST_ON: Final = frozenset(
    ("sizes", "batches", "continuity", "scale", "clipping", "noise-steps", "noise-layers", "noise-size", "noise-rows")
)


class CheckOutcome(Frozen):
    """One question about a record: does it look as the declared run must look?

    Attributes
    ----------
    check : its key, such as "scale" or "noise-size"; title : for people.
    sentence : the answer in words.
    value, expected : the number that was found and the one that the declared run has, where there is one.
    p_value : the chance of such a number if the run is as declared, where chance plays a part; for all that the check
        looked at together.
    """

    check: str
    title: str
    status: CheckStatus
    sentence: str
    value: float | None = None
    expected: float | None = None
    p_value: Share | None = None


class BeyondReach(Frozen):
    """A fault that the record of a run would not show, although the check that looks for it passed.

    Attributes
    ----------
    fault : "noise-size", the noise is smaller than declared; "scale", the gradient is larger; "clip-norm", records are
        clipped to a larger norm; "own-size", Poisson batches are divided by their own size; "records", members were
        replaced, or have another label; "inputs", inputs were changed, as augmentation does; "steps", a fault is in
        steps that were not computed again.
    up_to : the size from which on it is seen nearly always, relative to what is declared; of "records" a share of
        them, of "steps" the share that was not looked at. None: of any size.
    """

    fault: SmallFault
    up_to: float | None = None


class RunCheck(Frozen):
    """Whether the record of a run is what the declared run would have left.

    Attributes
    ----------
    beyond_reach : faults that this record would not show, although all that was checked is right.
    steps : numbers of the steps whose gradient was computed again.
    level : the chance that a sound run fails, for all checks together.
    """

    outcomes: tuple[CheckOutcome, ...]
    beyond_reach: tuple[BeyondReach, ...] = ()
    steps: tuple[int, ...] = ()
    level: Share = 0.01

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        return tuple(one for one in self.outcomes if one.status == "failed")

    @property
    def unchecked(self) -> tuple[CheckOutcome, ...]:
        return tuple(one for one in self.outcomes if one.status == "unchecked")

    @property
    def passed(self) -> bool:
        """Whether nothing failed. What was not checked is in `unchecked`."""
        return not self.failed

    @property
    def noise_unchecked(self) -> bool:
        """Whether noise was declared, and its size, or whether it is drawn anew, could not be checked."""
        return any(one.check in ("noise-size", "noise-steps") for one in self.unchecked)

    @property
    def bound_unchecked(self) -> tuple[CheckOutcome, ...]:
        """What could not be checked although bounds rest on it: noise, scale, clipping, sampling, and that there was
        no other training."""
        return tuple(one for one in self.unchecked if one.check in _BOUNDS_REST_ON)

    @property
    def headline(self) -> str:
        """The answer in one sentence, or two."""
        failed, open_ = self.failed, self.unchecked
        if failed:
            first = failed[0].sentence
            return f"The record does not match the declared run: {first[:1].lower()}{first[1:]}"
        if len(open_) == len(self.outcomes):
            return "The record could not be checked against the declared run."
        rest = f" {len(open_)} of {len(self.outcomes)} checks could not be made." if open_ else ""
        return f"The record matches the declared run in all that could be checked.{rest}"
