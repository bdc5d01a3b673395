"""`gmip audit`: does this model leak who was in its training data?"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer
from pydantic import Field

from gmip._extras import needs
from gmip._io import hold_folder, read_yaml, writing
from gmip.auditing.settings import AuditConfig, make_config
from gmip.cli import parse, show
from gmip.cli.errors import BadRequest, option_name
from gmip.cli.options import Option, from_settings
from gmip.cli.shared_settings import YAML, OutputSettings, WorkerSettings

if TYPE_CHECKING:
    from gmip.auditing.schema import AuditResult, RunAudit
    from gmip.canaries.coins import PlantedRun
    from gmip.report import ReportFiles

WHAT, HOW, OUTPUT = "What to audit", "How to audit", "Output"
_OF_TABLES: Final = (
    "typed",
    "source",
    "columns",
    "attacks",
    "claim",
    "target",
    "gate",
    "seed",
    "out",
    "junit",
    "as_json",
)


def _runs(option: str, texts: Sequence[str]) -> list[dict[str, str]]:
    """Recorded runs as NAME=DIR or DIR; an address will do, too."""
    runs = []
    for text in texts:
        name, equals, path = text.partition("=")
        named = equals and name and "://" not in name  # an address may hold an = of its own
        runs.append({"name": name, "path": path} if named else {"path": text if "://" in name else path or text})
    return runs


def _columns(option: str, texts: Sequence[str]) -> dict[str, list[str]]:
    from gmip.auditing.prediction_table import PREDICTION_ROLES

    roles = tuple(dict.fromkeys(("member", "score", *PREDICTION_ROLES)))
    return parse.columns(option, texts, roles, of_values=True)


class AuditSettings(OutputSettings, WorkerSettings, AuditConfig):
    """Settings of `gmip audit`: some of those of an audit, and what is typed in place of others. What was not typed is
    left to the YAML file."""

    options: ClassVar[Mapping[str, Option]] = {
        "runs": Option(
            *("[NAME=]DIR", WHAT, _runs),
            repeated=True,
            help="A recorded run; repeat for several. Without it, gmip trains one with the task's recipe.",
        ),
        "attacks": Option("A,B,...", WHAT),
        "attacker": Option("gradients|weights|predictions", HOW),
        "claim": Option("MEASURE=VALUE", HOW, once=True),
        "target": Option("tpr=TPR@FPR", HOW, once=True),
        "budget": Option("TIME", HOW),
        "seed": Option("SEED", HOW),
        "device": Option("NAME", HOW),
        "try_advice": Option(None, HOW),
        "out": Option("DIR", OUTPUT),
        "gate": Option(None, OUTPUT),
    }

    source: Annotated[
        str | None,
        Option("TASK|AUDIT.YAML|TABLE", argument=True),
        Field(
            description="A built-in task or path/to/file.py:make_task (default digits), a settings file, or a file of "
            "scores or predictions (.csv, .jsonl, .parquet)."
        ),
    ] = None
    model: Annotated[
        str | None,
        Option("FILE|DIR", WHAT),
        Field(description="Weights of a released model (.safetensors, .pt, a folder of save_pretrained)."),
    ] = None
    members: Annotated[
        str | None,
        Option("FILE", WHAT),
        Field(
            description="Its training records: a table of rows of the task's pool or of records, or rows such as 0:250."
        ),
    ] = None
    non_members: Annotated[
        str | None,
        Option("FILE", WHAT),
        Field(description="Records that were not in the training data, in the same form."),
    ] = None
    columns: Annotated[
        dict[str, list[str]] | None,
        Option("ROLE=NAME", WHAT, _columns, repeated=True),
        Field(
            description="Column of a file of scores or predictions; ROLE is member, score, label, probability, logit, "
            "loss, id, person, group or run; repeat for several. member:VALUE=NAME: members "
            "are the rows where it says VALUE; probability:CLASS=NAME: the probability of that class."
        ),
    ] = None
    plan: Annotated[
        bool,
        Option(None, HOW),
        Field(
            description="Audit nothing: print what the attacks on recorded runs (--run) are going to do, by a piece of "
            "each that is measured: pieces for --workers, memory, bytes moved and time."
        ),
    ] = False
    junit: Annotated[
        str | None, Option("FILE", OUTPUT), Field(description="Also write verdict, claim and gate as JUnit XML.")
    ] = None

    def config(self) -> dict[str, Any]:
        """What was typed, as settings of an audit; shadow models apart."""
        found: dict[str, Any] = {
            name: getattr(self, name) for name in AuditConfig.model_fields if name in self.model_fields_set
        }
        released = self._released()
        return found if released is None else found | {"runs": released}

    def _released(self) -> list[dict[str, str]] | None:
        """The one run that is a released model."""
        given = {"model": self.model, "members": self.members, "non_members": self.non_members}
        known = {name: value for name, value in given.items() if value is not None}
        if not known:
            return None
        if len(known) < len(given):
            lacking = option_name(next(name for name in given if name not in known))
            raise BadRequest(
                f"An audit of a released model needs {lacking}",
                remedy="pass --model, --members and --non-members together",
            )
        if "runs" in self.model_fields_set:
            raise BadRequest(
                "--run and --model are both given", remedy="audit one after the other, and gmip report A B compares"
            )
        return [known]


@from_settings(AuditSettings)
def audit(asked: AuditSettings) -> None:
    """Attack a trained model and write a report of what leaks.

    The report compares what the attacks find with what was claimed.

    Examples: gmip audit digits
              gmip audit my_project.py:make_task --run runs/a --attacks glir,loss,lira
              gmip audit audit.yaml --target tpr=0.05@0.01 --gate
              gmip audit my_project.py:make_task --model weights.safetensors
                  --members members.csv --non-members others.csv
              gmip audit scores.csv --claim mu=1
              gmip audit predictions.csv --attacks loss,lira

    A file of scores has a column member (1 or 0) and one or more columns of
    scores (higher: more likely a member), of any attack in any framework. A
    file of predictions has member, label, and p_CLASS or logit_CLASS for each
    class, or loss; and of reference models the same as ref_NAME_.... The
    canaries.csv of gmip train --canaries is a file of scores: it is tested
    against the guarantee of its run.

    AUDIT.YAML has settings that no option has; gmip init writes one.

    Interrupted? Run the command again: it continues where it stopped.

    The folder names the most exposed members and holds the trained models:
    protect it like the data. Exit codes: 0; 1 if --gate fails; 2 if the request
    is wrong.
    """
    source = asked.source
    table = source is not None and _is_table(Path(source))
    if asked.plan and not table:
        _print_plan(asked)
        return
    _remove_former(asked.junit)
    result, written = _audit_table(asked, Path(str(source))) if table else _audit_runs(asked)
    _finish(result, written, asked)


def _is_table(path: Path) -> bool:
    """Whether it is a file of scores or predictions, or one that is refused with a way to make one of it."""
    from gmip._tables import SUFFIXES

    suffix = path.suffix.lower()
    return suffix in SUFFIXES or (suffix not in ("", ".py", *YAML) and path.is_file())


def _planted(table: Path) -> PlantedRun | None:
    """The run of gmip train --canaries that wrote a table."""
    from gmip.canaries.coins import ABOUT, TABLE, read_canaries

    return read_canaries(table.parent) if table.name == TABLE and (table.parent / ABOUT).is_file() else None


def _audit_table(asked: AuditSettings, path: Path) -> tuple[AuditResult, ReportFiles]:
    """The audit of a file of scores or predictions: no framework is loaded, nothing is written before it is read."""
    for name in AuditSettings.model_fields:
        if name in asked.model_fields_set and name not in _OF_TABLES:
            raise BadRequest(
                "does not apply to a file of scores or predictions", argument=option_name(name), remedy="leave it out"
            )
    from gmip import auditing, report
    from gmip.auditing.sources.table_sources import TableFile

    planted = _planted(path)
    given = {name: getattr(asked, name) for name in ("claim", "target", "gate")} | {"seed": asked.seed or 0}
    if planted is not None and asked.claim is None:
        given["claim"] = planted.claim
    names = None if "attacks" not in asked.model_fields_set else [one.name for one in asked.attacks]
    table = auditing.read_scores(path, asked.columns or {}, names)
    title = None if planted is None else f"Audit of {planted.planted} canaries"
    with hold_folder(asked.out), show.stages() as watch:
        by = auditing.JudgeSettings.of(given)
        read = TableFile(table, path)
        source = read if planted is None else planted.checked(read)
        result = auditing.audit_sources([source], by, title=title, command=asked.typed, watch=watch)
        return result, report.write_report(result, asked.out)


def _audit_runs(asked: AuditSettings) -> tuple[AuditResult, ReportFiles]:
    """The audit of a task: of recorded runs, a released model, or runs to train."""
    config = _config(asked)
    from gmip import auditing, report

    with hold_folder(config.out):
        with show.warnings_in_one_line(), show.stages() as watch:
            try:
                result = auditing.run_audit(config, watch=watch, command=asked.typed)
            except KeyboardInterrupt:
                print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
                raise
        return result, report.write_report(result, config.out)


def _config(asked: AuditSettings) -> AuditConfig:
    """The settings of an audit of a task."""
    if asked.columns is not None:
        raise BadRequest("applies to a file of scores or predictions", argument="--column", remedy="leave it out")
    given, source = asked.config(), asked.source
    path = source if source is not None and source.lower().endswith(YAML) else None
    if source is not None and path is None:
        given["task"] = source
    needs("gmip audit", "torch")
    settings = {} if path is None else read_yaml(path)
    if asked.workers:
        shared = settings.get("shadows", {})
        given["shadows"] = (dict(shared) if isinstance(shared, dict) else {}) | asked.workers
    return make_config(settings | given, path)


def _print_plan(asked: AuditSettings) -> None:
    """What the audit is going to do, for each attack."""
    from gmip.auditing.audit import sources_of
    from gmip.auditing.sources.recorded import plan_audit
    from gmip.report import sentences

    config = _config(asked)
    planned, workers = plan_audit(config, sources_of(config)), config.shadows.asked_workers()
    count = 1 if workers is None else workers.workers
    if asked.as_json:
        show.print_json({"workers": count, "attacks": [one.as_json(count) for one in planned]})
        return
    for one in planned:
        if one.work is not None:
            show.print_people(sentences.plan_rows(one.work, count), sentences.plan_title(one), ())
    print("\n".join(sentences.plan_notes(planned, count)))


def _finish(result: AuditResult, written: ReportFiles, asked: AuditSettings) -> None:
    """Say what was found; exit code 1 if it is more than the gate lets through."""
    from gmip.report import write_junit
    from gmip.report.sentences import gate

    if asked.junit is not None:
        write_junit(result, Path(asked.junit))
    if asked.as_json:
        print(written.json.read_text(encoding="utf-8"), end="")
    else:
        print_audit(result, written)
    sys.stdout.flush()  # a full disk is not to look like a failed gate
    for one in result.runs:
        if one.gate is not None and (not one.gate.passed or one.gate.blind):
            print(f"{one.name}: {gate(one, one.gate)}", file=sys.stderr)
    if result.passed is False:
        raise typer.Exit(1)


def _remove_former(junit: str | None) -> None:
    """A verdict of an earlier audit is not to stand where this one ends early."""
    if junit is None or not Path(junit).is_file():
        return
    with writing(Path(junit)):
        if b"gmip.audit" in Path(junit).read_bytes():
            Path(junit).unlink()


# -- what is printed for people ----------------------------------------------------------------------------------------


def print_audit(result: AuditResult, written: ReportFiles) -> None:
    """The card of each run, its warnings, the price of its advice where that was measured, and where the report is."""
    from gmip.report import answer_words, card, check_words
    from gmip.report.sentences import cautions, gate

    several = len(result.runs) > 1
    if several:
        print("\n".join([answer_words.ship(result)[1], "", *card.runs_text(result), ""]))
    for one in result.runs:
        if several:
            print(f"--- {one.name}")
        print("\n".join(card.card_text(one)))
        if one.gate is not None:
            print(f"Gate: {gate(one, one.gate)}")
        hidden = check_words.beyond_reach(one.check)
        for said in cautions(one) if hidden is None else (*cautions(one), hidden):
            print(f"- {said}")
        print()
    for one in result.runs:
        if one.tried is not None or one.tried_left_out:
            _print_tried(one)
    print(f"Report: {written.html}")
    print(f"To share: {written.shared}")


def _print_tried(run: RunAudit) -> None:
    """What each way to the target costs, the most accurate first."""
    from gmip.report import advice_words
    from gmip.report.tables import price_notes, ways_table

    table = ways_table(run)
    rows = []
    for way, setting, found, accuracy in table.rows:
        what = way.text if setting.text == "\u2013" else f"{way.text}: {setting.text}"
        rows.append((f"{what} ({found.text})", accuracy.text))
    show.print_people(rows, f"{run.name}: {table.caption}", price_notes(run))
    for one in run.advice:
        if one.way is not None and (copied := advice_words.command(one, run)) is not None:
            print(f"# {advice_words.NAMES[one.way.change]}\n{copied}")
