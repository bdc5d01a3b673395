"""Who is less protected than the claim says: the mu of every record by its own gradients along a run.

    python examples/individual_mus.py audit-individual

A claim is about a typical record, or about any. A hundred digits are trained twice, without noise and with clipping
and noise, and the audit computes the mu of each record in each run. The report has the share of members beyond the
claim, and exposed-RUN.csv the own mu of each record. For a run of yours, gmip audit TASK --run RUN does the same.
"""

from __future__ import annotations

import math
import sys

from gmip.auditing import make_config, run_audit
from gmip.report import sentences, write_report

RECIPE = {"dataset_size": 100, "num_steps": 2, "learning_rate": 0.5, "sampling": "full"}
RUNS = [
    {"name": "plain", "recipe": RECIPE},
    {"name": "noisy", "recipe": RECIPE | {"clip_norm": 8.0}, "target": "mu=0.5", "notion": "gdp"},
]


def main(folder: str = "audit-individual") -> None:
    audited = run_audit(make_config({"task": "digits", "runs": RUNS, "attacks": ["glir"], "seed": 1, "out": folder}))
    written = write_report(audited, folder)
    for run in audited.runs:
        who = [one for one in audited.candidates[run.name] if one.member and one.own_mu is not None]
        least = sorted(who, key=lambda one: one.own_mu, reverse=True)[:3]
        print(f"{run.name}: {sentences.individual(run)}")
        shown = ", ".join(f"{one.id} ({math.ceil(100.0 * one.own_mu) / 100.0:.2f})" for one in least)
        print(f"Least protected members: {shown}")
    print(f"Report: {written.html}")


if __name__ == "__main__":
    main(*sys.argv[1:])
