"""The card: one verdict, one number and one picture of all attackers, the same on the page, on one sheet, in Markdown,
in the terminal, in notebooks and in the list of audits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from gmip._html import Html, join, readable, tag
from gmip._numbers import count, interval, number, percent, rate
from gmip._svg import Axes
from gmip.attacks.attack_table import ATTACKS
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import AttackerAnswer, AuditResult, ConclusionKind, Estimate, GroupOutcome, RunAudit
from gmip.auditing.verdict import claim_of, exposed_group, untried_gradients
from gmip.report import advice_words, answer_words, check_words
from gmip.vocabulary import Rate

# -- the five verdicts ------------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """How a verdict is shown: words, the name of its colour, a shape and a sign in it, and what to do about it."""

    title: str
    tone: str
    shape: str
    sign: str
    todo: str


VERDICTS: Final[dict[ConclusionKind, Look]] = {
    "fails": Look(
        "Fails the target",
        "bad",
        "M8 1.5H16L22.5 8V16L16 22.5H8L1.5 16V8Z",
        "M8 8L16 16M16 8L8 16",
        "An attack proves it. Do not release the model: train again with the change that the card names.",
    ),
    "probably-fails": Look(
        "Probably fails",
        "likely",
        "M12 2L23 21.5H1Z",
        "M12 8.5V14.5M12 17.5V18.5",
        "There is a leak, and more is measured than the limit allows, but the excess could be chance. Treat it as "
        "failing, or audit more records.",
    ),
    "inconclusive": Look(
        "Inconclusive",
        "open",
        "M12 1.5A10.5 10.5 0 1 1 12 22.5A10.5 10.5 0 1 1 12 1.5Z",
        "M8.8 9.2A3.2 3.2 0 1 1 12 12.6V14M12 17.4V18.2",
        "The audit does not tell whether the limit is kept. Fix what the card names, or audit more records, and audit "
        "again.",
    ),
    "passes": Look(
        "Passes the attacks, no guarantee",
        "plain",
        "M3 2H21A1 1 0 0 1 22 3V21A1 1 0 0 1 21 22H3A1 1 0 0 1 2 21V3A1 1 0 0 1 3 2Z",
        "M6.5 12H17.5",
        "These attacks stay within the limit; another one may find more. For a guarantee, train with more noise.",
    ),
    "guaranteed": Look(
        "Guaranteed",
        "good",
        "M12 1L21.5 4.5V12C21.5 17.5 17.5 21.3 12 23C6.5 21.3 2.5 17.5 2.5 12V4.5Z",
        "M7 12L10.8 15.8L17 8.5",
        "A proved bound keeps the limit, under the assumptions below. Nothing to do.",
    ),
}
# Of what is guaranteed, where the record alone proves a little less than the declared noise does.
_IF_DECLARED: Final = VERDICTS["guaranteed"]._replace(
    title=f"G{answer_words.IF_DECLARED[1:]}",
    todo="A proved bound keeps the limit if noise and clipping are as declared. Nothing to do; for a limit that the "
    "record alone proves, train with about a tenth more noise.",
)
LOOKS: Final = (*VERDICTS.values(), _IF_DECLARED)
_SEES: Final = {"gradients": "gradients", "weights": "weights", "predictions": "predictions", "scores": "these scores"}
# Who that would be in life; with a list of candidates, and without.
IN_LIFE: Final = {
    ("gradients", True): "a hospital that takes part in the training and has the list of all patients of the region",
    ("gradients", False): "the server of federated learning, or anyone who records its messages",
    ("weights", True): "a company that receives the model and has the list of all customers",
    ("weights", False): "anyone who downloads the model",
    ("predictions", True): "an insurer that may ask the model and has the list of all applicants",
    ("predictions", False): "a customer who asks the model questions",
    ("scores", True): "anyone who can compute them and has a list of candidates",
    ("scores", False): "anyone who can compute them",
}


def look(run: RunAudit) -> Look:
    end = run.conclusion
    if end.kind == "guaranteed" and run.answers[end.attacker].tolerance:
        return _IF_DECLARED
    return VERDICTS[end.kind]


def quantity(name: str, value: float, text: str) -> Html:
    """A number under its name: wherever a page shows the name, it shows the same number (a test compares them)."""
    return tag("data", text, value=f"{value:.6g}", data_name=name)


def icon(of: Look) -> Html:
    paths = tag("path", d=of.shape), tag("path", d=of.sign)
    return tag("svg", *paths, viewBox="0 0 24 24", aria_hidden="true", class_="icon")


def badge(run: RunAudit) -> Html:
    """The verdict in its colour and shape."""
    of = look(run)
    return tag("span", icon(of), of.title, class_=f"mark tone-{of.tone}")


# -- the rows of the picture ------------------------------------------------------------------------------------------


class ForestRow(NamedTuple):
    """One line of a forest plot.

    key : names its numbers; small : below the label; found : None where nothing could be measured, as `note` says;
    claim : "guarantee", "forecast" or "claim", and its share, where there is one; beside : what is said of it.
    """

    key: str
    label: str
    small: str
    found: Estimate | None
    note: str = ""
    claim: tuple[str, float] | None = None
    beside: str = ""

    @property
    def numbers(self) -> str:
        if self.found is None:
            return self.note
        return f"{percent(self.found.value, 'nearest')} ({interval(self.found.lower, self.found.upper, share=True)})"


def attacker(answer: AttackerAnswer) -> str:
    """What an attacker has, in few words."""
    if not answer.knows:
        return _SEES[answer.sees]
    held = "" if answer.knows >= 1.0 else f" of {percent(answer.knows, 'nearest')}"
    return f"{_SEES[answer.sees]} and a list{held}"


def rows(run: RunAudit) -> list[ForestRow]:
    """A line for each attacker, who sees most first."""
    own = {one.attack: (one.sees, one.attacker_knows > 0.0) for one in run.attacks}
    few = {one.attack for one in run.attacks if not one.measurable(run.goal.fpr)}
    made = []
    for answer in run.answers:
        found, claim = answer.evidence, claim_of(run, answer)
        if found is not None and found.attack in few and answer.target != "missed":
            found = None  # no number where the rate has none; a limit that is exceeded counts all the same
        by = "" if found is None else found.title
        if found is not None and own.get(found.attack) != (answer.sees, answer.knows > 0.0):
            by = f"by a weaker attacker's {found.title}"
        mark, beside = None, "no guarantee"
        share = answer.claimed
        if claim is not None and share is not None and not (claim.is_bound and excludes_nothing(share)):
            word = answer_words.claim_word(claim)
            mark, beside = (word, share), f"{word} {percent(share, 'up')}"
            beside += _OPEN.get(answer.why, "") if claim.is_bound else ""
        note = "no evidence" if answer.leak == "blind" else "too few to measure"
        made.append(
            ForestRow(
                "none" if found is None else found.attack,
                attacker(answer),
                by,
                None if found is None else found.tpr,
                note,
                mark,
                beside,
            )
        )
    return made


_OPEN: Final = {
    "unchecked": ", not checked",
    "imprecise": ", not precisely checked",
    "record": ", record fails",
    "refuted": ", refuted",
}


# -- the words --------------------------------------------------------------------------------------------------------


def headline(run: RunAudit) -> str:
    """The answer in one or two sentences."""
    return "".join(part if isinstance(part, str) else part[2] for part in _headline(run, ""))


Said = list[str | tuple[str, float, str]]  # words, and numbers with their names


def _headline(run: RunAudit, key: str) -> Said:
    """The same in parts; numbers are named below `key`."""
    end, goal = run.conclusion, run.goal
    limit = (f"{key}/limit", goal.tpr, rate(goal.tpr))
    at = f"at {rate(goal.fpr)} false alarms"
    if end.kind == "inconclusive" and end.why not in ("by-chance", "wide"):
        return [_inconclusive(run)]
    answer = run.answers[end.attacker]
    if end.why == "group":
        worst = exposed_group(run.groups, goal.fpr)
        if worst is None:
            return ["In one group more members can be identified than the limit of ", limit, f" {at}."]
        kind = "class" if run.grouped_by == "class" else "group"
        found, where = worst.tpr_at[f"{goal.fpr:g}"], f"In the {kind} {worst.group!r} "
        name = f"{key}/group/{worst.group}"
        return [where, *_found(name, found), " of the members can be identified ", at, "; the limit is ", limit, "."]
    if end.kind == "guaranteed":
        claim = claim_of(run, answer)
        share = answer.claimed or 0.0
        name = f"{key}/claimed/{'' if claim is None else claim.key}"
        proved = ""
        if answer.worst is not None:
            spare = f" ({rate(answer.tolerance)} above the limit is allowed for the precision of the check)"
            proved = f" By the record alone: at most {percent(answer.worst, 'up')}{spare if answer.tolerance else ''}."
        hidden = run.check is not None and any(one.fault == "counted" for one in run.check.beyond_reach)
        whose = " Holds for records that are listed and count once." if hidden else ""
        said: Said = ["At most ", (name, share, percent(share, "up")), f" of the members can be identified {at}"]
        return [*said, "; the limit is ", limit, f".{proved}{_leak(run)}{whose}"]
    assert answer.evidence is not None
    measured = _found(f"{key}/found/{answer.evidence.attack}", answer.evidence.tpr)
    if end.kind == "fails":
        return [*measured, " of the members can be identified ", at, "; the limit is ", limit, "."]
    were = f" of the members were identified {at}"
    if end.why == "wide":
        return ["There is a leak. Whether it exceeds the limit of ", limit, " is open: ", *measured, f"{were}."]
    if end.why == "by-chance":
        chance = ", but no attack beats guessing by more than chance."
        return [measured[0], f"{were}, above the limit of ", limit, chance]
    if end.kind == "probably-fails":
        rest = ". There is a leak, but the excess over the limit could be chance (all attacks taken together)."
        return [*measured, f"{were}; the limit is ", limit, rest]
    return [*measured, f"{were}; the limit is ", limit, f".{_leak(run)}{_cut(run)}"]


def _leak(run: RunAudit) -> str:
    """Whether a run within its limit leaks."""
    found = {one.leak for one in run.answers}
    if "leak" in found:
        return " There is a leak, within the limit."
    return " No leak was detected." if found == {"none-seen"} else ""


def untried(run: RunAudit) -> str:
    """The attacks on gradients that could not run, by their titles."""
    return " and ".join(ATTACKS[one.attack].title for one in run.left_out if untried_gradients([one]))


def _cut(run: RunAudit) -> str:
    """The attacks that ended early, where nothing above the limit was found."""
    cut = " and ".join(one.title for one in run.attacks if one.cut_short)
    return f" {cut}: more time (--budget) may find more." if cut else ""


def _found(name: str, found: Estimate) -> Said:
    between = interval(found.lower, found.upper, share=True)
    return [(name, found.value, percent(found.value, "nearest")), f" ({between})"]


def _inconclusive(run: RunAudit) -> str:
    goal, why = run.goal, run.conclusion.why
    if why == "record" and run.check is not None:
        return check_words.headline(run.check)
    if why == "suspect" and run.suspicion is not None:
        return answer_words.suspicion(run, run.suspicion)
    if why == "no-attack" or not run.attacks:
        return "No attack was run."
    if why == "left-out":
        return f"{untried(run)} could not run. The other attacks are weaker: what they did not find is no evidence."
    if why == "blind":
        tied = answer_words.mostly_tied(run)
        return f"No attack could distinguish the candidates: {tied or 'all have the same score'}."
    members, others = (max(getattr(a, name) for a in run.attacks) for name in ("members", "non_members"))
    least, estimated = math.ceil(1 / goal.fpr), run.answers[0].needed or 0
    needed, about = max(estimated, least), "About" if estimated > least else "At least"
    more = f" {about} {count(needed)} of each are needed." if needed > min(members, others) else ""
    leak = ""
    if run.answers[0].leak == "leak":
        best = max(run.attacks, key=lambda one: one.mu_lower)
        leak = f"There is a leak ({best.title}: AUC {number(best.auc.value, 'nearest')}), but "
    few = f"{count(members)} members and {count(others)} non-members are too few to test "
    return f"{leak}{few}{rate(goal.tpr)} at {rate(goal.fpr)} false alarms.{more}"


def power(run: RunAudit) -> str | None:
    """What a run that passes could have hidden."""
    noticed = None if not run.answers else run.answers[0].noticed
    if run.conclusion.kind != "passes" or noticed is None:
        return None
    return (
        f"Over all false-alarm rates: 80% power to detect a leak of {percent(noticed, 'up')} shared by all members. A "
        f"leak that affects few could be missed.{answer_words.weak_attacks(run, run.answers[0])}"
    )


def claim_line(run: RunAudit) -> str | None:
    """How a claim fared: always where it is refuted, else where somebody gave it."""
    given = any(one.origin == "given" for one in run.claims)
    if not (run.verdict.kind == "exposed" or given) or not run.attacks:
        return None
    return answer_words.verdict_headline(run)


def worst_group(run: RunAudit) -> ForestRow | None:
    """The most exposed group, where there are others to compare it with."""
    worst = exposed_group(run.groups, run.goal.fpr)
    measured = [row for one in run.groups if (row := group_row(one, run)).found is not None]
    compared = len(measured) > 1 or run.conclusion.why == "group"
    return None if worst is None or not compared else group_row(worst, run)


def group_row(one: GroupOutcome, run: RunAudit) -> ForestRow:
    goal, label = run.goal, one.group
    if run.grouped_by == "class" and not one.folded:
        label = f"class {label}"  # a class is often a number
    size = f"{count(one.members)} members, {count(one.non_members)} others"
    found = answer_words.measured_at(one, f"{goal.fpr:g}")
    return ForestRow(one.group, label, size, found, "too few to measure")


def next_step(run: RunAudit) -> tuple[str, str | None]:
    """What to do, and the command that does it, where there is one."""
    first = next(iter(run.advice), None)
    if run.conclusion.kind == "inconclusive" and (first is None or first.kind in ("say-claim", "find-less")):
        more = "Audit more records, or repeat the run."
        if run.source == "deleted":
            more = (
                "Read the p-value of each person who asked (exposed-*.csv). Reference models and more non-members help."
            )
        return {
            "too-few": more,
            "wide": more,
            "by-chance": more,
            "blind": "Use scores that differ between candidates, or try other attacks (gmip attacks lists them).",
            "suspect": "Fix that, and audit again.",
            "left-out": "Give these attacks what the warnings name (background records, time), or choose the attacks "
            "(--attacks).",
        }.get(run.conclusion.why, look(run).todo), None
    if run.conclusion.kind == "passes" and (first is None or first.kind in ("say-claim", "find-less")):
        return f"Try stronger attacks. For a guarantee, train {advice_words.noisy_training(run)}.", None
    if first is None:
        return look(run).todo, None
    clip = next((one for one in run.advice if one.kind == "clip-first"), None)
    if (
        first.kind == "only-forecasts" and clip is not None
    ):  # no way there proves anything, and clipping with noise does
        return advice_words.text(clip, run), None
    ways = [one for one in run.advice if one.way is not None]
    does = ways[0] if ways and first.kind in ("to-guarantee", "only-forecasts") else first
    return advice_words.text(first, run), advice_words.command(does, run)


def accuracy(run: RunAudit) -> tuple[float, str] | None:
    """The accuracy on test data with its 95% interval (Wilson), where the number of records is known."""
    share, records = run.facts.test_accuracy, run.facts.test_records
    if share is None:
        return None
    shown = percent(share, "nearest")
    if not records:
        return share, shown
    low, high = accuracy_ends(share, records)
    return share, f"{shown} ({interval(low, high, share=True)})"


def accuracy_ends(share: float, records: int) -> tuple[float, float]:
    """Wilson's interval at 95%."""
    z = 1.96
    middle, scale = share + z * z / (2 * records), 1 + z * z / records
    half = z * math.sqrt(share * (1 - share) / records + z * z / (4 * records**2))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


# -- the picture ------------------------------------------------------------------------------------------------------


_MARKS: Final = {"guarantee": "M-5 -5H5V5H-5Z", "forecast": "M0 -5L5 4H-5Z", "claim": "M0 -5L5 0L0 5L-5 0Z"}
_WIDE: Final = 41  # characters
_CLOSE, _CLOSE_IF_NARROW = 0.09, 0.17  # of the width, between a tick and the limit, where their words would overlap


def scale_for(goal: Rate) -> Axes:
    """From the power of ten below the goal's false-alarm rate."""
    return Axes(float(f"1e{math.floor(math.log10(goal.fpr) + 1.0e-9) - 1}"))


def _unit(on: Axes, share: float) -> float:
    return max(float(on.unit(share)), 0.0)


def _place(on: Axes, share: float) -> str:
    return f"{2.0 + 96.0 * _unit(on, share):.2f}%"


def axis(goal: Rate, first: str) -> Html:
    """The first line of a forest plot: its ticks, and the limit."""
    on, limit = scale_for(goal), f"limit {rate(goal.tpr)}"
    near = {one: abs(_unit(on, one) - _unit(on, goal.tpr)) for one in on.ticks}
    ticks = []
    for one in (one for one in on.ticks if near[one] >= _CLOSE):
        anchor, place = "end" if one == 1.0 else "middle", _place(on, one)
        narrow = "close" if near[one] < _CLOSE_IF_NARROW else None
        ticks.append(tag("text", rate(one), x=place, y=15, text_anchor=anchor, class_=narrow))
    target = tag("text", limit, x=_place(on, goal.tpr), y=15, text_anchor="middle", class_="limit")
    picture = tag("svg", *ticks, target, height=20, class_="line", aria_hidden="true")
    return tag("li", tag("span", first), picture, tag("span", "members found"), class_="axis", aria_hidden="true")


def row_html(row: ForestRow, goal: Rate, key: str, kind: str = "found") -> Html:
    """One line: label, picture, numbers."""
    on, parts = scale_for(goal), []
    for share, name in ((goal.fpr, "guess"), (goal.tpr, "limit")):
        parts.append(tag("line", x1=_place(on, share), x2=_place(on, share), y1=0, y2=28, class_=name))
    if row.found is not None:
        ends = _place(on, row.found.lower), _place(on, row.found.upper)
        above = " above" if row.found.value > goal.tpr else ""
        parts.append(tag("line", x1=ends[0], x2=ends[1], y1=14, y2=14, class_=f"whisker{above}"))
        parts += [tag("line", x1=end, x2=end, y1=9, y2=19, class_=f"whisker{above}") for end in ends]
        parts.append(tag("circle", cx=_place(on, row.found.value), cy=14, r=5, class_=f"found{above}"))
    if row.claim is not None:
        word, share = row.claim
        mark = tag("path", d=_MARKS[word], class_=f"claimed {word}")
        parts.append(tag("svg", mark, x=_place(on, share), y=14, overflow="visible"))
    numbers: Html = join(row.note)
    if row.found is not None:
        named = quantity(f"{key}/{kind}/{row.key}", row.found.value, percent(row.found.value, "nearest"))
        ends_ = interval(row.found.lower, row.found.upper, share=True)
        numbers = join(tag("strong", named), tag("span", f" ({ends_})"))
    return tag(
        "li",
        tag("span", tag("bdi", row.label), tag("small", row.small) if row.small else None, class_="who"),
        tag("svg", *parts, height=28, class_="line", aria_hidden="true"),
        tag("span", numbers, tag("small", row.beside) if row.beside else None, class_="numbers"),
    )


def legend(goal: Rate, lines: Sequence[ForestRow]) -> Html:
    """What the signs of the picture mean; only those that are there."""
    limit_, found = rate(goal.tpr), [row.found.value > goal.tpr for row in lines if row.found is not None]
    shown = []
    if not all(found) or not found:
        shown.append((tag("circle", r=5, class_="found"), "measured, with its interval"))
    if any(found):
        shown.append((tag("circle", r=5, class_="found above"), f"measured above {limit_}"))
    for word, path in _MARKS.items():
        if any(row.claim is not None and row.claim[0] == word for row in lines):
            shown.append((tag("path", d=path, class_=f"claimed {word}"), word))
    items = [
        tag("span", tag("svg", mark, viewBox="-7 -7 14 14", width=14, height=14, aria_hidden="true"), words)
        for mark, words in shown
    ]
    guess = tag("span", tag("i", class_="guess", aria_hidden="true"), f"guessing: {rate(goal.fpr)}")
    limit = tag("span", tag("i", class_="limit", aria_hidden="true"), f"limit: {limit_}")
    return tag("p", *items, guess, limit, class_="signs note")


def forest(
    lines: Sequence[ForestRow], goal: Rate, key: str, worst: ForestRow | None = None, *, grouped: bool = False
) -> Html:
    """A forest plot: what is found in each line, with its interval, beside the limit.

    worst : the most exposed group, below the attackers; grouped : the lines are groups, not attackers.
    """
    drawn = [row_html(row, goal, key, "group" if grouped else "found") for row in lines]
    if worst is not None:
        drawn.append(row_html(worst._replace(label=f"worst group: {worst.label}"), goal, key, "group"))
    first, label = ("group", "Groups") if grouped else ("attacker sees", "Attackers")
    return join(
        tag("ul", axis(goal, first), *drawn, class_="forest", aria_label=label),
        legend(goal, [*lines, *([] if worst is None else [worst])]),
    )


# -- the card as HTML -------------------------------------------------------------------------------------------------


def card_html(run: RunAudit, key: str, *more: Html | None, name: Html | None = None) -> Html:
    """The card of one run; `name` stands above it, `more` below."""
    of, lines = look(run), rows(run)
    step, copied = next_step(run)
    said = _headline(run, key)
    accurate = accuracy(run)
    facts = [
        None
        if accurate is None
        else tag("li", tag("strong", "Accuracy: "), quantity(f"{key}/accuracy", *accurate), " on test data"),
        *(tag("li", text) for text in (claim_line(run), power(run)) if text is not None),
        tag("li", tag("strong", "Next: "), step, command_html(copied)),
    ]
    return tag(
        "div",
        name,
        tag("p", icon(of), of.title, class_="verdict-title"),
        tag("p", *(part if isinstance(part, str) else quantity(*part) for part in said), class_="headline"),
        forest(lines, run.goal, key, worst_group(run)) if lines else None,
        tag("ul", *facts, class_="facts"),
        *more,
        class_=f"verdict tone-{of.tone}",
    )


def command_html(text: str | None) -> Html | None:
    """A command with a button that copies it."""
    if text is None:
        return None
    button = tag("button", "Copy", type="button", class_="copy needs-script", aria_label=f"Copy the command {text}")
    said = tag("span", role="status", class_="copied")
    return tag("div", tag("code", text, tabindex="0"), button, said, class_="command")


def runs_html(result: AuditResult, *, linked: bool = True) -> Html:
    """Several runs: the same rows for each, with its verdict and accuracy."""
    blocks, every = [], []
    for i, run in enumerate(result.runs, 1):
        lines, accurate, key = rows(run), accuracy(run), f"run-{i}"
        every += lines
        name = tag("a", tag("bdi", run.name), href=f"#{key}") if linked else tag("bdi", run.name)
        right = None if accurate is None else tag("span", "accuracy ", quantity(f"{key}/accuracy", *accurate))
        head = tag("li", tag("span", name), badge(run), right, class_="run-head")
        blocks += [head, *(row_html(row, run.goal, key) for row in lines)]
    goal = result.runs[0].goal
    return join(
        tag("ul", axis(goal, "attacker sees"), *blocks, class_="forest", aria_label="Runs"), legend(goal, every)
    )


def meaning(result: AuditResult) -> list[str]:
    """Said once: what a false alarm is, what the interval is, and who the attackers would be in life."""
    known = {(one.sees, one.knows > 0.0): attacker(one) for run in result.runs for one in run.answers}
    sure = rate(result.confidence)
    inherits = " Attackers who see more can also run the weaker attacks." if len(known) > 1 else ""
    fpr = result.runs[0].goal.fpr
    return [
        f"A false alarm is a non-member that the attacker takes for a member. At {rate(fpr)} it happens to about 1 in "
        f"{count(round(1 / fpr))} non-members.",
        f"Intervals: the lower end decides the verdict and holds with {sure} confidence for all attacks together; the "
        f"upper end holds for this attack alone. The strongest attack has the highest lower end.{inherits}",
        "A guarantee is a proved bound. A forecast is an expectation: an attacker can do better.",
        *(f"{words[:1].upper()}{words[1:]}: {IN_LIFE[kind]}." for kind, words in known.items()),
    ]


# -- the card as text -------------------------------------------------------------------------------------------------


def card_text(run: RunAudit) -> list[str]:
    """Lines for a terminal, a notebook and Markdown."""
    of, goal, lines = look(run), run.goal, rows(run)
    said = [f"{of.title.upper()}: {headline(run)}"]
    if lines:
        said += ["", *forest_text(lines, goal)]
    group, accurate, (step, copied) = worst_group(run), accuracy(run), next_step(run)
    said.append("")
    if group is not None and group.found is not None:
        said.append(f"Worst group: {group.label} {group.numbers}")
    if accurate is not None:
        said.append(f"Accuracy: {accurate[1]} on test data")
    said += [text for text in (claim_line(run), power(run)) if text is not None]
    said += [f"Next: {step}", *([] if copied is None else [f"  {copied}"])]
    return [_one_line(one) for one in said]


def runs_text(result: AuditResult) -> list[str]:
    """Several runs: the same rows for each."""
    said = axis_text("run and attacker", result.runs[0].goal)
    for run in result.runs:
        accurate = accuracy(run)
        right = "" if accurate is None else f"; accuracy {accurate[1]}"
        said.append(f"{run.name}: {look(run).title}{right}")
        said += [_line(f"  {row.label}", row, run.goal) for row in rows(run)]
    return [_one_line(one) for one in said]


def _one_line(text: str) -> str:
    """No name breaks a line, or speaks to a terminal."""
    return readable(text.replace("\n", " "))


def forest_text(lines: Sequence[ForestRow], goal: Rate, label: str = "attacker") -> list[str]:
    """A forest plot in characters."""
    words = {"guarantee": "G guarantee", "forecast": "F forecast", "claim": "C claim"}
    there = {row.claim[0] for row in lines if row.claim is not None}
    signs = [text for word, text in words.items() if word in there]
    signs = ["o measured", ". guessing", "! limit", *signs]
    return [*axis_text(label, goal), *(_line(row.label, row, goal) for row in lines), f"{'':23}{'   '.join(signs)}"]


def axis_text(label: str, goal: Rate) -> list[str]:
    on = scale_for(goal)
    ticks = [" "] * (_WIDE + 5)
    for one in on.ticks:
        text = rate(one)
        at = max(0, round(_unit(on, one) * (_WIDE - 1)) - len(text) // 2)
        ticks[at : at + len(text)] = text
    return [f"{label:22} {''.join(ticks).rstrip()}"]


def _line(label: str, row: ForestRow, goal: Rate) -> str:
    on, cells = scale_for(goal), [" "] * _WIDE

    def at(share: float) -> int:
        return round(_unit(on, share) * (_WIDE - 1))

    cells[at(goal.fpr)] = "."
    if row.found is not None:
        low, high = at(row.found.lower), at(row.found.upper)
        cells[low : high + 1] = "-" * (high - low + 1)
        cells[low] = cells[high] = "|"
    cells[at(goal.tpr)] = "!"
    if row.claim is not None:
        cells[at(row.claim[1])] = row.claim[0][0].upper()
    if row.found is not None:
        cells[at(row.found.value)] = "o"
    beside = f"; {row.beside}" if row.beside else ""
    return f"{label[:22]:22} {''.join(cells)}  {row.numbers}{beside}"
