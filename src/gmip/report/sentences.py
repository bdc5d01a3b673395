"""The sentences of a report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gmip._numbers import byte_size, count, duration, number, percent, rate
from gmip.accounting.individual import NEIGHBOURS
from gmip.auditing.schema import AttackOutcome, AuditResult, Deletion, Gate, OmittedAttack, Persons, RunAudit
from gmip.errors import GmipError
from gmip.report import answer_words, card, check_words

if TYPE_CHECKING:
    from gmip.attacks.work import WorkPlan
    from gmip.auditing.sources.recorded import PlannedAttack

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


# Facts that attacks tell about themselves, by name; others are shown as "Name: value."
_FACTS = {
    "method": "Method: {}.",
    "rank": "Directions that the covariance keeps: {}.",
    "cutoff": "Directions below {} of the largest variance are left out.",
    "ridge": "Ridge: {}.",
    "background": "{} background records.",
    "population": "{} records that no shadow model was trained on.",
    "variance": "Variance of shadow models: {}.",
    "shadows": "{} shadow models.",
    "folder": "Shadow models are in {}.",
    "tries": "{} seeds were tried.",
    "space": "Distances are measured in the output of {}.",
    "converged": "Share of searches that converged: {}.",
    "shadows_converged": "Share of searches that converged, over shadow models: {}.",
    "found": "Share of candidates with a counterfactual: {}.",
    "coverage": "Share of the members on its list that the attack assumes: {}.",
    "coverage_estimated": "That share is estimated: {}.",
    "decoded": "Share of candidates decided at odds of 100 to 1: {}.",
    "bits": "Bits found per candidate: {}.",
    "misfit": "Unexplained, relative to what the model expects (1 where it is right): {}.",
    "steps": "{} steps were used.",
    "not_needed": "{} more were not needed: nearly all candidates were decided, in self-play and in the run.",
    "projected_to": "Gradients were projected to {} numbers, which saves time and memory.",
    "sweeps": "{} sweeps over them.",
    "settled": "The sweeps settled: {}.",
    "iterations": "Mean number of steps of a search: {}.",
    "reach": "Farthest distance tried: {}.",
}
_LONGEST_FACT = 80
_LIMITS = {
    "untried": "The model and the loss could not be tried on a few records ({problem}), so gmip did not check whether "
    "the model ends in softmax under cross-entropy, or whether the loss mixes records. Both make attacks find too "
    "little.",
    "softmax": "The model returns probabilities where cross-entropy expects logits: it seems to end in softmax, which "
    "the loss already applies. Its losses then differ little, and loss attacks find little.",
    "dropout": "The model drops units at random while it trains (layer {layer}): the published gradients are those of "
    "the thinned model, attacks compute those of the whole one and find too little.",
    "own-gradients": "Own mus by noise alone are not known: {problem}",
}


def attack_notes(attack: AttackOutcome) -> tuple[str, ...]:
    """What an attack tells about itself, and its warnings."""
    facts = [
        _FACTS.get(name, f"{name.replace('_', ' ').capitalize()}: {{}}.").format(_fact(value))
        for name, value in attack.facts.items()
        if len(str(value)) <= _LONGEST_FACT
    ]
    if attack.guessed_seed is not None:
        facts.insert(0, f"The seed is {attack.guessed_seed}.")
    if attack.cut_short:
        facts.append("The attack was cut short to stay within the budget.")
    return tuple(dict.fromkeys([*facts, *map(_sentence, attack.notes)]))


def _sentence(warning: str) -> str:
    """A warning of Python as a report words it: a capital letter, no signs of code."""
    return warning[:1].upper() + warning[1:].replace("`", "")


def _fact(value: str | bool | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value, "nearest") if isinstance(value, float) else str(value)


def cautions(run: RunAudit) -> tuple[str, ...]:
    """What limits the audit of a run: warnings of its attacks, and what was not recorded."""
    said = [*answer_words.turned_scores(run)]
    if run.suspicion is not None:
        said.insert(0, answer_words.suspicion(run, run.suspicion))
    if run.repeated:
        said.append(
            f"{count(run.repeated)} candidates have the same scores as another on their side, as repeated records "
            f"do. Each distinct record was judged once."
        )
    said += [] if run.persons is None else _persons(run.persons)
    if (column := run.unused_column) is not None:
        said.append(
            f"Column {column.name!r} has {count(column.values)} values for {count(column.rows)} rows and was not used: "
            "each row counted as one person. If it names the person, say so (--column "
            f"person={column.name})."
        )
    if (both := run.in_both_files) is not None:
        said.append(
            f"Left out because they are in both files: {count(both.members)} of {count(both.of_members)} members and "
            f"{count(both.non_members)} of {count(both.of_non_members)} non-members."
        )
    if run.source == "estimator":
        half = "" if run.facts.dataset_size is None else f" ({run.facts.dataset_size})"
        said.insert(
            0,
            f"The estimator was refitted on a random half of the records{half}; the others are the non-members. "
            f"This audits how it is trained, not a model that was fitted before.",
        )
    if run.deletion is not None:
        said.insert(0, _deletion(run.deletion))
    said += [*map(left_out, run.left_out), *map(_sentence, run.warnings)]
    said += [_LIMITS[one.kind].format(problem=one.problem, layer=one.layer) for one in run.limits]
    if not run.facts.complete:
        said.append("The run was not finished when it was audited: only its first steps were attacked.")
    if run.facts.recorded_params is not None:
        said.append("Only some of the parameters were recorded: an attacker who sees all of them may find more.")
    if run.facts.clients is not None:
        said.append(_replies(run.facts.clients))
    said += check_words.unchecked(run.check)
    return tuple(dict.fromkeys(said))


def _replies(clients: int) -> str:
    """What of the clients' models attackers saw."""
    if clients == 1:
        return "The attacker saw the model of each client, as a server does without secure aggregation."
    return (
        f"The attacker saw the average of {count(clients)} clients' models in each round, as after secure aggregation. "
        "A server that sees each of them may find more: record with per_client=True."
    )


def _deletion(found: Deletion) -> str:
    """Says who members are, and how many are found; and how many were before, without which nobody found is no news."""
    said = (
        "Members are the people who asked to be deleted; non-members were never in the data. At 5% false alarms, "
        f"traces of {percent(found.found, 'nearest')} of the deleted people are found"
    )
    last = "exposed-*.csv has the p-value of each."
    if found.before is None:
        return f"{said}. {last} Whether this test can find anybody is not known: pass the release before as well."
    said += f", and of {percent(found.before, 'nearest')} in the release before. {last}"
    if found.before <= 0.05 and found.found <= 0.05:
        said += " The release before shows no traces either, so finding none proves nothing: add reference models."
    return said


def _persons(found: Persons) -> list[str]:
    """Says that rows were judged together, and what limits that."""
    said = [
        f"{count(found.rows)} rows belong to {count(found.persons)} persons (at most {count(found.most_rows)} each): "
        "every person was judged once, by all rows together."
    ]
    if found.on_both_sides:
        said.append(
            f"{count(found.on_both_sides)} persons have rows among members and among non-members and were left out. "
            "These are mostly persons with many rows: split by person, not by row."
        )
    if found.uneven:
        said.append(
            "Members and non-members differ in their number of rows, which can look like a leak: compare persons with "
            "equally many rows."
        )
    return said


def left_out(one: OmittedAttack) -> str:
    """Says that an attack could not run, and why."""
    why = GmipError(one.problem, remedy=one.remedy).sentence()
    subject = "" if one.argument is None else one.argument + ("" if one.value is None else f" = {one.value}") + " "
    return f"The attack {one.attack} could not run and was left out: {subject}{why}"


def moment(created: str) -> str:
    """ "5 March 2026, 14:02 UTC"; a text that is no date stays as it is."""
    try:
        when = datetime.fromisoformat(created)
    except ValueError:
        return created
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}, {when:%H:%M} UTC"


# -- sentences --------------------------------------------------------------------------------------------------------


def facts_title(run: RunAudit) -> str:
    return "What was audited" if run.facts.num_steps is None else "What ran"


def guarantee(run: RunAudit) -> list[str]:
    """How the claim fared, and whether the record is that of the declared run."""
    said = [answer_words.verdict_headline(run), *answer_words.verdict_reasons(run)] if run.claims else []
    if run.check is not None:
        hidden = check_words.beyond_reach(run.check)
        said += [check_words.headline(run.check), *([] if hidden is None else [hidden])]
    return list(dict.fromkeys(said))


def not_shown() -> str:
    return (
        "What this does not show: another attack may find more. Large differences between small groups of records, or "
        "rows of a person that cancel, can hide a leak. Nothing is said about the content of records, or about "
        "attackers who chose or changed training data."
    )


def attack_title(run: RunAudit, name: str) -> str:
    """The title of the attack of that name."""
    return next((a.title for a in run.attacks if a.attack == name), name)


def gate(run: RunAudit, found: Gate) -> str:
    """Whether a run passes its gate, and why that may say little."""
    if found.doubted:
        return f"Cannot tell, so it does not pass: {_doubt(run)}"
    if found.blind:
        return f"Passed only because it could not fail: {_blind_gate(run, found)}."
    if found.probable:
        return f"Failed, since the run probably fails the target. {card.headline(run)}"
    if found.within_group:
        within = answer_words.within_group(run, found.fpr)
        return f"Failed: at {rate(found.fpr)} false alarms {within}; the target is {rate(found.limit)}."
    text = (
        f"{'Passed' if found.passed else 'Failed'}: at {rate(found.fpr)} false alarms at least "
        f"{percent(found.tpr_lower, 'down')} of the members are found ({attack_title(run, found.attack)}); "
        f"the target is {rate(found.limit)}."
    )
    if not found.passed or found.noticeable_tpr is None:
        return text
    return f"{text} It has 80% power to fail where {percent(found.noticeable_tpr, 'up')} or more can be found."


def _doubt(run: RunAudit) -> str:
    """Why finding nothing is no evidence."""
    if run.check is not None and not run.check.passed:
        return "The record does not match the run, so finding nothing in it is no evidence."
    if run.conclusion.why == "left-out":
        return card.headline(run)
    return "" if run.suspicion is None else answer_words.suspicion(run, run.suspicion)


def _blind_gate(run: RunAudit, found: Gate) -> str:
    """Why a gate could not fail."""
    if all(one.blind for one in run.attacks):
        return "every attack gave all candidates the same score"
    if tied := answer_words.mostly_tied(run):
        return f"{tied}, so hardly any attack could have failed it"
    return (
        "there are too few candidates for a target of "
        f"{rate(found.limit)} at {rate(found.fpr)} false alarms, so even an attack that finds every member would pass"
    )


def failed_gates(result: AuditResult) -> list[str]:
    """A sentence for each run that does not pass its gate."""
    return [f"{one.name}: {gate(one, one.gate)}" for one in result.runs if one.gate is not None and not one.gate.passed]


def groups(result: AuditResult, run: RunAudit) -> str:
    """How the table of groups is to be read."""
    attack = attack_title(run, run.exposed_by) if run.exposed_by else "the strongest attack"
    found = sum(1 for one in run.groups if one.mu_lower)
    number_of_groups = sum(one.folded or 1 for one in run.groups)
    several = number_of_groups > 1
    text = (
        f"Members against non-members of each {run.grouped_by or 'group'} (attack: {attack}). Intervals "
        f"hold with {rate(result.confidence)} confidence for {'all groups' if several else 'the group'} and "
        f"attacks together. Leak detected in {found} of {number_of_groups} {'groups' if several else 'group'}."
    )
    folded = sum(one.folded for one in run.groups)
    if folded:
        text += f" Groups with few members or non-members are not named here: {folded}."
    small = sum(1 for one in run.groups if one.auc is None and not one.folded)
    return f"{text} Not measured: {small} with fewer than 2 members or 2 non-members." if small else text


def individual(run: RunAudit) -> str | None:
    """How many records the claim does not cover, by their own gradients."""
    own = run.individual
    if own is None or not own.members:
        return None
    about = "forecast, " if own.kind == "forecast" else ""
    median, largest = ("unlimited" if mu is None else number(mu, "up") for mu in (own.median_mu, own.largest_mu))
    data = "against an attacker who knows no members, by its measured susceptibility"
    compared = NEIGHBOURS[run.declared[0].sampling] if run.declared else "the same run without it"
    noise = f"by noise alone, against an attacker who knows all others, compared with {compared}"
    by = {"data": data, "noise": noise, "either": f"{data}; or, where less, {noise}"}[own.by]
    text = f"Exposure of single records by their own gradients ({about}{by}): median mu {median}, "
    text += f"largest {largest} of {count(own.members)} members."
    if own.beyond is None or own.claimed_mu is None:
        return text
    whose = "the claim" if own.kind == "forecast" else "the guarantee by noise alone"
    return f"{text} {percent(own.beyond, 'up')} of them exceed {whose} (mu {number(own.claimed_mu, 'up')})."


# -- a plan: what an audit is going to do, before it does it ----------------------------------------------------------


def plan_title(one: PlannedAttack) -> str:
    """What a table is about."""
    return f"{one.attack} on {one.run}"


def plan_rows(work: WorkPlan, workers: int | None) -> list[tuple[str, str]]:
    """Names and values of a table; `workers` is None where a cluster has to be asked how many it has."""
    found = [("records and steps", f"{count(work.records)} x {count(work.steps)}")]
    several = f"{count(workers)} workers" if workers is not None else "n workers"
    if not work.pieces:
        found.append(("pieces for workers", "none: all in one process"))
    else:
        kind = "steps" if work.piece == "step" else "strips of a step"
        found.append(("pieces for workers", f"{count(work.pieces)} {kind}, {duration(work.each)} each"))
    if workers == 1 or not work.pieces:
        found += [
            ("memory", byte_size(max(work.memory, work.memory_here))),
            ("time", f"about {duration(work.seconds(1))}"),
        ]
    else:
        time = duration(work.alone) + f" + {duration(work.each)} x {count(work.pieces)} / n"
        found += [
            ("memory of each worker", byte_size(work.memory)),
            ("memory of this process", byte_size(work.memory_here)),
            ("sent to each worker once", byte_size(work.once)),
            ("moved for each piece", byte_size(work.moved)),
            (f"time with {several}", f"about {time if workers is None else duration(work.seconds(workers))}"),
        ]
        if workers is not None:
            found.append(("moved in all", byte_size(work.bytes_moved(workers))))
    if work.left_out:
        found.append(("left out", work.left_out))
    return found


def plan_notes(planned: Sequence[PlannedAttack], workers: int | None) -> list[str]:
    """What a reader has to know about all the tables."""
    known = [one.work for one in planned if one.work is not None]
    unknown = [plan_title(one) for one in planned if one.work is None and one.error is None]
    said = [f"{plan_title(one)} will not run: {one.error}" for one in planned if one.error is not None]
    if known and workers is not None:
        said.append(f"In all about {duration(sum(work.seconds(workers) for work in known))}.")
    said.append(
        "Times are estimated from one piece of work on this machine; memory is on top of the program itself (torch: "
        "about 0.4 GiB). No attack was run."
    )
    rest = ["the check of the record", *unknown]
    said.append(f"Not estimated: {', '.join(rest)}.")
    return said
