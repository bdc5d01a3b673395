"""What the card of a report says over simulated audits in which the truth is known.

    python benchmarks/verdicts.py [--audits 200] [--truth "no leak"]

Scores are Gaussian with a known mu; the target is 5% of the members at 1% false alarms (mu = 0.68). Prints a Markdown
table: how often the verdict and the test of the claim said what, and below it the rates of errors: a run that fails
(or probably fails) where nothing leaks, one that fails and keeps the target, a claim refuted that holds.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from gmip.accounting.families import Gaussian
from gmip.auditing.curves import claimed_curve
from gmip.auditing.judge import AttackEvidence, AttackScores, JudgeSettings, Labels, attack_outcome
from gmip.auditing.schema import Conclusion, Verdict
from gmip.auditing.verdict import attacker_answers, conclude, tpr_lower_bounds, verdict
from gmip.stats import RunScores, ScoreSet
from gmip.vocabulary import Claim, Rate

TRUTHS = {  # mu
    "no leak": 0.0,
    "leak below the target": 0.4,
    "leak at the target": 0.68,
    "leak above it": 1.3,
}
CLAIMS = {
    "useful bound (mu 0.5)": (0.5, "bound"),
    "vacuous bound (mu 4)": (4.0, "bound"),
    "forecast (mu 0.5)": (0.5, "forecast"),
}
SIZES = (50, 1000)


def audit(mu: float, size: int, claimed: tuple[float, str], sound: bool, seed: int) -> tuple[Conclusion, Verdict]:
    rng = np.random.default_rng(seed)
    runs = [RunScores(rng.normal(mu, 1.0, size), rng.normal(0.0, 1.0, size))]
    curve = Gaussian(claimed[0])
    curve.claim = Claim(claimed[1], "somebody")  # type: ignore[arg-type]
    values = np.concatenate([runs[0].members, runs[0].non_members])
    attack = AttackEvidence(
        name="attack",
        title="attack",
        needs=(),
        found=(AttackScores(scores=ScoreSet(ids=np.arange(values.size), scores=values, attack="attack")),),
        labels=(Labels(inside=np.arange(values.size) < size),),
    )
    lower = tpr_lower_bounds({"attack": runs}, fpr=0.01, confidence=0.95, seed=0)
    outcome = attack_outcome(attack, attack.pooled(True), curve, JudgeSettings(fprs=(0.01, 0.1)), 1, lower["attack"])
    goal = Rate(0.05, 0.01)
    answers = attacker_answers(
        [outcome],
        (claimed_curve("claimed", curve, standing="approximation", fprs=(0.01, 0.1)),),
        goal=goal,
        lower=lower,
        confidence=0.95,
        sound_record=sound,
    )
    doubts = () if sound else ("record",)
    ended = conclude(answers, goal=goal, sound_record=sound, measurable=outcome.measurable(goal.fpr))
    return ended, verdict([outcome], curve, fpr=0.01, confidence=0.95, doubts=doubts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--truth", choices=TRUTHS, action="append", help="only these rows; repeat for more")
    given = parser.parse_args()
    audits = given.audits
    print("| truth | records of each kind | claim | verdict | claim test |")
    print("|---|---|---|---|---|")
    wrong = {"fails or probably fails, no leak": [0, 0], "fails, target kept": [0, 0], "a true claim refuted": [0, 0]}
    rows = [(truth, size, name, True) for truth in TRUTHS for size in SIZES for name in CLAIMS]
    rows += [(truth, 1000, "useful bound (mu 0.5)", False) for truth in ("no leak", "leak above it")]
    rows = [row for row in rows if not given.truth or row[0] in given.truth]
    for truth, size, name, sound in rows:
        found = [audit(TRUTHS[truth], size, CLAIMS[name], sound, seed) for seed in range(audits)]
        said = {
            "verdict": Counter(one.kind for one, _ in found),
            "claim": Counter(judged.kind for _, judged in found),
        }
        words = [", ".join(f"{what} {100 * n / audits:.0f}%" for what, n in c.most_common()) for c in said.values()]
        mu = TRUTHS[truth]
        for error, applies, count in (
            (
                "fails or probably fails, no leak",
                mu == 0.0,
                said["verdict"]["fails"] + said["verdict"]["probably-fails"],
            ),
            ("fails, target kept", mu <= TRUTHS["leak at the target"], said["verdict"]["fails"]),
            ("a true claim refuted", mu <= CLAIMS[name][0], said["claim"]["exposed"]),
        ):
            if applies and name == "useful bound (mu 0.5)" and sound:  # the others are the same audits again
                wrong[error][0] += count
                wrong[error][1] += audits
        print(
            f"| {truth} | {size:,} | {name if sound else name + ', failed run check'} | {' | '.join(words)} |",
            flush=True,
        )
    rates = (
        f"{error} {count} of {total} ({100 * count / total:.1f}%)" for error, (count, total) in wrong.items() if total
    )
    print(f"\nErrors: {'; '.join(rates)}.")


if __name__ == "__main__":
    main()
