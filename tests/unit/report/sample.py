"""Audits for the tests of reports: Gaussian scores with a known mu, so that every number can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from gmip.auditing.schema import (
    Advice,
    AttackerAnswer,
    AttackOutcome,
    AuditProvenance,
    AuditResult,
    Band,
    ClaimedCurve,
    CommandFacts,
    Curve,
    Estimate,
    ExposedRecord,
    Gate,
    Histogram,
    MuBound,
    NoiseCurve,
    RunAudit,
    RunFacts,
    TrainingCommand,
    TriedAccuracy,
    UntriedWay,
    Verdict,
    Way,
)
from gmip.auditing.verdict import attacker_answers, conclude
from gmip.stats.scores import auc, roc_curve, tpr_at_fpr
from gmip.vocabulary import NoisySGD, Rate, Recipe

RATES = ("0.001", "0.01", "0.1")
HOSTILE = (
    "</script><script>alert('x')</script><img src=x onerror=alert(1)>\u2028\u202e`|*_[a](javascript:b)&amp;\x00\x1b"
)
DECLARED = NoisySGD(dataset_size=500, batch_size=500, num_steps=1, num_params=650, sampling="full", clip_norm=1.0)
TRAINED = TrainingCommand(
    task="cifar10",
    recipe=Recipe(
        dataset_size=500,
        batch_size=500,
        num_steps=1,
        sampling="full",
        clip_norm=1.0,
        optimizer="Adam",
        learning_rate=0.002,
    ),
)


def proportion(hits: float, total: int, confidence: float = 0.95) -> Estimate:
    """Clopper-Pearson."""
    k, tail = round(hits), (1 - confidence) / 2
    return Estimate(
        value=k / total,
        lower=float(betaincinv(k, total - k + 1, tail)) if k else 0.0,
        upper=float(betaincinv(k + 1, total - k, 1 - tail)) if k < total else 1.0,
    )


def gaussian_curve(mu: float, lowest: float = 1e-5) -> Curve:
    fpr = np.unique(np.concatenate([[0.0], np.logspace(np.log10(lowest), 0, 101), np.linspace(0.02, 1, 50)]))
    return Curve(fpr=tuple(fpr.tolist()), tpr=tuple(np.clip(ndtr(ndtri(fpr) + mu), 0, 1).tolist()))


def claimed_curve(key: Any, mu: float, standing: Any = "proved", assumptions: tuple[str, ...] = ()) -> ClaimedCurve:
    return ClaimedCurve(
        key=key,
        origin="attack" if key == "prediction" else "accountant",
        standing=standing,
        curve=gaussian_curve(mu),
        mu=mu,
        auc=float(ndtr(mu / np.sqrt(2))),
        tpr_at={rate: float(ndtr(ndtri(float(rate)) + mu)) for rate in RATES},
        kind="bound" if standing == "proved" else "forecast",
        assumptions=assumptions,
    )


def attack(
    mu: float, *, seed: int, title: str = "GLiR", name: str = "glir", members: int = 500, others: int = 500, **more: Any
) -> AttackOutcome:
    rng = np.random.default_rng(seed)
    ins, outs = rng.normal(mu, 1, members), rng.normal(0, 1, others)
    curve = roc_curve(ins, outs)
    grid = np.unique(np.concatenate([np.logspace(np.log10(1 / others), 0, 40), np.linspace(1 / others, 1, 30)]))
    ends = [proportion(float(tpr_at_fpr(ins, outs, float(x))) * members, members) for x in grid]
    area, spread = auc(ins, outs), 2 * 0.29 / np.sqrt(min(members, others))
    accuracy = float(0.5 + np.max(curve.tpr - curve.fpr) / 2)
    wide = 1 / np.sqrt(members + others)
    lower = max(0.0, mu * 0.85 - 2 / np.sqrt(members))
    fields: dict[str, Any] = {
        "attack": name,
        "title": title,
        "needs": ("every published mean gradient", "records of the same distribution"),
        "members": members,
        "non_members": others,
        "repeats": 1,
        "seconds": 12.3,
        "roc": Curve(fpr=tuple(curve.fpr.tolist()), tpr=tuple(curve.tpr.tolist())),
        "band": Band(fpr=tuple(grid.tolist()), lower=tuple(e.lower for e in ends), upper=tuple(e.upper for e in ends)),
        "auc": Estimate(value=area, lower=area - spread, upper=min(1.0, area + spread)),
        "tpr_at": {r: proportion(float(tpr_at_fpr(ins, outs, float(r))) * members, members) for r in RATES},
        "balanced_accuracy": Estimate(value=accuracy, lower=accuracy - wide, upper=min(1.0, accuracy + wide)),
        "advantage": Estimate(
            value=2 * accuracy - 1, lower=max(0.0, 2 * (accuracy - wide) - 1), upper=min(1.0, 2 * (accuracy + wide) - 1)
        ),
        "mu_lower": lower,
        "mu_bounds": (MuBound(method="Gaussian sum", mu=lower), MuBound(method="threshold", mu=0.8 * lower)),
        "epsilon_lower": 1.4 * lower,
        "claim_p_value": 0.41,
        "exceeds_claim": False,
    }
    return AttackOutcome(**(fields | more))


def facts(**more: Any) -> RunFacts:
    fields: dict[str, Any] = {
        "dataset_size": 500,
        "batch_size": 500,
        "num_steps": 1,
        "num_params": 650,
        "sampling": "full",
        "clip_norm": None,
        "noise_std": 0.0,
        "noise_multiplier": None,
        "optimizer": "Adam",
        "learning_rate": 2e-3,
        "train_accuracy": 0.914,
        "test_accuracy": 0.873,
    }
    return RunFacts(**(fields | more))


CLAIM = (
    "The attacker sees every published mean gradient, cannot poison the data, and asks about a record drawn from the "
    "data distribution.",
    "Batch means are taken to be Gaussian (central limit theorem).",
)


def verdict(kind: Any, claimed: float) -> Verdict:
    few = {"candidates": 500, "candidates_needed": 4200} if kind == "inconclusive" else {}
    return Verdict(
        kind=kind,
        reason={"consistent": "enough", "exposed": "refuted", "inconclusive": "too-few"}[kind],
        attack="glir",
        allowed=float(ndtr(ndtri(0.01) + claimed)),
        allowed_auc=float(ndtr(claimed / 2**0.5)),
        allowed_kind="bound",
        noticeable_auc=None if kind == "exposed" else 0.8,
        **few,
    )


def run(kind: Any, *, claimed: float, found: float, name: str = "cifar10-head", seed: int = 1, **more: Any) -> RunAudit:
    refuted = {"claim_p_value": 2.3e-9, "exceeds_claim": True} if kind == "exposed" else {}
    strongest = attack(found, seed=seed, **refuted)
    at = strongest.tpr_at["0.01"]
    loss = attack(
        found * 0.3, seed=seed + 100, title="Loss threshold", name="loss", needs=("the trained model",), seconds=0.4
    )
    lira = attack(
        found * 0.6,
        seed=seed + 200,
        title="LiRA, 16 shadow models",
        name="lira",
        needs=("the trained model", "the training recipe", "records of the same distribution"),
        seconds=184.0,
    )
    fields: dict[str, Any] = {
        "name": name,
        "source": "recorded",
        "goal": GOAL,
        "path": f"runs/trained/{name}-0",
        "task": "cifar10",
        "facts": facts(),
        "claims": (
            claimed_curve("claimed", claimed, "proved", CLAIM),
            claimed_curve("susceptibility", claimed * 1.04, "approximation", CLAIM[:1]),
            claimed_curve("gdp", claimed * 1.9, "proved", ("Any data, any attacker.",)),
            claimed_curve("prediction", found * 1.02, "measured"),
        ),
        "attacks": (strongest, lira, loss),
        "verdict": verdict(kind, claimed),
        "declared": (DECLARED,),
        "commands": CommandFacts(trained_by=TRAINED),
        "advice": (Advice(kind="more-candidates", candidates=4000), Advice(kind="clip-first")),
        "exposed": tuple(
            ExposedRecord(
                id=4711 + 37 * i,
                score=9.1 - 0.43 * i,
                p_value=0.0002 * (i + 1),
                posterior=0.99 - 0.01 * i,
                susceptibility=1980.5 - 61 * i,
            )
            for i in range(10)
        ),
        "exposed_by": "glir",
        "histogram": Histogram(
            edges=(-2.0, -1.0, 0.0, 1.0, 2.0, 3.0), members=(9, 80, 171, 170, 70), non_members=(79, 171, 170, 71, 9)
        ),
        "gate": Gate(fpr=0.01, limit=0.05, tpr_lower=at.lower, attack="GLiR", passed=at.lower <= 0.05),
    }
    fields |= more
    if "answers" not in more:
        fields["answers"] = answers(fields["attacks"], fields["claims"])
    if "conclusion" not in more:
        fields["conclusion"] = conclude(fields["answers"], goal=GOAL)
    return RunAudit(**fields)


GOAL = Rate(0.05, 0.01)


def answers(attacks: Sequence[AttackOutcome], claims: Sequence[ClaimedCurve]) -> tuple[AttackerAnswer, ...]:
    lower = {one.attack: one.tpr_at["0.01"].lower for one in attacks if "0.01" in one.tpr_at}
    return attacker_answers(attacks, claims, goal=GOAL, lower=lower, confidence=0.95)


def result(*runs: RunAudit, **more: Any) -> AuditResult:
    fields: dict[str, Any] = {
        "title": "CIFAR-10 classifier, release 3",
        "created": "2026-03-05T14:02:11+00:00",
        "confidence": 0.95,
        "delta": 1e-5,
        "runs": runs,
        "provenance": AuditProvenance(
            command="gmip audit cifar10 --run runs/cifar10-head --attacks glir,lira,loss --seed 7",
            seed=7,
            versions={"gmip": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "numpy": "2.3.1"},
            platform="Linux-6.1-x86_64",
            fingerprints={"inputs": "sha256:1f0c7e4b9a02", "labels": "sha256:77b1d2c05e19"},
            config={"attacks": ["glir", "lira", "loss"], "repeats": 1},
        ),
    }
    return AuditResult(**(fields | more))


def ways() -> tuple[Advice, ...]:
    """One that was tried, one that was not."""
    whom = "a typical record"
    kinds: dict[str, Any] = {"kind": "forecast", "for_whom": whom}
    tried = TriedAccuracy(mean=0.861, error=0.0123, seeds=3, trained_on=400)
    noisy, larger = DECLARED.replace(noise_std=0.02), DECLARED.replace(dataset_size=2000, batch_size=2000)
    noise = Way(change="noise", runs=(noisy,), tpr=0.0499, accuracy=tried, **kinds)
    data = Way(change="data", runs=(larger,), tpr=0.05, **kinds)
    return Advice(kind="way", way=noise), Advice(kind="way", way=data)


def noise_curve() -> NoiseCurve:
    return NoiseCurve(
        noise_std=(0.0, 0.01, 0.02, 0.04),
        tpr=(0.2, 0.09, 0.049, 0.02),
        own=0,
        kind="forecast",
        for_whom="a typical record",
    )


@cache
def consistent() -> AuditResult:
    return result(run("consistent", claimed=1.15, found=1.07, seed=4))


@cache
def exposed() -> AuditResult:
    return result(
        run("exposed", claimed=0.5, found=1.07, seed=4, warnings=("The run has 500 records: intervals are wide.",))
    )


@cache
def tried() -> AuditResult:
    """With the ways to the target, what they cost, and the noise."""
    (one,) = exposed().runs
    more = {
        "advice": (Advice(kind="claim-refuted"), *ways(), Advice(kind="more-candidates", candidates=4000)),
        "tried": TriedAccuracy(mean=0.873, error=0.004, seeds=3, trained_on=400),
        "tried_left_out": (UntriedWay(change="data", why="few-records", records=400),),
        "noise_curve": noise_curve(),
    }
    return result(one.model_copy(update=more))


@cache
def inconclusive() -> AuditResult:
    return result(run("inconclusive", claimed=0.9, found=1.0, seed=6))


@cache
def three_runs() -> AuditResult:
    """The same model with no noise, GMIP noise and GDP noise."""
    return result(
        run("exposed", claimed=0.7, found=1.2, name="no noise", seed=4),
        run(
            "consistent",
            claimed=0.6,
            found=0.45,
            name="GMIP noise",
            seed=5,
            facts=facts(noise_std=0.0132, noise_multiplier=6.6, clip_norm=1.0, test_accuracy=0.861),
        ),
        run(
            "consistent",
            claimed=0.4,
            found=0.1,
            name="GDP noise",
            seed=6,
            facts=facts(noise_std=0.0475, noise_multiplier=23.75, clip_norm=1.0, test_accuracy=0.792),
        ),
        title="CIFAR-10 classifier: three ways to train it",
    )


@cache
def bare() -> AuditResult:
    """The least that the schema allows."""
    empty = RunAudit(
        name="",
        path=None,
        task="",
        facts=RunFacts(
            dataset_size=0,
            batch_size=0,
            num_steps=0,
            num_params=0,
            sampling="",
            clip_norm=None,
            noise_std=0.0,
            noise_multiplier=None,
        ),
        claims=(),
        attacks=(),
        source="recorded",
        goal=GOAL,
        verdict=Verdict(kind="inconclusive", reason="blind", attack=None),
    )
    provenance = AuditProvenance(command="", seed=0, versions={}, platform="", fingerprints={})
    return AuditResult(title=" ", created="", confidence=0.95, delta=1e-5, runs=(empty,), provenance=provenance)


@cache
def hostile() -> AuditResult:
    """Every string tries to be something else than text, and some are long."""
    long = "x" * 4000
    strongest = attack(
        0.5,
        seed=1,
        members=3,
        others=2,
        title=HOSTILE,
        name=HOSTILE,
        needs=(HOSTILE,),
        notes=(long,),
    )
    one = run(
        "exposed",
        claimed=0.1,
        found=0.5,
        name=HOSTILE,
        path="C:\\a|b\n" + "\udcff",
        task=HOSTILE,
        facts=facts(sampling=HOSTILE, optimizer=HOSTILE),
        attacks=(strongest,),
        claims=(claimed_curve("claimed", 0.1, "proved", (HOSTILE, long)),),
        verdict=verdict("exposed", 0.1).model_copy(update={"attack": HOSTILE}),
        advice=(
            Advice(kind="forecast-already", tpr=0.04, for_whom=HOSTILE),
            Advice(kind="to-guarantee"),
            Advice(
                kind="way",
                way=Way(
                    change="clip", runs=(DECLARED.replace(clip_norm=0.5),), tpr=0.0, kind="bound", for_whom=HOSTILE
                ),
            ),
            Advice(kind="tune"),
        ),
        commands=CommandFacts(trained_by=TRAINED.model_copy(update={"task": f"``` {HOSTILE}\nrm"})),
        tried_left_out=(UntriedWay(change=None, why="refused", problem=HOSTILE),),
        noise_curve=noise_curve().model_copy(update={"for_whom": HOSTILE}),
        exposed=(
            ExposedRecord(id=HOSTILE, score=-1e-300),
            ExposedRecord(id=long, score=1e300, p_value=0.0, posterior=1.0, susceptibility=0.0),
        ),
        exposed_by=HOSTILE,
        gate=Gate(fpr=0.01, limit=0.0, tpr_lower=0.0, attack=HOSTILE, passed=True),
        warnings=(HOSTILE,),
    )
    other = run("consistent", claimed=0.4, found=0.1, name=long, attacks=(), claims=())
    provenance = AuditProvenance(
        command=HOSTILE,
        seed=-1,
        versions={HOSTILE: HOSTILE},
        platform=HOSTILE,
        fingerprints={HOSTILE: long},
        config={HOSTILE: [HOSTILE]},
    )
    return result(one, other, title=HOSTILE, created=HOSTILE, provenance=provenance)
