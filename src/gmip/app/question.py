"""What the calculator is asked: the fields of its form, as in its address, and the run that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from gmip import _validate as check
from gmip.accounting.random_record import ANY, AnyRecord
from gmip.errors import GmipError, InvalidArgument
from gmip.vocabulary import SAMPLINGS, NoisySGD

__all__ = ["FIELDS", "BadField", "Question", "spelled"]

T = TypeVar("T")
TYPICAL: Final = "typical"
KEEPS: Final = ("epochs", "steps")
FOLLOWS: Final = ("noise", "target")
# Name in the form and in the address -> what people read beside it.
FIELDS: Final = {
    "dataset_size": "Training records",
    "batch_size": "Batch size",
    "epochs": "Epochs",
    "num_steps": "Steps",
    "keep": "Keep",
    "num_params": "Trainable parameters",
    "sampling": "Batches",
    "clip_norm": "Clipping norm",
    "noise_std": "Noise",
    "record": "Record",
    "attacker_knows": "Attacker knows",
    "tpr": "Members found",
    "fpr": "False alarms",
    "follow": "Noise follows",
}
# What the accountant calls an argument that has another name in the form.
_ARGUMENTS: Final = {"susceptibility": "record", "target_tpr": "tpr", "the false-positive rate of target_tpr": "fpr"}
_MOST_CHARACTERS: Final = 40


class BadField(Exception):
    """A value that cannot be used: which field, and one sentence for people."""

    def __init__(self, field: str | None, sentence: str) -> None:
        super().__init__(sentence)
        self.field, self.sentence = field, sentence

    @classmethod
    def of(cls, error: GmipError) -> BadField:
        """An error of the accountant, at the field that it is about."""
        name = error.argument or ""
        field = _ARGUMENTS.get(name, name)
        return cls(field if field in FIELDS else None, error.sentence(spelled))


def spelled(argument: str) -> str:
    """The argument as the form calls it."""
    name = _ARGUMENTS.get(argument, argument)
    return FIELDS.get(name, name)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A run, whom the promise is for, a target (`tpr` at `fpr`), and whether the noise follows from the target."""

    run: NoisySGD
    record: float | AnyRecord | None
    attacker_knows: float
    tpr: float
    fpr: float
    follow: Literal["noise", "target"]
    keep: Literal["epochs", "steps"]

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> Question:
        """From the fields of the form, all of them text; `BadField` says which one is wrong."""
        unknown = [name for name in form if name not in FIELDS]
        if unknown:
            raise BadField(None, f"The calculator has no field {str(unknown[0])[:_MOST_CHARACTERS]!r}.")
        try:
            return cls._read(form)
        except GmipError as error:
            raise BadField.of(error) from None

    @classmethod
    def _read(cls, form: Mapping[str, Any]) -> Question:
        keep = _choice(form, "keep", KEEPS)
        clip = _text(form, "clip_norm")
        run = NoisySGD(
            dataset_size=_number(form, "dataset_size", _whole),
            batch_size=_number(form, "batch_size", _whole),
            num_steps=_number(form, "num_steps", _whole) if keep == "steps" else 1,
            num_params=_number(form, "num_params", _whole),
            sampling=_choice(form, "sampling", SAMPLINGS),
            clip_norm=None if clip == "" else _number(form, "clip_norm", float),
            noise_std=_number(form, "noise_std", float),
        )
        if keep == "epochs":
            run = run.with_epochs(_number(form, "epochs", float))
        fpr = check.probability("fpr", _number(form, "fpr", float), open_low=True, open_high=True)
        return cls(
            run=run,
            record=_record(form),
            attacker_knows=check.probability("attacker_knows", _number(form, "attacker_knows", float)),
            tpr=check.probability("tpr", _number(form, "tpr", float), open_low=True),
            fpr=fpr,
            follow=_choice(form, "follow", FOLLOWS),
            keep=keep,
        )

    @property
    def accounting(self) -> dict[str, Any]:
        """Keywords of `account` and `calibrate` for membership inference."""
        return {"susceptibility": self.record, "attacker_knows": self.attacker_knows}


def _text(form: Mapping[str, Any], field: str) -> str:
    value = form.get(field, "")
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        raise BadField(field, f"{FIELDS[field]} must be a short text, such as a number.")
    return value.strip()


def _whole(text: str) -> int:
    """A whole number, also as people write it: 48,000 or 1e6."""
    value = float(text)
    if not value.is_integer():
        raise ValueError
    return int(value)


def _number(form: Mapping[str, Any], field: str, read: Callable[[str], T]) -> T:
    text = _text(form, field)
    try:
        return read(text.replace(",", "").replace("\u202f", "").replace(" ", ""))
    except (ValueError, OverflowError):
        what = "a whole number" if read is _whole else "a number"
        missing = "is missing" if text == "" else f"is {text!r}"
        raise BadField(field, f"{FIELDS[field]} {missing}: type {what}.") from None


def _choice(form: Mapping[str, Any], field: str, options: tuple[Any, ...]) -> Any:
    text = _text(form, field)
    if text not in options:
        raise BadField(field, f"{FIELDS[field]} is {text!r}: choose one of {', '.join(map(str, options))}.")
    return text


def _record(form: Mapping[str, Any]) -> float | AnyRecord | None:
    text = _text(form, "record")
    if text == TYPICAL:
        return None
    known: AnyRecord
    for known in ANY:
        if text == known:
            return known
    try:
        return check.positive("record", _number(form, "record", float))
    except InvalidArgument as error:
        raise BadField.of(error) from None
