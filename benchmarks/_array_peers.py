"""Attacks of other programs on the arrays of a game, for `references.py --peers FOLDER`.

FOLDER holds clones of aidotse/LeakPro, privacytrustlab/ml_privacy_meter and facebookresearch/PrivacyGuard under the
names of these repositories; SACRO-ML (`pip install sacroml`) and pandas are installed. It is their code that runs, with
the settings of their classes, but for LeakPro's quantiles (.99 instead of at most .95, which no 1% can be read from).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import io
import logging
import sys
import tempfile
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np

# What LeakPro imports beside what its attacks on arrays use.
_UNUSED = ("torchvision", "optuna", "pacmap", "kornia", "numba", "piq", "dotmap", "loguru", "jinja2", "torchmetrics")
_UNUSED += ("plotly", "seaborn", "geomloss", "xgboost", "pylatex", "ts2vec", "matplotlib", "umap", "torch_geometric")


@dataclass(frozen=True)
class Game:
    """An attacked model, c records of k classes, and r references, which know none of the records or half of them.

    Attributes
    ----------
    model, x, y : the model, and the records, the first dimension c.
    p, references : what the model and the references answer, shapes (c, k) and (r, c, k).
    inside, known : who was in the model, shape (c,), and in the references, shape (r, c); None: nobody.
    spare : (x, y, p) of non-members that no attack is asked about.
    """

    model: Any
    x: np.ndarray
    y: np.ndarray
    p: np.ndarray
    references: np.ndarray
    inside: np.ndarray
    known: np.ndarray | None
    spare: tuple[np.ndarray, np.ndarray, np.ndarray]

    @property
    def out(self) -> np.ndarray:
        return np.ones(self.references.shape[:2], dtype=bool) if self.known is None else ~self.known


def of_label(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return p[..., np.arange(len(y)), y]


def phi(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    q = np.clip(of_label(p, y), 1e-12, 1 - 1e-12)
    return np.asarray(np.log(q / (1 - q)))


class _Stand(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        known = name.split(".")[0] in _UNUSED
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: Any) -> ModuleType:
        return MagicMock(name=spec.name, __path__=[], __spec__=spec)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is executed."""


def use(folder: Path) -> None:
    """Makes the clones importable."""
    sys.path[:0] = [str(folder / name) for name in ("LeakPro", "ml_privacy_meter", "PrivacyGuard")]
    sys.meta_path.append(_Stand())  # asked last, for what is not installed
    logging.disable(logging.WARNING)


def scores(game: Game) -> dict[str, np.ndarray]:
    """Name -> scores, shape (c,)."""
    found = {"LeakPro BASE": leakpro_base(game), "Privacy Meter RMIA": privacy_meter(game)}
    found |= privacy_guard(game)
    if len(game.references) == 2 and game.known is None:  # these ask no reference
        found |= {"LeakPro QMIA": leakpro_qmia(game), "SACRO-ML QMIA": sacro_qmia(game)}
    return found


def privacy_meter(game: Game) -> np.ndarray:
    from attacks import run_rmia  # type: ignore[import-not-found]

    own, others = of_label(game.p, game.y), of_label(game.references, game.y)
    spare = of_label(game.spare[2], game.spare[1])
    # The second column is that of a model with the other half, which is left out.
    signals, population = np.stack([own, own, *others], axis=1), np.repeat(spare[:, None], 2 + len(others), axis=1)
    inside = np.stack([game.inside, game.inside, *~game.out], axis=1)
    return np.asarray(run_rmia(0, signals, population, inside, int(game.out.sum(axis=0).min()), 0.3))


def privacy_guard(game: Game) -> dict[str, np.ndarray]:
    import pandas as pd  # type: ignore[import-untyped]
    from privacy_guard.analysis.mia.aggregate_analysis_input import AggregationType  # type: ignore[import-not-found]
    from privacy_guard.attacks.lira_attack import LiraAttack  # type: ignore[import-not-found]

    others = phi(game.references, game.y)
    columns: dict[str, np.ndarray] = {"user_id": np.arange(len(game.y)), "score_orig": phi(game.p, game.y)}
    sides = {"": game.out} if game.known is None else {"_in": ~game.out, "_out": game.out}
    for name, rows in sides.items():
        values = np.ma.array(others, mask=~rows)
        columns[f"score_mean{name}"] = np.asarray(values.mean(axis=0))
        if rows.sum(axis=0).min() > 1:
            columns[f"score_std{name}"] = np.asarray(values.std(axis=0, ddof=1)).clip(1e-6)
    table = pd.DataFrame(columns)
    online, several = game.known is not None, any(name.startswith("score_std") for name in columns)
    ways: dict[str, dict[str, Any]] = {"fixed": {"use_fixed_variance": True, "std_dev_type": "global"}}
    if several:
        ways["fixed"]["std_dev_type"] = "mix" if online else "shadows_out"
        ways |= {"": {"std_dev_type": "shadows_out"}} if online else {}
    found = {}
    for name, way in ways.items():
        parts = table[game.inside].copy(), table[~game.inside].copy()
        LiraAttack(*parts, AggregationType.MAX, online_attack=online, **way).run_attack()
        both = pd.concat(parts).sort_values("user_id")
        found[f"PrivacyGuard LiRA {name}".strip()] = both["score"].to_numpy()
    return found


def leakpro_base(game: Game) -> np.ndarray:
    from leakpro.attacks.mia_attacks import base  # type: ignore[import-not-found]

    def load_logits(name: str | None = None, indx: int | None = None) -> np.ndarray:
        return np.log(game.p if indx is None else game.references[indx])

    attack = base.BASEConfig()
    ins, outs, found = np.flatnonzero(game.inside), np.flatnonzero(~game.inside), np.empty(len(game.y))
    held = SimpleNamespace(
        online=game.known is not None,
        temperature=attack.temperature,
        offline_scale_factor=attack.offline_scale_factor,
        # Offline it takes half of its models to have seen a record, and leaves these out.
        num_shadow_models=len(game.references) * (1 if game.known is not None else 2),
        shadow_model_indices=range(len(game.references)),
        out_indices=game.out,
        handler=SimpleNamespace(get_labels=lambda rows: game.y[rows]),
        audit_dataset={"data": np.arange(len(game.y)), "in_members": ins, "out_members": outs},
        configs=attack,
    )
    base.ShadowModelHandler = lambda: SimpleNamespace(target_model_hash="", load_logits=load_logits)
    base.MIAResult = SimpleNamespace(from_full_scores=lambda signal_values, **_: signal_values[:, 0])
    found[np.r_[ins, outs]] = base.AttackBASE.run_attack(held)
    return found


def leakpro_qmia(game: Game) -> np.ndarray:
    import torch
    from leakpro.attacks.mia_attacks import qmia
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    x, y, p = game.spare
    inputs = torch.as_tensor(x, dtype=torch.float32)
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(x.shape[1], p.shape[1]))
    if hasattr(game.model, "coefs_"):  # the hidden layer of a network; other models have none
        first = torch.nn.Linear(*game.model.coefs_[0].shape)
        first.weight.data = torch.as_tensor(game.model.coefs_[0].T, dtype=torch.float32)
        first.bias.data = torch.as_tensor(game.model.intercepts_[0], dtype=torch.float32)
        model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Linear(first.out_features, p.shape[1]))

    whole = DataLoader(TensorDataset(inputs, torch.as_tensor(y)), batch_size=len(y))
    quantiles = [0.9, 0.99, 0.999]
    regressor = qmia.QuantileRegressor(model, whole, len(quantiles))
    batches = DataLoader(qmia.QMIADataset(whole, phi(p, y)), batch_size=64)
    optimizer = torch.optim.Adam(regressor.parameters(), lr=1e-3, weight_decay=1e-4)
    with redirect_stderr(io.StringIO()):
        qmia.AttackQMIA._train_quantile_regressor(
            SimpleNamespace(quantile_regressor=regressor), batches, qmia.PinballLoss(quantiles), optimizer, 100
        )
    with torch.no_grad():
        usual = regressor(torch.as_tensor(game.x, dtype=torch.float32))[:, 1].numpy()
    return np.asarray(phi(game.p, game.y) - usual)


def sacro_qmia(game: Game) -> np.ndarray:
    from sacroml.attacks import utils  # type: ignore[import-not-found]
    from sacroml.attacks.qmia_attack import QMIAAttack  # type: ignore[import-not-found]
    from sacroml.attacks.target import Target  # type: ignore[import-not-found]

    ins, (x, y, _) = game.inside, game.spare
    told = Target(model=game.model, X_train=game.x[ins], y_train=game.y[ins], X_test=x, y_test=y)
    with tempfile.TemporaryDirectory() as folder:
        attack = QMIAAttack(output_dir=folder, write_report=False)
        if attack.attack(told).get("status") != "success":
            return np.zeros(len(game.y))
    usual = attack.quantile_model.predict(np.column_stack([game.x, game.y]))
    return np.asarray(utils.qmia_hinge_score(game.p, game.y) - usual)
