"""The models that benchmarks/peers.py attacks: records, and estimators that are trained on half of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from gmip.attacks.optimality import decode_optimum
from gmip.auditing.sources.estimator import linear_optimum
from gmip.tasks.builtin import ADULT_FILES as ADULT
from gmip.tasks.builtin import CIFAR10_FILES as CIFAR10
from gmip.tasks.builtin import encode_adult, parse_adult, parse_images
from gmip.tasks.data_files import read_files

__all__ = ["SETTINGS", "Setting"]

Records = tuple[np.ndarray, np.ndarray]


def nothing(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    return {}


@dataclass(frozen=True)
class Setting:
    """Records of shape (n, features) and labels from 0, an estimator, and attacks of gmip that only apply here."""

    records: Callable[[], Records]
    make: Callable[[], Any]
    shadows: int = 32
    more: Callable[[Any, np.ndarray, np.ndarray], dict[str, np.ndarray]] = nothing


@cache
def people() -> Records:
    table, labels = encode_adult([row for content in read_files(*ADULT) for row in parse_adult(content)])
    return table, labels


def adult() -> Records:
    table, labels = people()
    return table[:4_000], labels[:4_000]


def tumours() -> Records:
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def boosted() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=100, n_jobs=1)


def decoded(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """The weights of a logistic regression are an optimum: a list that holds its members can be decoded."""
    members = len(y) // 2
    known = linear_optimum(model, X, y, members)
    assert known is not None
    found = decode_optimum(known.gradients, penalty_gradient=known.penalty_gradient, dataset_size=members, coverage=1.0)
    return {"optimum-decode": found.log_odds}


@cache
def pictures() -> Records:
    images, labels = parse_images(next(iter(read_files(CIFAR10[0]))))
    return (images[:2_000].reshape(2_000, -1) / 255.0 - 0.47).astype(np.float32) / 0.25, labels[:2_000]


class Network(ClassifierMixin, BaseEstimator):
    """A network as an estimator: shuffled mini-batches of Adam, reproducible from `random_state`."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    epochs, batch, rate = 12, 50, 1.0e-3

    def build(self) -> nn.Module:
        raise NotImplementedError

    def outputs(self, model: nn.Module, X: Tensor) -> Tensor:
        raise NotImplementedError

    def fit(self, X: np.ndarray, y: np.ndarray) -> Network:
        self.classes_ = np.unique(y)
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state)
            self.model_ = self.build().train()
            inputs, targets = torch.as_tensor(np.asarray(X)), torch.as_tensor(np.asarray(y))
            optimizer = torch.optim.Adam(self.model_.parameters(), lr=self.rate)
            for _ in range(self.epochs):
                for rows in torch.randperm(len(targets)).split(self.batch):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(self.outputs(self.model_, inputs[rows]), targets[rows])
                    loss.backward()
                    optimizer.step()
        self.model_.eval()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            parts = [self.outputs(self.model_, part) for part in torch.as_tensor(np.asarray(X)).split(500)]
            return torch.cat(parts).double().softmax(dim=1).numpy()

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class Convolutions(Network):
    """A CNN with 47,818 parameters on images of CIFAR-10."""

    epochs, batch, rate = 12, 50, 2.0e-3

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (3, 32, 32)),
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def outputs(self, model: nn.Module, X: Tensor) -> Tensor:
        return model(X)


_TEXTS, _BASE = 800, 6_000  # fine-tuned and attacked; what the base model learns from


@cache
def sentences() -> Records:
    """People of Adult as sequences of twelve tokens: each column's values have words of their own, numbers in tens."""
    table, labels = people()
    table = table.copy()
    for column in range(table.shape[1]):
        if len(np.unique(table[:, column])) > 45:  # age, hours and the logarithms of gains: ten words each
            edges = np.unique(np.quantile(table[:, column], np.linspace(0.0, 1.0, 11)[1:-1]))
            table[:, column] = np.digitize(table[:, column], edges)
    tokens = np.zeros(table.shape, dtype=np.int64)
    words = 1
    for column in range(table.shape[1]):
        values, places = np.unique(table[:, column], return_inverse=True)
        tokens[:, column] = words + places.reshape(-1)
        words += len(values)
    return tokens, labels


def texts() -> Records:
    tokens, labels = sentences()
    return tokens[_BASE : _BASE + _TEXTS], labels[_BASE : _BASE + _TEXTS]


class Transformer(Network):
    """A BERT classifier made from a configuration, trained on other people and then fine-tuned."""

    epochs, batch, rate = 12, 20, 5.0e-4

    def fresh(self) -> nn.Module:
        from transformers import BertConfig, BertForSequenceClassification

        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        words = int(sentences()[0].max()) + 1
        return BertForSequenceClassification(BertConfig(vocab_size=words, max_position_embeddings=16, **sizes))

    def build(self) -> nn.Module:
        model = self.fresh()
        model.load_state_dict(base_model().model_.state_dict())
        return model

    def outputs(self, model: nn.Module, X: Tensor) -> Tensor:
        tokens = X.long()  # ART asks in single precision
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits


class Base(Transformer):
    epochs, batch, rate = 3, 50, 1.0e-3

    def build(self) -> nn.Module:
        return self.fresh()


@cache
def base_model() -> Base:
    tokens, labels = sentences()
    return Base(random_state=0).fit(tokens[:_BASE], labels[:_BASE])


def against_base(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Loss under the base model minus loss under the fine-tuned one."""
    rows = np.arange(len(y))
    gains = [np.log(one.predict_proba(X)[rows, y]) for one in (model, base_model())]
    return {"reference": gains[0] - gains[1]}


SETTINGS = {
    "forest-adult": Setting(adult, lambda: RandomForestClassifier(100, n_jobs=1)),
    "xgboost-adult": Setting(adult, boosted),
    "logistic-cancer": Setting(tumours, lambda: LogisticRegression(max_iter=1_000), more=decoded),
    "cnn-cifar10": Setting(pictures, Convolutions, shadows=16),
    "transformer-adult": Setting(texts, Transformer, shadows=16, more=against_base),
}
