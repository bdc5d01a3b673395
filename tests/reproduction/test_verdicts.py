"""Every rule of the scorecard can say each of its three verdicts: rows for which it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.value.claims import all_claims
from gmip import Gaussian
from reproduction import roc_curves
from reproduction.experiments import (
    ablations,
    assumptions,
    audit,
    convergence,
    loss_attacks,
    released,
    tau_table,
    utility,
)
from reproduction.paper import TARGET_MUS
from reproduction.results import read_csv, read_outcome
from tests.benchmarks.value.test_experiment import made_up as value_rows
from tests.reproduction.experiments import test_audit as for_audit
from tests.reproduction.experiments import test_loss_attacks as for_loss
from tests.reproduction.experiments.test_utility import made_up as utility_rows
from tests.reproduction.test_results_committed import EXPERIMENTS

ROOT = Path(__file__).parents[2]


def committed(path, **where):
    return read_csv((ROOT / path).read_text(encoding="utf-8"))


def edited(rows, where=(), **changes):
    """Rows with other values in those that match `where`; a change may be a function of the row."""
    where = dict(where)
    return [
        row | {key: value(row) if callable(value) else value for key, value in changes.items()}
        if all(row.get(key) == value for key, value in where.items())
        else row
        for row in rows
    ]


def audits(changes=(), n=4000, seeds=3):
    mus = {**for_audit.SIMULATED, **for_audit.ONE, **for_audit.FIVE, ("five steps", "joint"): 1.0, **dict(changes)}
    return for_audit.made_up(mus, n=n, seeds=seeds)


def attacks(mu):
    return {("one step", "paper"): mu, ("one step", "likelihood-ratio"): mu}


def just_above(score):
    """Rows of an attack whose TPR is as many standard errors above the bound, at most."""
    rows = audits()
    for mu in np.linspace(1.14, 1.5, 200):
        rates = roc_curves.curve_row(Gaussian(mu)) | {"candidates": 4000}
        changed = edited(rows, {"panel": "one step", "curve": "paper"}, **rates)
        bands = roc_curves.by_curve(changed, task="cifar10", panel="one step")
        if np.nanmax(bands["paper"].excess(bands["K = d"])) > score:
            return changed
    raise AssertionError


def losses(changes=(), n=500):
    return for_loss.made_up({**for_loss.GIVEN, **dict(changes)}, n=n)


def utilities(gain=0.05, tuned=0.002, seeds=5):
    return utility_rows(lambda mu: gain, tuned=tuned, seeds=seeds)


def unsure(rows):
    """GMIP is a point worse at one level on average, by seeds that scatter widely."""
    where = {"accounting": "gmip-paper", "mu": TARGET_MUS[4]}
    base = {
        (row["task"], row["seed"]): row["test_accuracy"]
        for row in rows
        if row["accounting"] == "gdp" and row["mu"] == TARGET_MUS[4]
    }
    scatter = (-0.06, 0.04, -0.05, 0.05, -0.03)
    return edited(rows, where, test_accuracy=lambda row: base[row["task"], row["seed"]] + scatter[row["seed"]])


def at_lowest(accuracy):
    rows = utilities()
    return edited(rows, {"mu": TARGET_MUS[0]}, test_accuracy=accuracy)


TAU = committed("results/tau-table.csv")
CONVERGENCE = committed("results/convergence.csv")
ABLATIONS = committed("results/ablations.csv")
ASSUMPTIONS = committed("results/assumptions.csv")
VALUE = committed("benchmarks/value/results/value.csv")


def gapped(*gaps):
    """Gaps of d = 10, 100, 1,000 at n = 100, then of n = 10 and 1,000 at d = 100."""
    places = [(10, 100), (100, 100), (1_000, 100), (100, 10), (100, 1_000)]
    rows = CONVERGENCE
    for (d, n), gap in zip(places, gaps, strict=True):
        rows = edited(rows, {"num_params": d, "batch_size": n}, largest_gap=gap)
    return rows


def ablated(*levels):
    """GLiR at a distance from the corollary; levels : (part, level, distance)."""
    rows = ABLATIONS
    for part, level, distance in levels:
        bounds = {r["seed"]: r for r in rows if (r["part"], r["level"], r["curve"]) == (part, level, "corollary")}
        columns = [roc_curves.column(rate) for rate in roc_curves.RATES]
        for column in columns:
            rows = edited(
                rows,
                {"part": part, "level": level, "curve": "likelihood-ratio"},
                **{column: lambda row, c=column, b=bounds, d=distance: min(b[row["seed"]][c] + d, 1.0)},
            )
    return rows


def defects(part, change):
    rng = np.random.default_rng(0)
    return [
        released._row(
            "cifar10", part, "", seed, defect=defect, value=0.7 + defect * change + 0.002 * rng.standard_normal()
        )
        for seed in range(5)
        for defect in (False, True)
    ]


def half(rows, **changes):
    return edited(rows, {"task": "adult"}, **changes)


LOW = roc_curves.column(roc_curves.RATES[0])
# (claims, what the claim's title contains, rows on which it agrees, differs, is contradicted)
RULES: list[tuple[Any, ...]] = [
    (
        convergence.claims,
        "approaches",
        CONVERGENCE,
        edited(CONVERGENCE, {"part": "d = n", "batch_size": 500}, largest_gap=0.01),
        edited(CONVERGENCE, {"part": "d = n"}, largest_gap=0.1),
    ),
    (
        convergence.claims,
        "Both d and n",
        gapped(0.3, 0.2, 0.1, 0.4, 0.05),
        CONVERGENCE,
        gapped(0.1, 0.2, 0.3, 0.1, 0.4),
    ),
    (
        convergence.claims,
        "good enough",
        CONVERGENCE,
        edited(CONVERGENCE, {"part": "audit"}, largest_gap=0.005),
        edited(CONVERGENCE, {"part": "audit"}, largest_gap=0.05),
    ),
    (audit.claims, "level of the runs", audits(), edited(audits(), num_params=600), edited(audits(), num_params=1300)),
    (
        audit.claims,
        "tight with known",
        audits(),
        audits({("simulated", "paper"): 0.9}),
        audits({("simulated", "paper"): 0.9, ("simulated", "likelihood-ratio"): 0.9}),
    ),
    (
        audit.claims,
        "weaker than the bound",
        audits(attacks(0.7), n=20_000),
        audits(attacks(1.08), n=20_000),
        audits(attacks(1.14), n=20_000),
    ),
    (
        audit.claims,
        "GLiR as in the paper gains little",
        audits(),
        audits({("five steps", "paper"): 1.11}),
        audits({("five steps", "paper"): 1.5}),
    ),
    (
        audit.claims,
        "no practical attacker",
        audits(),
        audits({("five steps", "joint"): 1.11}),
        audits({("five steps", "joint"): 1.8}),
    ),
    (audit.claims, "above the bound", audits(), just_above(3.4), just_above(5.0)),
    (
        audit.loglog_claims,
        "above the bound",
        *([row for row in rows if row["panel"] == "one step"] for rows in (audits(), just_above(3.4), just_above(5.0))),
    ),
    (
        audit.loglog_claims,
        "covers",
        audits(),
        edited(audits(), {"panel": "one step", "curve": "records"}, **{LOW: 0.2}),
        audits({("one step", "records"): 1.3}),
    ),
    (
        utility.claims,
        "without any noise",
        utilities(),
        edited(utilities(), {"accounting": "gmip-paper", "mu": TARGET_MUS[3]}, noise_std=1.0),
        edited(
            edited(utilities(), {"accounting": "gmip-paper", "mu": TARGET_MUS[3]}, noise_std=1.0),
            {"accounting": "gmip-paper", "mu": TARGET_MUS[4]},
            noise_std=1.0,
        ),
    ),
    (utility.claims, "at least as accurate", utilities(), unsure(utilities()), utilities(-0.05)),
    (
        utility.claims,
        "most values",
        utilities(),
        utility_rows(lambda mu: 0.05 if mu < 1 else -0.05),
        utilities(-0.05),
    ),
    (utility.claims, "falls towards guessing", at_lowest(0.2), at_lowest(0.58), at_lowest(0.9)),
    (utility.claims, "substantially higher", utilities(tuned=0.05), utilities(), utilities(tuned=-0.01)),
    (
        utility.claims,
        "a good recipe",
        utilities(),
        utilities(gain=0.3),
        edited(utilities(), {"accounting": "gdp-tuned"}, test_accuracy=0.3),
    ),
    (
        tau_table.claims,
        "values of the table",
        TAU,
        edited(TAU, {"setting": "adult", "mu": TAU[-1]["mu"]}, gdp=9.0),
        edited(TAU, gdp=9.0),
    ),
    (
        tau_table.claims,
        ": no noise needed",
        TAU,
        edited(TAU, **{"gmip-paper_no_noise_from": 0.9}),
        edited(TAU, **{"gmip-paper_no_noise_from": 3.0}),
    ),
    (
        tau_table.claims,
        "never takes more",
        TAU,
        edited(TAU, {"mu": TAU[0]["mu"]}, **{"gmip-paper": 99.0}),
        edited(TAU, **{"gmip-paper": 99.0}),
    ),
    (
        tau_table.claims,
        "as much as GDP",
        edited(TAU, **{"gmip-tight": lambda row: row["gmip-paper"]}),
        TAU,
        edited(TAU, **{"gmip-tight": lambda row: 1.5 * row["gmip-paper"]}),
    ),
    (
        tau_table.claims,
        "published noise",
        edited(TAU, mu_of_published_gdp=lambda row: row["mu"]),
        edited(TAU, mu_of_published_gdp=lambda row: 1.03 * row["mu"]),
        TAU,
    ),
    (
        assumptions.claims,
        " needs",
        ASSUMPTIONS,
        edited(ASSUMPTIONS, {"attack": "loss", "assumption": "shadows"}, here=True),
        edited(ASSUMPTIONS, {"attack": "loss", "assumption": "query"}, here=False),
    ),
    (
        assumptions.claims,
        "closed form",
        ASSUMPTIONS,
        edited(ASSUMPTIONS, {"attack": "lira", "assumption": "analytical"}, here=True),
        edited(ASSUMPTIONS, {"assumption": "analytical"}, here=False),
    ),
    (
        ablations.claims,
        "small n",
        ABLATIONS,
        ablated(("n", 5, 0.08), ("n", 20, 0.06)),
        ablated(("n", 5, 0.01), ("n", 100, 0.08)),
    ),
    (
        ablations.claims,
        "Uniform",
        ABLATIONS,
        ablated(("n", 5, 0.0), ("n, uniform", 5, 0.1)),
        ablated(("n", 100, 0.0), ("n, uniform", 100, 0.1)),
    ),
    (ablations.claims, "Clipping", ABLATIONS, ablated(("C", 1, 0.055)), ablated(("C", 1, 0.2))),
    (ablations.claims, "small d", ablated(("d", 2, 0.04)), ABLATIONS, ablated(("d", 2, 0.2))),
    (
        loss_attacks.claims,
        "at chance",
        losses(),
        losses({("five steps", "lira"): 0.13}),
        losses({("five steps", "lira"): 1.0}),
    ),
    (
        loss_attacks.claims,
        "gradient attacks",
        losses(),
        losses({("five steps", "glir-paper"): 0.2}),
        losses({("five steps", "glir-paper"): -0.5}),
    ),
    (
        loss_attacks.claims,
        "trained longer",
        losses(),
        losses({("long", "lira"): 0.07}),
        losses({("long", "lira"): -0.3}),
    ),
    (
        loss_attacks.claims,
        "models of the utility",
        losses({("utility", "lira"): 0.5}),
        losses({("utility", "lira"): 0.0}),
        losses({("utility", "lira"): -0.1}, n=5_000),
    ),
    (released.claims, "Cholesky", defects("one step", -0.1), defects("one step", 0.0), defects("one step", 0.1)),
    (released.claims, "condition", defects("condition", -0.1), defects("condition", 0.0), defects("condition", 0.1)),
    (released.claims, "noise that all classes", defects("noise", 0.1), defects("noise", 0.0), defects("noise", -0.1)),
    (
        all_claims,
        ", against GDP, both tuned",
        value_rows(notion=0.03),
        value_rows(notion=0.0),
        value_rows(notion=-0.03),
    ),
    (
        all_claims,
        "Noise that data",
        value_rows(),
        edited(value_rows(), batch_size=38),
        edited(value_rows(), batch_size=20),
    ),
    (
        all_claims,
        "Exposure",
        value_rows(),
        half(edited(value_rows(), exposure=0.04), exposure=0.5),
        edited(value_rows(), exposure=0.5),
    ),
    (
        all_claims,
        "A random record",
        edited(VALUE, {"arm": "any"}, noise_multiplier=4.0),
        VALUE,
        edited(edited(VALUE, {"arm": "any"}, noise_multiplier=99.0), {"arm": "any-fixed"}, noise_multiplier=99.0),
    ),
    (
        all_claims,
        "GDP with Poisson",
        value_rows(),
        edited(value_rows(), {"arm": "gdp-fixed", "task": "adult"}, test_accuracy=0.99),
        edited(value_rows(), {"arm": "gdp-fixed"}, test_accuracy=0.99),
    ),
    (
        all_claims,
        "A tuned recipe",
        value_rows(recipe=0.1),
        edited(value_rows(recipe=0.1), {"arm": "own-gdp", "task": "adult"}, test_accuracy=0.99),
        value_rows(recipe=-0.1),
    ),
]


@pytest.mark.parametrize(("claims", "what", "good", "open_", "bad"), RULES, ids=[rule[1] for rule in RULES])
def test_a_rule_says_each_verdict(claims, what, good, open_, bad):
    found = [next(claim.verdict for claim in claims(rows) if what in claim.what) for rows in (good, open_, bad)]
    assert found == ["agrees", "differs", "contradicted"]


@pytest.mark.parametrize(("folder", "experiment"), EXPERIMENTS, ids=[one.name for _, one in EXPERIMENTS])
def test_every_rule_is_tried(folder, experiment):
    if experiment.name.endswith("-stand-in"):
        pytest.skip("its rules are those of the usual setting")
    outcome = read_outcome(folder, experiment.name)
    assert outcome is not None
    tried = [what for claims, what, *_ in RULES if claims is experiment.claims]
    assert [claim.what for claim in outcome.claims if not any(what in claim.what for what in tried)] == []


def test_one_seed_shows_nothing_about_a_defect():
    (claim,) = released.claims([row for row in defects("one step", -0.1) if row["seed"] == 0])
    assert (claim.verdict, claim.words) == ("differs", "Not clear from these seeds.")
