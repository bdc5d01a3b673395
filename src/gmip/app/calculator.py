"""The page of the calculator: its form, and the places that the script fills with answers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gmip import _numbers
from gmip import _validate as check
from gmip._html import Html, embedded_json, tag
from gmip._numbers import typed
from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axes, Series, chart, guessing, swatch
from gmip._user_code import out_of_memory
from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import GmipError, UnreachableTarget
from gmip.report.account_words import at_most, beside, found, goal_sentence, standing
from gmip.report.advice_words import run_options
from gmip.vocabulary import ANY, SAMPLINGS, AnyRecord, NoisySGD, Rate

# -- the frame of both pages ------------------------------------------------------------------------------------------


def frame(title: str, *body: Html, audits: bool, script: str | None = None) -> str:
    """A whole page; `audits` tells whether there is a folder of audits to link to."""
    links = [tag("li", tag("a", "Calculator", href="/")), tag("li", tag("a", "Audit a file", href="/audit"))]
    if audits:
        links.append(tag("li", tag("a", "Audits", href="/audits")))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} - gmip"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="/static/app.css"),
        None if script is None else tag("script", src=f"/static/{script}", type="module"),
    )
    whole = tag("body", tag("nav", tag("ul", *links), aria_label="Pages"), tag("main", *body))
    return f"<!doctype html>\n{tag('html', head, whole, lang='en')}\n"


# -- what the calculator answers --------------------------------------------------------------------------------------


LOWEST: Final = 1.0e-4  # where the logarithmic axes begin
_RATES: Final = np.concatenate([[0.0], np.geomspace(1.0e-6, 0.1, 90), np.linspace(0.1, 1.0, 91)[1:]])
_SAME: Final = 1.001  # a ratio below which two answers are one
_DELTA: Final = 1.0e-6
_EXTREME: Final = "These numbers are too extreme to compute with: type more moderate sizes, noise or rates."


def answer_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a form, or the field that is wrong and one sentence."""
    try:
        return {"answer": answer(Question.read(form))}
    except BadField as error:
        return {"field": error.field, "problem": error.sentence}


def answer(question: Question) -> dict[str, Any]:
    """All that the page shows, as plain JSON; `BadField` where there is no answer.

    Guarantees
    ----------
    Curves are those of `gmip.account`, noise is that of `gmip.calibrate`, with their assumptions. TPRs are rounded
    up, and a target counts as guaranteed only where the curve is a bound.
    """
    try:
        return _answer(question)
    except GmipError as error:
        raise BadField.of(error) from None
    except MemoryError as error:
        raise BadField(None, out_of_memory(error) or _EXTREME) from None
    except (OverflowError, FloatingPointError):
        raise BadField(None, _EXTREME) from None


def _answer(question: Question) -> dict[str, Any]:
    run, goal = question.run, Rate(question.tpr, question.fpr)
    if question.follow == "target":
        run = calibrate(run, target_tpr=goal, **question.accounting)
    curve = account(run, **question.accounting)
    gdp = account(run, notion="gdp") if run.noise_std > 0.0 else None
    gdp_run = _with_noise_for_gdp(run, goal) if question.follow == "target" else None
    met = question.follow == "target" or curve.tpr_at(question.fpr) <= question.tpr
    series = _series(curve, gdp)
    return {
        "sentence": f"{found(curve, question.fpr)}, for {curve.for_whom}.",
        "badge": ("good" if curve.kind == "bound" else "open") if met else "bad",
        "target": goal_sentence(goal, curve.kind, met=met),
        "standing": " ".join([standing(curve), *_no_more(question, run, curve), *beside(gdp)]),
        "assumptions": list(curve.assumptions),
        "rows": _rows(question, run, curve, gdp, gdp_run),
        "fields": {
            "noise_std": _numbers.noise(run.noise_std),
            "num_steps": str(run.num_steps),
            "epochs": _numbers.number(run.epochs, "nearest", 6),
        },
        "chart": {kind: _chart(series, kind, question) for kind in ("log", "linear")},
        "legend": tag("ul", *(tag("li", swatch(one), one.name) for one in series), class_="legend"),
        "csv": _csv(curve, gdp),
        "command": _command(question, run),
        "python": _python(question, run),
    }


def _with_noise_for_gdp(run: NoisySGD, goal: Rate) -> NoisySGD | None:
    try:
        return calibrate(run.replace(noise_std=0.0), target_tpr=goal, notion="gdp")
    except UnreachableTarget:
        return None


def _no_more(question: Question, run: NoisySGD, curve: TradeOff) -> list[str]:
    """Says that knowing more helps the attacker no further, where the noise alone gives the answer."""
    if run.noise_std == 0.0 or question.attacker_knows == 1.0:
        return []
    try:
        most = account(run, susceptibility=question.record, attacker_knows=1.0).tpr_at(question.fpr)
    except GmipError:
        return []
    if most > curve.tpr_at(question.fpr) * _SAME:
        return []
    return ["The noise alone gives this answer: it does not depend on what the attacker knows."]


def _rows(
    question: Question, run: NoisySGD, curve: TradeOff, gdp: TradeOff | None, gdp_run: NoisySGD | None
) -> list[tuple[str, str]]:
    most = at_most(curve)
    multiplier = run.noise_multiplier
    rows = [
        ("Noise on the mean gradient (std)", _numbers.noise(run.noise_std)),
        ("Noise multiplier (Opacus)", "needs a clipping norm" if multiplier is None else _up(multiplier)),
        ("Advantage over guessing", f"{most} {_numbers.percent(curve.advantage(), 'up')}"),
        ("Area under the attacker's ROC curve", f"{most} {_up(curve.auc())}"),
        ("mu (false-alarm rates from 1e-5 to 1 - 1e-5)", _up(curve.equivalent_mu())),
    ]
    if gdp is None:
        return [*rows, ("Differential privacy", "none without noise")]
    at = f"Members found at {_numbers.rate(question.fpr)}, by differential privacy ({gdp.claim.adjacency})"
    rows.append((at, f"{at_most(gdp)} {_numbers.percent(gdp.tpr_at(question.fpr), 'up')}"))
    rows.append((f"Epsilon at delta = {_DELTA:g}", f"{at_most(gdp)} {_up(gdp.epsilon(_DELTA))}"))
    if question.follow == "target":
        needs = "cannot be reached" if gdp_run is None else _numbers.noise(gdp_run.noise_std)
        rows.append((f"Noise that differential privacy needs for the target ({gdp.claim.adjacency})", needs))
    return rows


def _up(value: float) -> str:
    return _numbers.number(value, "up")


def _series(curve: TradeOff, gdp: TradeOff | None) -> list[Series]:
    forecast = curve.kind != "bound"
    name = f"Membership inference ({'forecast' if forecast else 'bound'})"
    series = [
        Series(name, "claim", "blue solid", _RATES, _tpr(curve), marker="circle", prominent=True, forecast=forecast)
    ]
    if gdp is not None:
        forecast = gdp.kind != "bound"
        name = f"Differential privacy of the same noise ({'forecast' if forecast else 'bound'})"
        series.append(Series(name, "claim", "vermillion dash", _RATES, _tpr(gdp), marker="square", forecast=forecast))
    return [*series, guessing()]


def _tpr(curve: TradeOff) -> NDArray[np.float64]:
    return np.maximum.accumulate(np.clip(1.0 - np.asarray(curve(_RATES), dtype=np.float64), 0.0, 1.0))


def _chart(series: list[Series], kind: str, question: Question) -> str:
    values = "; ".join(f"{one.name}: {one.text(one.at(question.fpr))}" for one in series[:-1])
    label = f"Chart: members found against false alarms. At {_numbers.rate(question.fpr)} false alarms: {values}."
    axes = Axes(LOWEST if kind == "log" else None)
    return chart(series, axes, label=label, target=(question.fpr, question.tpr))


def _csv(curve: TradeOff, gdp: TradeOff | None) -> str:
    columns = {"false_alarms": _RATES, "members_found": _tpr(curve)}
    if gdp is not None:
        columns["members_found_differential_privacy"] = _tpr(gdp)
    lines = [
        ",".join(columns),
        *(",".join(f"{value:.6g}" for value in row) for row in zip(*columns.values(), strict=True)),
    ]
    return "\n".join(lines) + "\n"


def _command(question: Question, run: NoisySGD) -> str:
    solve = question.follow == "target"
    epochs = f"{run.epochs:.6g}" if question.keep == "epochs" else None
    words = run_options(run.replace(noise_std=0.0) if solve else run, epochs=epochs, digits=12)
    if question.record is not None:
        words += ["--susceptibility", question.record if isinstance(question.record, str) else typed(question.record)]
    if question.attacker_knows:
        words += ["--attacker-knows", typed(question.attacker_knows)]
    if solve:
        return shlex.join(["gmip", "calibrate", *words, "--target", f"tpr={Rate(question.tpr, question.fpr)}"])
    return shlex.join(["gmip", "account", *words, "--fpr", typed(question.fpr)])


def _python(question: Question, run: NoisySGD) -> str:
    solve = question.follow == "target"
    settings = {
        "dataset_size": f"{run.dataset_size:_}",
        "batch_size": f"{run.batch_size:_}",
        "num_steps": f"{run.num_steps:_}",
        "num_params": f"{run.num_params:_}",
        "sampling": repr(run.sampling),
        "clip_norm": repr(run.clip_norm),
        "noise_std": "0.0" if solve else repr(run.noise_std),
    }
    whom = {}
    if question.record is not None:
        whom["susceptibility"] = repr(question.record)
    if question.attacker_knows:
        whom["attacker_knows"] = repr(question.attacker_knows)
    more = "".join(f", {name}={value}" for name, value in whom.items())
    lines = ["import gmip", "", "run = gmip.NoisySGD("]
    lines += [f"    {name}={value}," for name, value in settings.items()]
    lines += [")"]
    if solve:
        lines += [f"run = gmip.calibrate(run, target_tpr=({question.tpr!r}, {question.fpr!r}){more})"]
    lines += [f"curve = gmip.account(run{more})", f"curve.tpr_at(fpr={question.fpr!r})"]
    return "\n".join(lines) + "\n"


# -- what the calculator is asked -------------------------------------------------------------------------------------


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
_ARGUMENTS: Final = {"susceptibility": "record", "target_tpr": "tpr"}
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
    """A run, whom the answer is about, a target (`tpr` at `fpr`), and whether the noise follows from the target."""

    run: NoisySGD
    record: float | AnyRecord | None
    attacker_knows: float
    tpr: float
    fpr: float
    follow: Literal["noise", "target"]
    keep: Literal["epochs", "steps"]

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> Question:
        """Reads the fields of the form, all of them text; `BadField` says which one is wrong."""
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
        return cls(
            run=run,
            record=_record(form),
            attacker_knows=_share(form, "attacker_knows", lambda share: 0.0 <= share <= 1.0, "from 0 to 1"),
            tpr=_share(form, "tpr", lambda share: 0.0 < share <= 1.0, "above 0, up to 1"),
            fpr=_share(form, "fpr", lambda share: 0.0 < share < 1.0, "above 0, below 1"),
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


def _share(form: Mapping[str, Any], field: str, inside: Callable[[float], bool], allowed: str) -> float:
    share = _number(form, field, float)
    if not inside(share):
        raise BadField(field, f"{FIELDS[field]}: enter a share {allowed}.")
    return share


def _choice(form: Mapping[str, Any], field: str, options: tuple[Any, ...]) -> Any:
    text = _text(form, field)
    if text not in options:
        raise BadField(field, f"{FIELDS[field]} is {text!r}: choose one of {', '.join(map(str, options))}.")
    return text


def _record(form: Mapping[str, Any]) -> float | AnyRecord | None:
    text = _text(form, "record")
    if text == TYPICAL:
        return None
    if text in ANY:
        return text
    return check.positive("record", _number(form, "record", float))


# -- the page of the calculator ---------------------------------------------------------------------------------------


def _preset(size: int, batch: int, epochs: float, params: int, clip: float, sampling: str = "fixed") -> dict[str, str]:
    return {
        "dataset_size": str(size),
        "batch_size": str(batch),
        "epochs": f"{epochs:g}",
        "num_steps": "",
        "keep": "epochs",
        "num_params": str(params),
        "sampling": sampling,
        "clip_norm": f"{clip:g}",
        "noise_std": "0",
        "record": TYPICAL,
        "attacker_knows": "0",
        "tpr": "0.05",  # the target of an audit that names none
        "fpr": "0.01",
        "follow": "noise",
    }


# The tasks of the command line, with their recipes; a test compares them.
PRESETS: Final = {
    "cifar10": _preset(48_000, 400, 10, 650, 500.0),
    "digits": _preset(250, 125, 20, 650, 1.0),
    "breast-cancer": _preset(200, 40, 30, 530, 2.0),
    "adult": _preset(43_000, 1_000, 20, 1_026, 800.0),
    "purchase": _preset(54_855, 795, 3, 2_580, 2_000.0),
    "location": _preset(1_600, 100, 20, 30_558, 4.0),
}
_SAMPLING: Final = {
    "fixed": "a new random batch for every step",
    "poisson": "each record on its own (Poisson)",
    "full": "all records in every step",
    "shuffled": "shuffled epochs (DataLoader)",
    "balls-in-bins": "epochs, each record in a random batch",
}
_RECORDS: Final = {
    TYPICAL: "a typical record",
    "any-constant": "a random record of any kind, equally exposed at all steps",
    "any": "a random record of any kind",
    "other": "records of susceptibility at most",
}


class _Scale(NamedTuple):
    """A slider beside a box: logarithmic from `low` to `high`, 0 at its left end if `zero`; linear if `low` is 0."""

    low: float
    high: float
    zero: bool = False
    whole: bool = True


_SCALES: Final = {
    "dataset_size": _Scale(100, 1.0e7),
    "batch_size": _Scale(1, 1.0e5),
    "epochs": _Scale(1, 1_000, whole=False),
    "num_params": _Scale(10, 1.0e9),
    "clip_norm": _Scale(0.01, 1.0e4, whole=False),
    "noise_std": _Scale(1.0e-5, 1.0e3, zero=True, whole=False),
    "attacker_knows": _Scale(0, 1, whole=False),
}


def calculator_page(*, audits: bool) -> str:
    """The whole page."""
    intro = tag(
        "p",
        "How many members can an attacker who sees every gradient identify? Describe the training run. The answer is "
        "computed on this machine, as by gmip account.",
        class_="intro",
    )
    columns = tag("div", _answer_area(), _form(), _details(), class_="columns")
    data = {
        "presets": PRESETS,
        "scales": {name: scale._asdict() for name, scale in _SCALES.items()},
        "axes": {
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": RIGHT,
            "top": TOP,
            "bottom": BOTTOM,
            "lowest": LOWEST,
        },
    }
    script_off = tag("noscript", tag("p", "The calculator needs JavaScript; gmip account answers in a terminal."))
    return frame(
        "Calculator",
        tag("h1", "Privacy calculator"),
        intro,
        script_off,
        columns,
        embedded_json("data", data),
        audits=audits,
        script="app.js",
    )


def _form() -> Html:
    presets = [tag("option", "Start from a task ...", value="")]
    presets += [tag("option", name, value=name) for name in PRESETS]
    return tag(
        "form",
        labelled("preset", "Preset", tag("select", *presets, id="preset")),
        tag(
            "fieldset",
            tag("legend", "The run"),
            _box("dataset_size"),
            _box("batch_size"),
            _box("epochs"),
            _box("num_steps"),
            _radios("keep", "When sizes change, keep", {name: f"the {name}" for name in KEEPS}),
            _box("num_params"),
            _select("sampling", {name: _SAMPLING[name] for name in SAMPLINGS}),
        ),
        tag(
            "fieldset",
            tag("legend", "Protection"),
            _box("clip_norm", "The largest norm of one record's gradient. Empty: gradients are not clipped."),
            _box("noise_std", "Standard deviation of the noise on the MEAN gradient."),
        ),
        tag(
            "fieldset",
            tag("legend", "Which record, against whom"),
            _select("record", _RECORDS),
            labelled(
                "susceptibility",
                "Susceptibility",
                text_input("susceptibility", name="susceptibility"),
                wrapper="field k-box",
            ),
            _box("attacker_knows", "The share of the other members whose records the attacker holds, from 0 to 1."),
        ),
        tag(
            "fieldset",
            tag("legend", "Target"),
            _box("tpr", "At most this share of the members may be found ..."),
            _box("fpr", "... at this share of false alarms."),
            _radios("follow", "Noise", {"noise": "as typed above", "target": "the least that keeps the target"}),
        ),
        id="form",
        novalidate=True,
        aria_label="The run",
        autocomplete="off",
    )


def _answer_area() -> Html:
    chart = tag(
        "div",
        tag("div", id="drawing"),
        tag(
            "button",
            type="button",
            id="handle",
            role="slider",
            aria_label="Target",
            aria_valuemin=0,
            aria_valuemax=1,
            aria_valuenow=0,
        ),
        id="chart",
    )
    scale = _radios("scale", "Axes", {"log": "logarithmic", "linear": "linear"})
    save = [tag("button", f"Save {name}", type="button", data_save=name.lower()) for name in ("SVG", "PNG", "CSV")]
    return tag(
        "section",
        tag(
            "div",
            tag("p", id="target", class_="target"),
            tag("p", id="sentence", class_="headline"),
            tag("p", id="problem", class_="problem", hidden=True),
            id="verdict",
            class_="verdict",
            aria_live="polite",
        ),
        tag(
            "p",
            tag("span", class_="spinner", aria_hidden="true"),
            tag("span", "Computing", role="status"),
            tag("button", "Cancel", type="button", id="cancel"),
            id="working",
            hidden=True,
        ),
        chart,
        tag("p", "Drag the ring, or move it with the arrow keys: the noise follows.", class_="note"),
        tag("div", id="legend"),
        tag("div", scale, *save, class_="tools"),
        id="answer",
        aria_label="The answer",
    )


def _details() -> Html:
    return tag(
        "section",
        tag("div", tag("table", tag("tbody", id="rows"), aria_label="The answer in numbers"), class_="scroll"),
        tag("p", id="standing", class_="note"),
        tag("details", tag("summary", "What it assumes"), tag("ul", id="assumptions")),
        tag("h2", "The same in a terminal"),
        _copied("command"),
        tag("h2", "The same in Python"),
        _copied("python"),
        id="details",
        aria_label="The answer in detail",
    )


def _copied(identifier: str) -> Html:
    button = tag("button", "Copy", type="button", data_copy=identifier, aria_label=f"Copy the {identifier} text")
    return tag("div", tag("pre", tag("code", id=identifier), tabindex="0"), button, class_="copybox")


def labelled(name: str, label: str, *children: Html | None, wrapper: str = "field") -> Html:
    return tag("div", tag("label", label, for_=name), *children, class_=wrapper)


def text_input(identifier: str, inputmode: str = "decimal", **more: Any) -> Html:
    return tag("input", type="text", inputmode=inputmode, id=identifier, spellcheck="false", **more)


def _box(name: str, hint: str | None = None) -> Html:
    """A box for a number, a slider where its scale is known, and a place for what is wrong with it."""
    described = f"{name}-problem" + (f" {name}-hint" if hint else "")
    slider = None
    if name in _SCALES:
        words = f"{FIELDS[name]}, slider"
        ends: dict[str, int] = {"min": 0, "max": 1000, "value": 0}
        slider = tag("input", type="range", id=f"{name}-slider", aria_label=words, data_slider=name, **ends)
    return labelled(
        name,
        FIELDS[name],
        text_input(name, name=name, aria_describedby=described),
        slider,
        tag("p", hint, id=f"{name}-hint", class_="hint") if hint else None,
        _problem(name),
    )


def _select(name: str, options: dict[str, str]) -> Html:
    choices = [tag("option", text, value=value) for value, text in options.items()]
    select = tag("select", *choices, id=name, name=name, aria_describedby=f"{name}-problem")
    return labelled(name, FIELDS[name], select, _problem(name), wrapper="field wide")


def _problem(name: str) -> Html:
    return tag("p", id=f"{name}-problem", class_="problem", hidden=True)


def _radios(name: str, legend: str, options: dict[str, str]) -> Html:
    buttons = [
        tag("label", tag("input", type="radio", name=name, value=value), " ", text) for value, text in options.items()
    ]
    return tag(
        "div",
        tag("span", legend, id=f"{name}-legend"),
        *buttons,
        class_="radios",
        role="radiogroup",
        aria_labelledby=f"{name}-legend",
    )
