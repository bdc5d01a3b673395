"""What the badges of a report say over simulated audits in which the truth is known.

    python benchmarks/verdicts.py [--audits 200]

Scores are Gaussian with a known mu; the target is 5% of the members at 1% false alarms (mu = 0.68). Prints a Markdown
table: of how many audits the leak badge and the target badge said what.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from gmip.accounting.families import Gaussian
from gmip.accounting.tradeoff import Claim
from gmip.auditing.attacker_answers import DEFAULT_GOAL, attacker_answers
from gmip.auditing.outcomes import attack_outcome
from gmip.auditing.promises import promise
from gmip.auditing.schema import AttackerAnswer
from gmip.auditing.verdict import tpr_lower_bounds
from gmip.stats import RunScores

TRUTHS = {"no leak": 0.0, "leak below the target": 0.4, "leak at the target": 0.68, "leak above it": 1.3}
PROMISES = {
    "useful bound (mu 0.5)": (0.5, "bound"),
    "vacuous bound (mu 4)": (4.0, "bound"),
    "forecast (mu 0.5)": (0.5, "forecast"),
}
SIZES = (50, 1000)


def audit(mu: float, size: int, promised: tuple[float, str], sound: bool, seed: int) -> AttackerAnswer:
    rng = np.random.default_rng(seed)
    runs = [RunScores(rng.normal(mu, 1.0, size), rng.normal(0.0, 1.0, size))]
    curve = Gaussian(promised[0])
    curve.claim = Claim(promised[1], "somebody")  # type: ignore[arg-type]
    outcome = attack_outcome(
        attack="attack",
        title="attack",
        needs=(),
        runs=runs,
        claimed=curve,
        fprs=(0.01, 0.1),
        confidence=0.95,
        tests=1,
        delta=1e-5,
        seconds=0.0,
        facts={},
        notes=(),
        seed=0,
    )
    (answer,) = attacker_answers(
        [outcome],
        (promise("claimed", "Promised", curve, standing="approximation", fprs=(0.01, 0.1)),),
        goal=DEFAULT_GOAL,
        lower=tpr_lower_bounds({"attack": runs}, fpr=0.01, confidence=0.95, seed=0),
        confidence=0.95,
        sound_record=sound,
    )
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=200)
    audits = parser.parse_args().audits
    print("| truth | records of each kind | promise | leak badge | target badge |\n|---|---|---|---|---|")
    rows = [(truth, size, name, True) for truth in TRUTHS for size in SIZES for name in PROMISES]
    rows += [(truth, 1000, "useful bound (mu 0.5)", False) for truth in ("no leak", "leak above it")]
    for truth, size, name, sound in rows:
        found = [audit(TRUTHS[truth], size, PROMISES[name], sound, seed) for seed in range(audits)]
        leaks, targets = (Counter(getattr(one, badge) for one in found) for badge in ("leak", "target"))
        words = (", ".join(f"{what} {100 * n / audits:.0f}%" for what, n in c.most_common()) for c in (leaks, targets))
        print(
            f"| {truth} | {size:,} | {name if sound else name + ', failed run check'} | {' | '.join(words)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
