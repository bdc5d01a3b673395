"""Who is less protected than the claim says: the mu of every record by its own gradients along a run.

    python examples/individual_mus.py audit-individual

A claim is about a typical record, or about any. A hundred digits are trained twice, without noise and with clipping
and noise, and the audit computes the mu of each record in each run. The report has the share of members beyond the
claim, and exposed-RUN.csv the own mu of each record. For a run of yours, gmip audit TASK --run RUN does the same.
"""

from __future__ import annotations

import sys

from gmip.auditing import make_config, run_audit
from gmip.report import sentences, write_report

RECIPE = {"dataset_size": 100, "num_steps": 2, "learning_rate": 0.5, "sampling": "full"}
RUNS = [
    {"name": "plain", "recipe": RECIPE},
    {"name": "noisy", "recipe": RECIPE | {"clip_norm": 8.0}, "target": "mu=0.5", "notion": "gdp"},
]


def main(folder: str) -> None:
    audited = run_audit(make_config({"task": "digits", "runs": RUNS, "attacks": ["glir"], "seed": 1, "out": folder}))
    written = write_report(audited, folder, candidates=audited.candidates)
    for run in audited.runs:
        who = [one for one in audited.candidates[run.name] if one.member and one.own_mu is not None]
        own = {one.id: one.own_mu for one in who}
        print(f"{run.name}: {sentences.individual(run)}")
        print("Least protected members:", ", ".join(f"{id} ({own[id]:.2f})" for id in sorted(own, key=own.get)[:-4:-1]))
    print(f"Report: {written.html}")


if __name__ == "__main__":
    main(*sys.argv[1:])
