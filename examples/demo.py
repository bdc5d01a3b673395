"""The demo: a model that leaks, the noise that limits it, and what that costs.

    python examples/demo.py

Trains the three runs of examples/demo.yaml, attacks them, writes a report and tells what it found. Seeded: every number
is the same each time.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import gmip
from gmip import _numbers
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.cli import main as command_line
from gmip.report import account_words, answer_words, card, read_result

HERE = Path(__file__).parent
OUT = Path("runs/demo")  # as in demo.yaml


def story(result: AuditResult) -> list[str]:
    """What the report shows, in a few paragraphs."""
    plain, noisy, private = result.runs
    goal = account_words.goal_words(plain.goal) if plain.goal else ""
    cifar = gmip.NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650, clip_norm=500.0)
    most = gmip.account(cifar).tpr_at(0.01)
    facts = plain.facts
    return [
        f"A model learns to read digits from {facts.dataset_size} records ({facts.num_params} parameters, "
        f"{facts.num_steps} steps). Who can find out whose record was in? The target is {goal}.",
        f"1. Without noise: {accuracy(plain)}.\n" + "\n".join(found(plain)),
        f"2. With the least noise for which a typical record is expected to keep the target against an attacker who "
        f"knows no members (multiplier {multiplier(noisy)}): {accuracy(noisy)}.\n" + "\n".join(found(noisy)),
        f"3. With noise that keeps the target by differential privacy, for any record and any attacker, and a little "
        f"more, so that {facts.num_steps} recorded steps can show it (multiplier {multiplier(private)}): "
        f"{accuracy(private)}.\n" + "\n".join(found(private)),
        "4. When is no noise needed? When many records share few parameters. The paper's CIFAR-10 run (48,000 records, "
        f"650 parameters, no noise) is expected to give away about {_numbers.percent(most, 'up')} of its members at 1% "
        "false alarms to an attacker who knows no members: it needs no noise for this target.",
        answer_words.ship(result)[1],
        "What this does not show: there is one training of each kind, so a point of accuracy may be chance; three "
        "attacks were tried; and these are data for which a linear model is enough.",
    ]


def accuracy(run: RunAudit) -> str:
    share = run.facts.test_accuracy
    return (
        "accuracy not known" if share is None else f"{_numbers.percent(share, 'nearest')} of the test digits are read"
    )


def multiplier(run: RunAudit) -> str:
    return _numbers.number(run.facts.noise_multiplier or 0.0, "up")


def found(run: RunAudit) -> list[str]:
    """The verdict, and a line for each attacker."""
    lines = [f"   - with {row.label}: {row.numbers}; {row.beside}" for row in card.rows(run)]
    return [f"   {card.look(run).title}. Found at 1% false alarms, by an attacker", *lines]


def main() -> int:
    with contextlib.redirect_stdout(io.StringIO()):  # the tables are in the report
        code = command_line(["audit", str(HERE / "demo.yaml")])
    if code == 0:
        print("\n\n".join(story(read_result(OUT))))
        print(f"\nReport, to open in a browser: {(OUT / 'report.html').resolve().as_uri()}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
