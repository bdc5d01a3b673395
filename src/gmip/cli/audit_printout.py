"""What `gmip audit` prints for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmip import _numbers
from gmip.cli import show

if TYPE_CHECKING:
    from gmip.auditing.schema import AttackOutcome, AuditResult, Gate, RunAudit, RunCheck
    from gmip.report import Written

__all__ = ["print_audit"]


def _record(check: RunCheck) -> str:
    if not check.passed:
        return "does not match the declared run"
    hidden = "but for what is beyond reach" if check.beyond_reach else ""
    left = f"{len(check.unchecked)} of {len(check.outcomes)} not checked" if check.unchecked else ""
    return "; ".join(part for part in (f"matches {hidden}".strip(), left) if part)


def _share(attack: AttackOutcome, key: str) -> str:
    from gmip.report.answer_words import measured_at

    found = measured_at(attack, key)
    return "not measured" if found is None else _numbers.percent(found.value, "nearest")


def _gate(gate: Gate) -> str:
    if gate.blind:
        return "could not fail"
    if not gate.passed:
        return "CANNOT TELL" if gate.doubted else "FAILED"
    if gate.noticeable_tpr is None:
        return "passed"
    return f"passed (fails, with a chance of 80%, where {_numbers.percent(gate.noticeable_tpr, 'up')} can be found)"


def _promise(run: RunAudit, label: str) -> str:
    """With what was promised, where somebody said so."""
    from gmip.report.verdict_words import given_words

    given = next(map(given_words, run.promises), "")
    return f"{label} ({given})" if given else label


def print_audit(result: AuditResult, written: Written) -> None:
    """The answers about each run, the price of its advice where that was measured, and where the report is."""
    from gmip.report import answer_words, check_words
    from gmip.report.sentences import cautions
    from gmip.report.verdict_words import label

    if len(result.runs) > 1:
        print(answer_words.ship(result).words)
    for one in result.runs:
        rows = [("run", one.name)]
        for answer in one.answers:
            leak, target = answer_words.badges(answer)
            rows.append((answer_words.who(answer), f"{leak.text}. {target.text}."))
        rows.append(("the promise", _promise(one, label(one.verdict))))
        if one.check is not None:
            rows.append(("the record", _record(one.check)))
        rows += [
            (
                f"members found at {_numbers.rate(key)} false alarms, "
                + ("promised at most" if promise.is_bound else "forecast, about")
                + (" (by noise alone: differential privacy)" if promise.key == "gdp" else ""),
                _numbers.percent(most, "up"),
            )
            for number, promise in enumerate(one.promises)
            if number == 0 or promise.key == "gdp"
            for key, most in promise.tpr_at.items()
        ]
        for attack in one.attacks:
            found = ", ".join(f"{_share(attack, key)} at {_numbers.rate(key)}" for key in attack.tpr_at)
            rows.append((f"{attack.attack}: AUC {_numbers.number(attack.auc.value, 'nearest')}, members found", found))
        if one.gate is not None:
            rows.append(("gate", _gate(one.gate)))
        whose = f"{one.name}: " if len(result.runs) > 1 else ""
        hidden = check_words.beyond_reach(one.check)
        said = cautions(one) if hidden is None else (*cautions(one), hidden)
        show.print_people(rows, f"{whose}{answer_words.headline(result, one)}", said)
    for one in result.runs:
        if one.tried is not None or one.tried_left_out is not None:
            _print_tried(one)
    print(f"Report: {written.html}")
    if written.shared is not None:
        print(f"To share: {written.shared}")


def _print_tried(run: RunAudit) -> None:
    """What each way to the target costs, the most accurate first."""
    from gmip.report.advice_part import price_notes, ways_table

    table = ways_table(run)
    rows = []
    for way, setting, found, accuracy in table.rows:
        what = way.text if setting.text == "\u2013" else f"{way.text}: {setting.text}"
        rows.append((f"{what} ({found.text})", accuracy.text))
    notes = price_notes(run) if run.tried is not None else [run.tried_left_out or ""]
    show.print_people(rows, f"{run.name}: {table.caption}", notes)
    for one in run.advice:
        if one.way is not None and one.command is not None:
            print(f"# {one.way.name}\n{one.command}")
