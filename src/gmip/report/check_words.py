"""What the run check found, in words: one title and one sentence for each outcome, and the answer in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gmip._numbers import chance, count, number, percent
from gmip._validate import listed
from gmip.auditing.schema import BeyondReach, CheckFinding, CheckKey, CheckOutcome, RunCheck

_MOST_NAMED: Final = 4  # steps or parameters
_TITLES: Final[dict[CheckKey, str]] = {
    "sizes": "Declared sizes",
    "batches": "How batches were drawn",
    "continuity": "Training outside the record",
    "scale": "Scale of the gradient",
    "whole-clip": "Clipping of the whole gradient",
    "clipping": "Clipping of each record's gradient",
    "members": "Members, model and data",
    "noise-steps": "Noise of different steps",
    "noise-layers": "Noise in every layer",
    "noise-size": "Size of the noise",
    "noise-rows": "Noise in every row",
}
_NO_IDS: Final = "The record does not say who was in each batch (recorder.batch(ids=...) does)."
_REMOVABLE: Final = "An attacker can remove it by comparing them."

# Findings that mean another thing in each check.
_OF_CHECK: Final[dict[tuple[CheckKey, CheckFinding], str]] = {
    ("sizes", "as-declared"): "{counted} members are listed, as dataset_size says.{copies}",
    ("batches", "as-declared"): "The batches of {steps} look as if they were drawn as declared.",
    ("batches", "no-ids"): f"The sizes of the batches fit. {_NO_IDS}",
    ("continuity", "as-declared"): "Only the recorded steps changed the parameters. {before}",
    ("whole-clip", "as-declared"): "No step was clipped as a whole, except where the record says so.",
    ("clipping", "as-declared"): "Each record's gradient was clipped to norm {norm}.",
    ("noise-steps", "as-declared"): "The noise of {steps} does not repeat (largest correlation {size_of}){among}.",
    ("noise-layers", "as-declared"): "The noise is as large as declared in every parameter.",
    ("noise-size", "as-declared"): "The noise is {value} times as large as declared{error}.",
    ("noise-rows", "as-declared"): "Rows and columns of the weight matrices have independent noise.",
    ("noise-size", "no-noise"): "The recorded gradients have no noise, but noise was declared.",
    ("scale", "hidden-by-noise"): "The noise hides the scale{between}.",
    ("whole-clip", "hidden-by-noise"): "The noise hides whether single steps were scaled down as a whole.",
    ("clipping", "hidden-by-noise"): (
        "The noise hides whether each record's gradient was clipped: {steps} are too few, about {of_steps} are needed."
    ),
    ("members", "hidden-by-noise"): (
        "The noise hides the members: {steps} would look the same with half of the members replaced."
    ),
    ("scale", "hidden-by-batches"): f"Random batches hide the scale{{between}}. {_NO_IDS}",
    ("noise-size", "hidden-by-batches"): f"Random batches hide the size of the noise. {_NO_IDS}",
    ("noise-steps", "hidden-by-batches"): f"Random batches hide whether noise was used again. {_NO_IDS}",
}

_WORDS: Final[dict[CheckFinding, str]] = {
    # passed
    "data-unknown": (
        "{counted} members are listed, as dataset_size says.{copies} The record does not say which data they belong to."
    ),
    "every-record": "Every step used all records.",
    "follows-gradients": "The parameters follow from the recorded gradients by gradient descent. {before}",
    "no-matrix": "There is no weight matrix whose rows could share noise.",
    "one-layer": "There is only one parameter; the size of the noise covers it.",
    "same-in-every-layer": "The noise has the same size in every parameter.",
    # batches that were not drawn as declared
    "batch-too-large": "A step used {counted} examples, but batches of {expected} were declared.",
    "batches-too-small": (
        "The largest step used {counted}, but batches of {expected} examples were declared. A loop that calls the "
        "model on single examples, as torch.func.vmap does, must call recorder.batch(ids=...)."
    ),
    "not-all-records": "A step used {counted} examples, but full batches hold all {expected} of dataset_size.",
    "epochs-not-drawn-anew": (
        "A batch of {counted}, the rest of an epoch, comes back regularly: batches are shuffled, not drawn "
        "independently (sampling is 'shuffled', not 'fixed')."
    ),
    "epoch-length": "An epoch ends after {counted} examples, but dataset_size is {expected}.",
    "poisson-sizes": (
        "Records that are drawn on their own do not give these batch sizes: their mean is {mean} (expected {usual}), "
        "their standard deviation {spread}."
    ),
    "twice-in-a-batch": "Records are in a batch more than once ({counted} times in all).",
    "drawn-too-often": "A record is in {counted} batches ({usual} are expected), more often than by chance.",
    "too-many-records": "Batches hold {counted} different records, more than dataset_size ({expected}).",
    "batches-overlap": "Successive batches share {counted} records in all, independent batches would share {usual}.",
    "records-seen": "Batches hold {counted} different records; {usual} are expected.",
    "back-too-early": "{counted} records come back before an epoch is over.",
    "drawn-together": (
        "Pairs of records come back together in other batches {counted} times ({usual} are expected): who is drawn "
        "depends on who else is."
    ),
    "always-together": "{counted} records are always in the same batches as another one, not drawn each on its own.",
    "ids-in-order": (
        "Batches hold {counted} pairs of neighbours (records with successive ids; expected {usual}): who is in a batch "
        "follows from the order of the data."
    ),
    "not-reshuffled": (
        "The first batches of successive epochs share {counted} records (expected {usual}): epochs are not reshuffled."
    ),
    # failed
    "too-many-members": "{counted} members are listed, but dataset_size is {expected}.",
    "strangers": "{counted} records were in batches and are not listed as members.",
    "changed-outside": (
        "Something other than the recorded steps changed the model: {outside}. Another optimizer, load_state_dict or a "
        "constraint on the weights does that. What it learned is not in the record."
    ),
    "scale-factor": "The recorded gradient is {value} times the members' mean gradient{error}.{doubt}",
    "sum-not-mean": (
        "The recorded gradient is {value} times the members' mean gradient{error}. This looks like the sum over a "
        "batch of {size} instead of its mean."
    ),
    "divided-twice": (
        "The recorded gradient is {value} times the members' mean gradient{error}. This looks like the mean of a batch "
        "of {size}, divided by {size} once more."
    ),
    "workers-summed": (
        "The recorded gradient is {value} times the members' mean gradient{error}. This looks like a sum over {size} "
        "processes or accumulated batches instead of their mean."
    ),
    "workers-divided": (
        "The recorded gradient is {value} times the members' mean gradient{error}. This looks like one division too "
        "many, by {size} processes or accumulated batches."
    ),
    "own-size": "The sum over a batch was divided by the batch's own size instead of batch_size, the declared number.",
    "factors-vary": (
        "The recorded gradient is a multiple of the members' mean gradient that changes from step to step, from {low} "
        "to {high}."
    ),
    "whole-clip": (
        "The gradient of the whole batch was clipped to norm {norm} at {clipped} of {of_steps} steps ({factors}), "
        "as clip_grad_norm_ does. The record does not say so."
    ),
    "steps-scaled": ("Steps were scaled ({factors}), as clip_grad_norm_ does. The record does not say so."),
    "unclipped": "The gradients of single records were not clipped to the declared norm {norm}.",
    "unclipped-or-mean": (
        "The gradients of single records were not clipped to the declared norm {norm}. At most their mean was clipped."
    ),
    "clipped-mean": (
        "The mean gradient was clipped to the declared norm {norm}, not the gradient of each record. One record can "
        "move it by more than the noise covers."
    ),
    "clipped-by-layer": (
        "Each parameter of the model was clipped to the declared norm {norm} separately. The whole gradient of a "
        "record is longer."
    ),
    "clipped-wider": "The gradients of single records were clipped to a norm larger than {norm}, the declared one.",
    "members-differ": (
        "At step {at} the recorded gradient differs from the members' mean gradient by {value} times the largest "
        "contribution of one record. Possible causes: other records, another model or other data; noise or clipping "
        "that was not declared (noise_std, clip_norm); a random model; reduced precision."
    ),
    "others-left": (
        "Gradients of other records remain when the listed members are taken away ({value} times the noise in their "
        "directions; chance: {chance}). Other records took part, the model or the data changed, or the model is "
        "random."
    ),
    "noise-size": "The noise{of_step} is {value} times as large as declared{error}.",
    "noise-divided-twice": (
        "The noise is {value} times as large as declared. It seems to be divided by the batch size once more."
    ),
    "noise-not-averaged": (
        "The noise is {value} times as large as declared. It seems not to be divided by the batch size."
    ),
    "noise-averaged": (
        "The noise is {value} times as large as declared. It seems to be averaged like the gradients of a batch."
    ),
    "noise-not-normal": (
        "The noise has the declared size, but is not normal (fourth moment {value}, normal noise has 3). Bounds for "
        "normal noise do not hold for it."
    ),
    "noise-values-repeat": (
        "Entries of the noise are equal {value} times ({expected} are expected): it was drawn in half precision, cut "
        "off, or drawn once and used again in another order. Anyone who knows its values can remove it."
    ),
    "noise-repeats": (
        "The noise of steps {at} has a correlation of {value}: it was drawn once and used again, or from the same "
        "seed. The {free} of the two steps is free of it."
    ),
    "noise-layers-differ": "The noise is not as large as declared in {layers} (in the worst {value} times).",
    "rows-share-noise": f"Rows of {{layers}} share their noise (correlation {{value}}). {_REMOVABLE}",
    "columns-share-noise": f"Columns of {{layers}} share their noise (correlation {{value}}). {_REMOVABLE}",
    "layers-share-noise": f"The parameters {{layers}} share their noise (correlation {{value}}). {_REMOVABLE}",
    "noise-cancels": (
        "The noise of {layers} cancels: its entries add up to {value} times what they should, as if it was centred. "
        "Anyone who adds them up sees the gradient without noise."
    ),
    "noise-depends": (
        "Entries of the noise of {layers} depend on each other: not every combination of them has the same noise (the "
        "least {value} times the mean). Anyone who knows which has little sees the gradient there."
    ),
    "odd-row": "Row {line} of {layers} has {value} times the noise of the others.",
    "odd-column": "Column {line} of {layers} has {value} times the noise of the others.",
    "odd-entry": "Entry {line} of {layers} (counted row by row) has {value} times the noise of the others.",
    # unchecked
    "no-noise": "There is no noise to look at.",
    "no-steps": "No step was recorded.",
    "no-members": "The record names no members.",
    "no-ids": _NO_IDS,
    "members-left-out": "Only {counted} of {expected} members are listed. There may be others.",
    "members-left-out-no-ids": f"Not all members are listed. {_NO_IDS}",
    "not-a-mean": "A layer mixes the records of a batch (BatchNorm), so the gradient is no mean of the records' own.",
    "local-training": "Clients trained before they replied, so what was recorded is no gradient.",
    "some-parameters": "Only some of the parameters were recorded, and the gradient depends on all of them.",
    "not-plain-descent": (
        "The parameters do not follow from the recorded gradients by plain gradient descent: the loop changes them "
        "itself, exchanged the gradient after it was recorded, or changed the state of the optimizer. Something else "
        "may have changed them, or noise may be missing."
    ),
    "distinct-before": (
        "Before the first recorded step the loss tells members from non-members (AUC {auc}). The model was trained on "
        "them before, which no guarantee covers, or they are records of different kinds."
    ),
    "other-check-failed": "Not judged, because another check fails: {other}.",
    "random-model": (
        "The model drops units at random (layer {layers}), so its gradients cannot be computed again. Attacks on "
        "gradients and this check find less than is there."
    ),
    "reduced-precision": (
        "The model computed in {precision}, and rounding hides what this check looks for. Check a run in float32 that "
        "is otherwise the same."
    ),
    "zero-gradient": "The members' mean gradient is zero at the checked steps.",
    "none-to-clip": (
        "No record of the checked steps has a gradient beyond the clip norm {norm}, so clipping does not show."
    ),
    "not-compared": "The members' gradients were not compared with the noise.",
    "few-entries": "The checked steps and parameters are too few to estimate the size of the noise.",
    "imprecise": (
        f"The noise is {{value}} times as large as declared{{error}}, which shows at least {{least}} of it. {_NO_IDS}"
    ),
    "one-step": "One step is not enough to compare the noise of different steps.",
}


def title(outcome: CheckOutcome) -> str:
    """What was checked."""
    return _TITLES[outcome.check]


def sentence(outcome: CheckOutcome) -> str:
    """What was found, or why it could not be checked."""
    found = outcome.finding
    if found == "as-declared" and outcome.check == "scale":
        return _scale(outcome)
    if found == "as-declared" and outcome.check == "members":
        return _members(outcome)
    return _filled(_OF_CHECK.get((outcome.check, found)) or _WORDS[found], outcome)


def headline(check: RunCheck) -> str:
    """The answer in one sentence, or two."""
    left = len(check.unchecked)
    if check.failed:
        return f"The record does not match the declared run. {sentence(check.failed[0])}"
    if left == len(check.outcomes):
        return "The record could not be checked against the declared run."
    rest = f" {left} of {len(check.outcomes)} checks could not be made." if left else ""
    return f"The record matches the declared run in all that could be checked.{rest}"


def unchecked(check: RunCheck | None) -> list[str]:
    """What of a record that passed could not be checked, the same reason once."""
    reasons: dict[str, list[str]] = {}
    for one in check.unchecked if check is not None and check.passed else ():
        reasons.setdefault(sentence(one), []).append(title(one).lower())
    return [f"The record was not checked for {listed(titles)}. {why}" for why, titles in reasons.items()]


def beyond_reach(check: RunCheck | None) -> str | None:
    """Which faults the record would not show, in one sentence; None where nothing is known to be hidden."""
    said = [] if check is None else [_hidden(one) for one in check.beyond_reach]
    return f"This check cannot exclude: {'; '.join(said)}." if said else None


def _hidden(one: BeyondReach) -> str:
    less = "" if one.up_to is None else f"less than {percent(min(one.up_to, 1.0), 'up')}"
    return {
        "noise-size": f"noise that is too small by {less}",
        "noise-layer": f"noise that is too small in one parameter by {less}",
        "noise-step": f"noise that is too small at one step by {less}",
        "noise-entry": f"noise that is too small in one entry of a parameter by {less}",
        "noise-seed": "noise from a seed that others can guess",
        "noise-dependence": "noise that is cut off, or depends on itself, in a way that so few steps do not show",
        "scale": f"a gradient that is too large by {less}",
        "clip-norm": f"a clip norm that is too large by {less}",
        "own-size": "batches that are divided by their own size",
        "divisor": "what the divisor, int(N rate), says about N, where N and n are not public",
        "drawn-often": f"one record in up to {percent(one.up_to or 0.0, 'up')} of the batches",
        "drawn-together": "a few records that are drawn together more often than by chance",
        "records": f"{less} of the members replaced or with another label",
        "inputs": "inputs or a model that were changed a little, as augmentation and dropout do",
        "optimizer": "an optimizer, or a hook of its step, that uses other gradients than the recorded ones",
        "counted": "a record that counts more than once, is not listed, or decides how others are clipped",
        "buffers": "what buffers and frozen parameters, which are not compared, say about the members",
        "steps": f"faults in the {percent(one.up_to or 0.0, 'nearest')} of the steps that were not computed again",
        "before": "training before the recording that the loss before the first step does not show",
    }[one.fault]


# -- sentences and their parts ----------------------------------------------------------------------------------------


def _scale(outcome: CheckOutcome) -> str:
    if outcome.error is not None:
        return _filled(_WORDS["scale-factor"], outcome)
    left = max((outcome.value or 1.0) - 1.0, 1.0e-16)
    return f"The recorded gradient is the members' mean gradient, up to a relative error of {number(left, 'up')}."


def _members(outcome: CheckOutcome) -> str:
    if outcome.p_value is not None:
        return "The recorded gradients follow from the listed members plus noise."
    left = percent(min(outcome.value or 0.0, 1.0), "up")
    return (
        "The recorded gradients follow from the listed members, the model and the data. At most "
        f"{left} of the largest contribution of one record is left."
    )


def _filled(words: str, outcome: CheckOutcome) -> str:
    """The sentence with the parts that it asks for."""
    return words.format(**{name: part(outcome) for name, part in _PARTS.items() if f"{{{name}}}" in words})


def _near(value: float | None) -> str:
    return number(value or 0.0, "nearest")


def _between(outcome: CheckOutcome) -> str:
    """The range of factors that noise or batches leave open."""
    if outcome.factor_low is None or outcome.factor_high is None:
        return ""
    low, high = number(outcome.factor_low, "down"), number(outcome.factor_high, "up")
    return f": the recorded gradient is {low} to {high} times the members' mean gradient"


def _among(outcome: CheckOutcome) -> str:
    among = outcome.of_steps or 0
    return f", the most alike of {count(among)} among them" if among > (outcome.steps or 0) else ""


def _factors(outcome: CheckOutcome) -> str:
    low, high = _near(outcome.factor_low), _near(outcome.factor_high)
    return f"by a factor of {low}" if low == high else f"by factors from {low} to {high}"


def _doubt(outcome: CheckOutcome) -> str:
    """What else could be thought to explain a factor."""
    if outcome.layers:
        return f" The model drops units at random (layer {_some(outcome.layers)}), which does not explain this."
    if outcome.precision is not None:
        return f" The model computed in {outcome.precision}, which does not explain this."
    return ""


def _copies(outcome: CheckOutcome) -> str:
    if not outcome.records:
        return ""
    return f" {count(outcome.records)} are copies of others: a guarantee for one record does not cover two."


def _before(outcome: CheckOutcome) -> str:
    """What is known of training before the recording."""
    if outcome.auc is None:
        return "Training before the recording would not show, and no guarantee covers it."
    return (
        f"Before the first step the loss does not tell members from non-members (AUC {_near(outcome.auc)}). No "
        "guarantee covers training before the recording."
    )


def _of_step(outcome: CheckOutcome) -> str:
    """The worst of the steps whose noise is not as declared."""
    if not outcome.at_steps:
        return ""
    odd = len(outcome.at_steps)
    return f" of step {count(outcome.at_steps[0])}" + (f", one of {count(odd)} such steps," if odd > 1 else "")


def _outside(outcome: CheckOutcome) -> str:
    """When something changed the model outside the recorded steps."""
    said = ["before the first recorded step"] if 0 in outcome.at_steps else []
    if late := [count(index) for index in outcome.at_steps if index > 0]:
        said.append(f"before {count(len(late))} of the later steps ({_some(late)})")
    if outcome.layers:
        said.append(f"after the last step ({_some(outcome.layers)})")
    return "; ".join(said)


def _some(names: tuple[str, ...] | list[str]) -> str:
    """The first names, and how many more there are."""
    more = [f"{count(len(names) - _MOST_NAMED)} more"] if len(names) > _MOST_NAMED else []
    return listed([*names[:_MOST_NAMED], *more]) if names else ""


# Name in the sentences -> numbers and names of an outcome.
_PARTS: Final[dict[str, Callable[[CheckOutcome], str]]] = {
    "value": lambda one: _near(one.value),
    "counted": lambda one: count(int(one.value or 0)),
    "size_of": lambda one: number(abs(one.value or 0.0), "up"),
    "free": lambda one: "difference" if (one.value or 0.0) > 0.0 else "sum",
    "expected": lambda one: count(int(one.expected or 0)),
    "mean": lambda one: number(one.value or 0.0, "nearest", 4),
    "usual": lambda one: number(one.expected or 0.0, "nearest", 4),
    "spread": lambda one: _near(one.error),
    "chance": lambda one: chance(one.p_value or 0.0),
    "error": lambda one: "" if one.error is None else f" (\u00b1 {number(one.error, 'up')})",
    "low": lambda one: _near(one.factor_low),
    "high": lambda one: _near(one.factor_high),
    "least": lambda one: number(one.factor_low or 0.0, "down"),
    "auc": lambda one: _near(one.auc),
    "norm": lambda one: _near(one.norm),
    "size": lambda one: count(one.size or 0),
    "steps": lambda one: f"{count(one.steps or 0)} step{'s'[: one.steps != 1]}",
    "clipped": lambda one: count(one.steps or 0),
    "of_steps": lambda one: count(one.of_steps or 0),
    "line": lambda one: count(one.line or 0),
    "layers": lambda one: _some(one.layers),
    "at": lambda one: _some([count(index) for index in one.at_steps]),
    "precision": lambda one: one.precision or "",
    "other": lambda one: "" if one.other is None else _TITLES[one.other].lower(),
    "between": _between,
    "among": _among,
    "factors": _factors,
    "doubt": _doubt,
    "copies": _copies,
    "before": _before,
    "of_step": _of_step,
    "outside": _outside,
}
