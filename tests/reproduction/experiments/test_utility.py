from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_rel

from gmip import NoisySGD, calibrate
from gmip.errors import DataUnavailable
from gmip.tasks import load
from gmip.training import count_params, train
from reproduction import figures
from reproduction.experiments import utility
from reproduction.paper import ACCOUNTINGS, TARGET_MUS, Setting

FREE = {"cifar10": {"gmip-paper": 0.787, "gmip-tight": 0.696}, "adult": {"gmip-paper": 1.19, "gmip-tight": 0.979}}


def test_a_cell_has_all_levels_of_a_seed():
    cells = utility.cells(False)
    assert len(cells) == 3 * 5 and {cell.levels for cell in cells} == {TARGET_MUS}
    quick = utility.cells(True)
    assert {cell.seed for cell in quick} == {0, 1} and {len(cell.levels) for cell in quick} == {4}


@pytest.fixture
def digits(monkeypatch):
    """The experiment on a small set, which needs no download."""
    task = load("digits")
    run = NoisySGD(
        dataset_size=1_200, batch_size=300, num_steps=10, num_params=count_params(task.make_model()), clip_norm=1.0
    )
    monkeypatch.setattr(utility, "UTILITY", {"digits": Setting(title="Digits", run=run)})
    monkeypatch.setattr(utility, "load_task", lambda name: task)
    utility.noise_of.cache_clear()
    yield task, run
    utility.noise_of.cache_clear()


def test_rows_are_what_train_gives_with_the_noise_of_their_level(digits):
    task, run = digits
    rows = utility.run(utility.Runs(task="digits", seed=3, levels=(0.5, 50.0)))
    found = {(row["accounting"], row["mu"]): row for row in rows}
    assert list(found) == [(arm, mu) for arm in ACCOUNTINGS for mu in (0.5, 50.0)] + [
        (arm, mu) for arm in ("gdp-tuned", "gmip-tuned") for mu in (0.5, 50.0)
    ]
    noise_std = calibrate(run, target_mu=0.5).noise_std
    ours = found["gmip-tight", 0.5]
    assert ours["noise_std"] == noise_std > 0.0 and found["gdp", 0.5]["no_noise_from"] is None
    sizes = {"dataset_size": 1_200, "batch_size": 300, "num_steps": 10}
    recipe = task.recipe.replace(**sizes, clip_norm=1.0, noise_std=noise_std)
    assert ours["test_accuracy"] == pytest.approx(train(task, recipe, seed=3).test_accuracy, abs=0.003)
    tuned = found["gmip-tuned", 0.5]
    assert tuned["noise_std"] / tuned["clip_norm"] == pytest.approx(noise_std)  # the same noise multiplier
    again = recipe.replace(**{name: tuned[name] for name in ("clip_norm", "learning_rate", "noise_std")})
    assert tuned["test_accuracy"] == pytest.approx(train(task, again, seed=3).test_accuracy, abs=0.003)


def test_a_set_that_is_too_small_is_no_stand_in(digits, monkeypatch):
    big = Setting(title="Digits", run=digits[1].replace(dataset_size=10**6))
    monkeypatch.setattr(utility, "UTILITY", {"digits": big})
    with pytest.raises(DataUnavailable, match=r"digits has 1[0-9]{3} records to train on here"):
        utility.run(utility.Runs(task="digits", seed=0, levels=(1.0,)))


def made_up(gain, seeds=5, levels=TARGET_MUS, tuned=0.0):
    """Rows where GMIP has `gain` points of accuracy on GDP at every level (a function of mu), and `tuned` if both are
    tuned, which is worth 10 points to GDP."""
    rng = np.random.default_rng(0)
    rows = []
    for task, free in FREE.items():
        for mu in levels:
            for seed in range(seeds):
                base = 0.6 + 0.01 * rng.standard_normal()
                for accounting in (*ACCOUNTINGS, "gdp-tuned", "gmip-tuned"):
                    start = free.get(accounting.replace("tuned", "tight"))
                    ours = start is not None
                    more = ours * gain(mu)
                    if accounting.endswith("tuned"):
                        more = 0.1 + ours * tuned
                    rows.append(
                        {
                            "task": task,
                            "accounting": accounting,
                            "mu": mu,
                            "seed": seed,
                            "clip_norm": 5.0,
                            "noise_std": 0.0 if ours and mu >= start else 1.0,
                            "test_accuracy": base + more + 0.001 * rng.standard_normal(),
                            "train_accuracy": 0.6,
                            "no_noise_from": start,
                        }
                    )
    return rows


def test_few_seeds_are_said_to_be_few():
    rows = made_up(lambda mu: 0.0, seeds=2)
    claim = utility.claims(rows)[3]
    assert claim.verdict == "differs" and "seeds are too few" in claim.words


def test_p_values_are_those_of_a_paired_test():
    rng = np.random.default_rng(1)
    ours, theirs = rng.standard_normal((2, 6, 5))
    expected = [ttest_rel(a, b, alternative="greater").pvalue for a, b in zip(ours, theirs, strict=True)]
    assert utility._p_values(ours - theirs) == pytest.approx(expected)
    assert utility._p_values(np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]])) == pytest.approx([0.5, 0.0, 1.0])
    assert utility._p_values(np.ones((2, 1))) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("seeds", [1, 2])
def test_drawing_and_table(seeds):
    rows = made_up(lambda mu: 0.05, seeds=seeds, levels=TARGET_MUS[::5])
    with figures.style():
        (drawing,) = utility.drawings(rows)
        assert [axes.get_title() for axes in drawing.figure.axes] == ["CIFAR-10", "Adult"]
        assert figures.to_svg(drawing.figure).startswith("<?xml")
    table = utility.table(rows)
    assert len(table.rows) == 8 and table.rows[0][2].details[0].startswith("±" if seeds > 1 else "one seed")
