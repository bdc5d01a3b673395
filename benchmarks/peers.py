"""gmip's attacks beside those of ART and of SACRO-ML, on the same models and records.

    GMIP_DATA=... python benchmarks/peers.py [--seeds 5] [--shadows 32] [--folder kept] [SETTING ...]

Needs the extra `bench`. In each setting and for each seed a model is trained on a random half of some records; every
attack scores the same records, and AUC and TPR at 1% false alarms are taken on the same halves of them.

What each attack is given:
- ART's `MembershipInferenceBlackBox` and SACRO-ML's worst case: the model's probabilities (ART: and labels), and who of
  the other half of the records was in. An attack model (network, forest, boosting) learns from those.
- SACRO-ML's QMIA: the model's probabilities, records and labels, and half of the non-members as such.
- SACRO-ML's LiRA, gmip's `lira` and `rmia`: the answers of the same shadow models, trained by SACRO-ML on random halves
  of the records. Nobody's membership.
- gmip's `loss` (and ART's rule: is the answer right): the model's probabilities and labels. Nobody's membership.
- gmip's `reference` (text model): the base model's answers. `optimum-decode` (logistic regression): the weights, and a
  list that holds all members; that is no black box, and counts for nobody.

With --folder finished seeds (and shadow models of the unfinished one) are kept, and the same command goes on there.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from _harness import Row, one_blas_thread, table
from _victims import SETTINGS, Setting
from sklearn.model_selection import train_test_split

from gmip.auditing.sources.table_sources import prediction_scores
from gmip.errors import DataUnavailable
from gmip.stats.scores import auc, tpr_at_fpr

Scores = dict[str, np.ndarray]
_WHITE_BOX = ("gmip optimum-decode",)
_FIRST = 10  # of the seeds: smaller ones were looked at while attacks were written


@dataclass(frozen=True)
class Case:
    """A trained model. The first `members` of n records were in; `answers` are its probabilities, shape (n, k)."""

    setting: Setting
    model: Any
    X: np.ndarray
    y: np.ndarray
    members: int
    answers: np.ndarray
    seed: int

    @property
    def inside(self) -> np.ndarray:
        return np.arange(len(self.y)) < self.members

    def halves(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(rows whose membership an attacker may be given, rows on which all are judged), twice."""
        # The split that SACRO-ML's worst case makes itself.
        first, second = train_test_split(
            np.arange(len(self.y)), test_size=0.5, stratify=self.inside.astype(float), random_state=self.seed
        )
        yield first, second
        yield second, first


def trained(setting: Setting, seed: int) -> Case:
    X, y = setting.records()
    order = np.random.default_rng([seed, 16]).permutation(len(y))
    X, y, members = X[order], y[order], len(y) // 2
    model = setting.make().set_params(random_state=1_000 + seed).fit(X[:members], y[:members])
    return Case(setting, model, X, y, members, np.asarray(model.predict_proba(X), dtype=np.float64), seed)


# -- the contestants: scores of all records, NaN where an attack was told who was in ----------------------------------


def art(case: Case) -> list[Scores]:
    from art.attacks.inference.membership_inference import (
        MembershipInferenceBlackBox,
        MembershipInferenceBlackBoxRuleBased,
    )
    from art.estimators.classification import BlackBoxClassifier

    found = []
    classes = case.answers.shape[1]
    wrapped = BlackBoxClassifier(case.model.predict_proba, input_shape=(case.X.shape[1],), nb_classes=classes)
    right = MembershipInferenceBlackBoxRuleBased(wrapped).infer(case.X, case.y).astype(float)
    for told, judged in case.halves():
        ins, outs = told[case.inside[told]], told[~case.inside[told]]
        scores: Scores = {"ART rule": right[judged]}
        for kind in ("nn", "rf", "gb"):
            attack = MembershipInferenceBlackBox(wrapped, attack_model_type=kind)
            given = {"y": case.y[ins], "test_y": case.y[outs]}
            attack.fit(pred=case.answers[ins], test_pred=case.answers[outs], **given)
            told_odds = attack.infer(None, case.y[judged], pred=case.answers[judged], probabilities=True)
            scores[f"ART {kind}"] = np.asarray(told_odds, dtype=float).reshape(len(judged), -1)[:, -1]
        found.append(scores)
    return found


def sacro(case: Case, folder: Path, shadows: int) -> list[Scores]:
    from sacroml.attacks import utils
    from sacroml.attacks.likelihood_attack import LIRAAttack
    from sacroml.attacks.qmia_attack import QMIAAttack
    from sacroml.attacks.target import Target
    from sacroml.attacks.worst_case_attack import WorstCaseAttack

    quiet = {"output_dir": str(folder), "write_report": False, "report_individual": True}
    N = case.members

    def target(others: np.ndarray) -> Any:
        records = {"X_train": case.X[:N], "y_train": case.y[:N], "X_test": case.X[others], "y_test": case.y[others]}
        return Target(model=case.model, **records)

    everybody: Scores = {}
    for mode in ("offline", "online-carlini"):
        attack = LIRAAttack(n_shadow_models=shadows, mode=mode, **quiet)  # the second finds the models of the first
        attack.attack(target(np.arange(N, len(case.y))))
        everybody[f"SACRO LiRA {mode}"] = np.asarray(attack.attack_metrics[0]["individual"]["member_prob"])
    found = []
    for told, judged in case.halves():
        scores = {name: values[judged] for name, values in everybody.items()}
        qmia = QMIAAttack(**quiet)
        if qmia.attack(target(told[~case.inside[told]])).get("status") == "success":
            asked = np.column_stack([case.X[judged], case.y[judged]])
            margin = utils.qmia_hinge_score(case.answers[judged], case.y[judged])
            scores["SACRO QMIA"] = margin - qmia.quantile_model.predict(asked)
        # What WorstCaseAttack does in a repetition: it has no way to be told which records to judge.
        worst = WorstCaseAttack(**quiet)
        given, who = worst._prepare_attack_data(case.answers[:N], case.answers[N:])
        learned = worst._get_attack_model().fit(given[told], who[told])
        scores["SACRO worst case"] = learned.predict_proba(given[judged])[:, 1]
        found.append(scores)
    return found


def ours(case: Case, folder: Path, shadows: int) -> list[Scores]:
    from sacroml.attacks import utils

    references = []
    for number in range(shadows):
        model, rows, _ = utils.get_shadow_model(str(folder / "shadow_models"), number)
        references.append((np.asarray(model.predict_proba(case.X)), np.isin(np.arange(len(case.y)), rows)))
    made = prediction_scores(
        case.inside, form="probabilities", values=case.answers, labels=case.y, references=references, attacks=None
    )
    everybody = {f"gmip {name}": values for name, values in made.scores.items()}
    everybody |= {f"gmip {name}": values for name, values in case.setting.more(case.model, case.X, case.y).items()}
    return [{name: values[judged] for name, values in everybody.items()} for _, judged in case.halves()]


def compared(setting: Setting, seed: int, shadows: int, place: Path) -> Row:
    """(AUC, TPR at 1%) of each attack, means over the two halves; and accuracies. Shadow models are kept in `place`."""
    case = trained(setting, seed)
    parts = [art(case), sacro(case, place, shadows), ours(case, place, shadows)]
    rates: dict[str, list[tuple[float, float]]] = {}
    for number, (_, judged) in enumerate(case.halves()):
        inside = case.inside[judged]
        for found in parts:
            for name, scores in found[number].items():
                ins, outs = scores[inside], scores[~inside]
                rates.setdefault(name, []).append((auc(ins, outs), float(tpr_at_fpr(ins, outs, 0.01))))
    right = case.answers.argmax(axis=1) == case.y
    return {
        "accuracy": [float(right[: case.members].mean()), float(right[case.members :].mean())],
        "rates": {name: np.mean(pairs, axis=0).tolist() for name, pairs in rates.items()},
    }


def error(values: list[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def rows_of(title: str, runs: list[Row]) -> list[Row]:
    found = []
    for name in runs[0]["rates"]:
        pairs = [run["rates"][name] for run in runs if name in run["rates"]]
        row: Row = {"setting": title, "attack": name, "seeds": len(pairs)}
        for key, values in zip(("auc", "tpr"), zip(*pairs, strict=True), strict=True):
            row |= {key: mean(values), f"{key}_error": error(list(values))}
        found.append(row)
    return sorted(found, key=lambda row: -row["tpr"])


def duel(title: str, runs: list[Row], rows: list[Row]) -> Row:
    """The best of gmip and the best of the peers by TPR at 1%, and their difference seed by seed."""

    def best(ours: bool) -> str:
        fits = (row for row in rows if row["attack"].startswith("gmip") == ours and row["attack"] not in _WHITE_BOX)
        return str(max(fits, key=lambda row: row["tpr"])["attack"])

    mine, theirs = best(True), best(False)
    gaps = [run["rates"][mine][1] - run["rates"][theirs][1] for run in runs]
    row: Row = {"setting": title, "mine": mine, "theirs": theirs, "gap": mean(gaps), "gap_error": error(gaps)}
    row |= {key: mean(run["accuracy"][i] for run in runs) for i, key in enumerate(("train", "test"))}
    return row


def kept(folder: Path, name: str, compute: Callable[[Path], Row]) -> Row:
    """What was computed before, or is now; an interrupted computation finds its shadow models again."""
    path, shadow_models = folder / f"{name}.json", folder / name
    if not path.is_file():
        shadow_models.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(compute(shadow_models)))
        shutil.rmtree(shadow_models)
    return dict(json.loads(path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of {', '.join(SETTINGS)}; default all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=_FIRST, help=f"the first of them (default {_FIRST})")
    parser.add_argument("--shadows", type=int, default=None, help="shadow models; default: the setting's")
    parser.add_argument("--folder", type=Path, default=None, help="keep finished seeds here")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # of the peers' dependencies
    with tempfile.TemporaryDirectory() as scratch:
        show(*measured(options, options.folder or Path(scratch)))


def measured(options: argparse.Namespace, folder: Path) -> tuple[list[Row], list[Row]]:
    found: list[Row] = []
    duels: list[Row] = []
    for name in options.settings or SETTINGS:
        setting = SETTINGS[name]
        shadows = options.shadows or setting.shadows
        runs = []
        try:
            for seed in range(options.first, options.first + options.seeds):
                compute = partial(compared, setting, seed, shadows)
                runs.append(kept(folder, f"{name}-{shadows}-{seed}", compute))
                print(name, seed, runs[-1], file=sys.stderr, flush=True)
        except DataUnavailable as missing:
            print(missing, file=sys.stderr)
            continue
        rows = rows_of(name, runs)
        found += rows
        duels.append(duel(name, runs, rows))
    return found, duels


def show(found: list[Row], duels: list[Row]) -> None:
    columns = {"setting": "setting|s", "attack": "attack|s", "auc": "AUC|.3f", "auc_error": "+-|.3f"}
    columns |= {"tpr": "TPR at 1%|.3f", "tpr_error": "+-|.3f", "seeds": "seeds|d"}
    table("Attacks on the same models and records", columns, found)
    columns = {"setting": "setting|s", "train": "accuracy in|.2f", "test": "out|.2f", "mine": "best of gmip|s"}
    columns |= {"theirs": "best of the others|s", "gap": "TPR at 1%, ahead by|+.3f", "gap_error": "+-|.3f"}
    table("The best of each, without white boxes", columns, duels)


if __name__ == "__main__":
    one_blas_thread()
    main()
