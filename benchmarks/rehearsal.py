"""Rehearsal of checkpoints, rounds of FedAvg and recorded steps: AUC, members found at 1% false alarms, and nulls.

    GMIP_DATA=... python benchmarks/rehearsal.py [--seeds 10,11,12] [NAME ...] [--docs]
    python benchmarks/rehearsal.py --show [--docs]

Each run is played again with nobody of the list in. LiRA and RMIA have 16 shadow models, trained by the same loop on
records of the list. Every attack on a run is a row of benchmarks/rehearsal.csv (--keep) the moment the run is done, and
is not repeated while the row is there. Tables are means over the seeds of the file; --docs writes them into
docs/evidence/rehearsal.md, between the comments that name them.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from _games import Book, markdown
from _harness import Row, written
from sklearn.datasets import load_digits
from torch import nn

from gmip.attacks import Decode, RehearsalSteps
from gmip.attacks.arrays import Answers, ReferenceAnswers, array_attacks, read_answers
from gmip.attacks.publications import CheckpointedModel, Moment, Way, flat, state_vectors
from gmip.attacks.rehearsal_attack import Rehearsal
from gmip.errors import GmipError
from gmip.integrations.federated import Reply, RoundRecorder
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import Header, ParameterSpec, ReleasedModel, Trace
from gmip.training import record
from gmip.training.models import trainable_parameters
from gmip.vocabulary import Recipe

HERE = Path(__file__).parent
STRANGERS = 300
SHADOWS = 16
DECOYS = 200  # of `Rehearsal`, by default
NUMBERS = ("auc", "tpr", "p5", "p1", "in", "out", "self-play", "rho", "used", "seconds")
FACTS = {"self-play": "self_play_auc", "rho": "rho"}
RUNS: dict[str, dict[str, Any]] = {
    "cnn-sgd": {"optimizer": "SGD", "learning_rate": 0.05, "batch_size": 20, "epochs": 4},
    "cnn-momentum": {"optimizer": "SGD", "learning_rate": 0.02, "batch_size": 50, "options": {"momentum": 0.9}},
    "cnn-adam": {"optimizer": "Adam", "learning_rate": 4e-3, "batch_size": 50, "epochs": 8},
    "cnn-adamw-cosine": {"optimizer": "AdamW", "learning_rate": 1e-3, "batch_size": 50, "epochs": 4, "cosine": True},
    "mlp-sgd": {"data": "digits", "optimizer": "SGD", "learning_rate": 0.1, "batch_size": 20, "epochs": 4},
    "mlp-adam": {"data": "digits", "optimizer": "Adam", "learning_rate": 5e-3, "batch_size": 20, "epochs": 4},
    "lora": {"data": "lora", "optimizer": "AdamW", "learning_rate": 5e-3, "batch_size": 20, "epochs": 4},
}


def photographs(count: int, shrink: int) -> Examples:
    """The first of CIFAR-10, smaller by this factor."""
    raw = np.fromfile(Path(os.environ["GMIP_DATA"]) / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8)
    rows, side = raw.reshape(-1, 3073)[:count], 32 // shrink
    x = rows[:, 1:].reshape(-1, 3, side, shrink, side, shrink).astype(np.float32).mean((3, 5))
    x = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    return Examples(torch.from_numpy(x), torch.from_numpy(rows[:, 0].astype(np.int64)))


def cifar() -> tuple[Examples, Any, int]:
    """CIFAR-10 in 16 x 16, a network of 4,040 parameters, and 300 members."""

    def make() -> nn.Module:
        features = nn.Sequential(
            *(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten()),
        )
        return nn.Sequential(features, nn.Linear(64, 26), nn.ReLU(), nn.Linear(26, 10))

    return photographs(6000, 2), make, 300


def digits() -> tuple[Examples, Any, int]:
    """The digits of scikit-learn, a network of 4,810 parameters, and 200 members."""
    x, y = load_digits(return_X_y=True)
    data = Examples(torch.tensor(x / 16.0, dtype=torch.float32), torch.tensor(y))
    return data, lambda: nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)), 200


class Lora(nn.Module):
    """A frozen linear layer and a change of rank 8 that is learned."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs)
        self.down = nn.Parameter(0.2 * torch.randn(8, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, 8))

    def forward(self, x: Any) -> Any:
        return self.frozen(x) + x @ self.down.T @ self.up.T


class Block(nn.Module):
    """Attention and two layers, all with LoRA."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (Lora(width, width) for _ in range(4))
        self.wide, self.narrow = Lora(width, 2 * width), Lora(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        looks = (self.query(h) @ self.key(h).mT / h.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out(looks @ self.value(h))
        return x + self.narrow(torch.relu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """Two blocks on the eight rows of a digit."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.rows, self.places = nn.Linear(8, width), nn.Parameter(0.5 * torch.randn(8, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.rows(x.view(-1, 8, 8)) + self.places).mean(1))


def lora() -> tuple[Examples, Any, int]:
    """Digits, a small transformer of which LoRA's 7,168 parameters and the head are tuned, and 200 members."""
    data, _, size = digits()

    @functools.cache
    def base() -> dict[str, Any]:
        """Weights from a training on 400 records with wrong labels: there is something to learn."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = Transformer()
            optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
            for _ in range(60):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(data.inputs[:400]), (data.targets[:400] + 1) % 10).backward()
                optimizer.step()
        return {key: value for key, value in model.state_dict().items() if not key.endswith(("up", "down"))}

    def make() -> nn.Module:
        model = Transformer()
        model.load_state_dict(base(), strict=False)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.endswith(("up", "down")) or name.startswith("head"))
        return model

    return data[400:], make, size


DATA: dict[str, Callable[[], tuple[Examples, Any, int]]] = {"cifar": cifar, "digits": digits, "lora": lora}


def rates(scores: Any, member: Any, strangers: Any = None) -> Row:
    """AUC, the share of members found at 1% false alarms, and of strangers, by their p-values, with small ones."""
    ins, outs = scores[member], scores[~member]
    row = {"auc": float(auc(ins, outs)), "tpr": float((ins > np.quantile(outs, 0.99)).mean()), "in": len(ins)}
    row["out"] = len(outs)
    if strangers is not None:
        row |= {f"p{percent}": float((strangers <= percent / 100).mean()) for percent in (5, 1)}
    return row


def measure(name: str, seed: int, *, null: bool = False) -> dict[str, Row] | str:
    """Train and attack; rows by attack, or why there are none."""
    run = {"epochs": 3, "options": {}, "data": "cifar", "cosine": False} | RUNS[name]
    data, make, size = DATA[run["data"]]()
    recipe = Recipe(
        **{key: run[key] for key in ("optimizer", "learning_rate", "batch_size")},
        dataset_size=size,
        num_steps=1,
        sampling="shuffled",
        optimizer_options=run["options"],
    )
    task = Task(name=name, make_model=make, pool=data, test=data[:10], recipe=recipe)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside, strangers, hidden = np.split(order, np.cumsum([size, size, STRANGERS]))
    trained, hidden = (hidden[:size], hidden[size:]) if null else (inside, hidden)
    model, moments, ways = train(task, trained, run, seed)
    parameters = tuple(ParameterSpec(key, tuple(p.shape)) for key, p in trainable_parameters(model))
    count = sum(p.size for p in parameters)
    header = Header(parameters=parameters, num_params=count, dataset_size=size, batch_size=recipe.batch_size)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    who = {"members": np.sort(inside), "non_members": np.sort(np.concatenate([outside, strangers]))}
    target = CheckpointedModel(ReleasedModel(Path(name), header, **who, state=state), moments, ways)
    ids = np.sort(np.concatenate([inside, outside, strangers]))
    start = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        try:
            found = Rehearsal(seed=seed).run(task, target, ids, data[hidden])
        except GmipError as error:
            return str(error)
    seconds = time.process_time() - start

    def fit(rows: Any, seed: int) -> nn.Module:
        return train(task, rows, run, seed)[0]

    return told(task, model, found, ids, inside, seconds / len(ways), None if null else fit, seed)


def told(
    task: Task,
    model: nn.Module,
    found: Any,
    ids: Any,
    inside: Any,
    seconds: float,
    fit: Callable[[Any, int], nn.Module] | None,
    seed: int,
) -> dict[str, Row]:
    """Rows by attack; `fit` trains a shadow model, None: nobody was in, and none are trained."""
    member = np.isin(found.ids, inside)
    strangers = found.p_values if fit is None else found.p_values[~member]
    row = {"seconds": seconds, "used": found.facts["publications"]} | rates(found.scores, member, strangers)
    row |= {name: found.facts[key] for name, key in FACTS.items() if key in found.facts}
    if fit is None:
        return {"rehearsal": row}

    def answers(one: nn.Module) -> Answers:
        with torch.no_grad():
            logits = one.eval()(task.pool.inputs[ids]).double().numpy()
        return read_answers("logits", logits, task.pool.targets[ids].numpy())

    rng, shadows, rows = np.random.default_rng(seed), [], {"rehearsal": row}
    for number in range(SHADOWS):
        some = rng.choice(ids, len(inside), replace=False)
        shadows.append(ReferenceAnswers(answers(fit(some, 1000 * (seed + 1) + number)), np.isin(ids, some)))
    for name, one in array_attacks(answers(model), shadows).items():
        if name in ("loss", "lira", "rmia"):
            rows[name] = rates(one.scores, member)
    return rows


def train(task: Task, rows: Any, run: dict[str, Any], seed: int) -> tuple[nn.Module, list[Moment], list[Way]]:
    """A plain loop, and its weights and optimizer's state before it and after each epoch."""
    torch.manual_seed(seed)
    model, recipe = task.make_model(), task.recipe
    optimizer = getattr(torch.optim, recipe.optimizer)(
        [p for p in model.parameters() if p.requires_grad], lr=recipe.learning_rate, **recipe.optimizer_options
    )
    steps = -(-len(rows) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * run["epochs"]) if run["cosine"] else None
    parameters = [p for p in model.parameters() if p.requires_grad]
    moments, ways = [Moment(flat(parameters))], []
    for _ in range(run["epochs"]):
        rates_used = []
        for batch in torch.randperm(len(rows)).split(recipe.batch_size):
            part = task.pool[rows[batch.numpy()]]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(part.inputs), part.targets).backward()
            rates_used.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if schedule is not None:
                schedule.step()
        first, second, taken = state_vectors(optimizer.state_dict(), parameters)
        moments.append(Moment(flat(parameters), first, second, taken))
        ways.append(Way(recipe, tuple(rates_used)))
    return model.eval(), moments, ways


# -- recorded steps ---------------------------------------------------------------------------------------------------

KINDS = ("batch-norm", "dropout", "augmentation", "whole-clip", "signs", "top-5%", "bfloat16")
STEP_MEMBERS = 60
WORDS = 16
MASKS = 3616  # entries that dropout sees of a record, in the network below


def publisher(kind: str) -> Any:
    """What the loop does with a batch up to optimizer.step(), where gmip cannot know it; else None."""

    def publish(model: nn.Module, records: Examples) -> None:
        inputs = records.inputs
        if kind == "augmentation":
            inputs = inputs + 0.3 * torch.randn_like(inputs)
        nn.functional.cross_entropy(model(inputs), records.targets).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if kind == "whole-clip":  # by hand: nothing sees it
            factor = min(1.0, 0.1 / float(torch.cat([g.flatten() for g in gradients]).norm()))
            for g in gradients:
                g.mul_(factor)
        if kind == "signs":
            for g in gradients:
                g.sign_()
        if kind == "top-5%":
            sizes = torch.cat([g.flatten().abs() for g in gradients])
            least = sizes.kthvalue(int(0.95 * len(sizes))).values
            for g in gradients:
                g.mul_(g.abs() > least)

    return publish if kind in ("augmentation", "whole-clip", "signs", "top-5%") else None


def perceptron(kind: str, inputs: int, classes: int) -> nn.Module:
    """64 units; BatchNorm or dropout stands behind the first layer."""
    between = [nn.BatchNorm1d(64)] if kind == "batch-norm" else [nn.Dropout(0.25)] if kind == "dropout" else []
    return nn.Sequential(nn.Linear(inputs, 64), *between, nn.ReLU(), nn.Linear(64, classes))


def convolutions(kind: str) -> nn.Module:
    """2,850 parameters."""
    between = [nn.BatchNorm2d(12)] if kind == "batch-norm" else [nn.Dropout(0.25)] if kind == "dropout" else []
    first = [nn.Conv2d(3, 12, 3, padding=1), *between, nn.ReLU(), nn.MaxPool2d(4)]
    second = [nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(64, 10))


class Residual(nn.Module):
    """Two convolutions beside a way around them, as in ResNet."""

    def __init__(self, inputs: int, outputs: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        stride = outputs // inputs
        first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.inner = nn.Sequential(first, norm(outputs), nn.ReLU(), second, norm(outputs))
        around = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs)] if stride > 1 else []
        self.around = nn.Sequential(*around)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.inner(x) + self.around(x))


def resnet(kind: str) -> nn.Module:
    """Seven convolutions, each with a BatchNorm or a GroupNorm behind it."""

    def norm(channels: int) -> nn.Module:
        return nn.GroupNorm(4, channels) if kind == "group-norm" else nn.BatchNorm2d(channels)

    blocks = [Residual(16, 16, norm), Residual(16, 32, norm), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    return nn.Sequential(first, norm(16), nn.ReLU(), *blocks, nn.Linear(32, 10))


class Bert(nn.Module):
    """BERT with its own defaults but for the sizes: dropout of .1 in the embeddings, both layers and attention.

    `given` : whether what is dropped is read from behind a record's words, and not drawn.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} if kind == "no-dropout" else {}
        words = {"vocab_size": 120, "max_position_embeddings": WORDS, "num_labels": 4}
        config = BertConfig(**sizes, **words, **off, attn_implementation="eager")
        self.inner, self.given = BertForSequenceClassification(config), kind == "masks-known"

    def forward(self, x: Any) -> Any:
        words, masks = x[:, :WORDS].long(), x[:, WORDS:]
        if not self.given:
            return self.inner(words).logits
        used = 0

        def dropped(values: Any, *args: Any, **options: Any) -> Any:
            nonlocal used
            count = values[0].numel()
            used += count
            return values * masks[:, used - count : used].reshape(values.shape)

        with mock.patch.object(nn.functional, "dropout", dropped):
            return self.inner(words).logits


@functools.cache
def people(count: int) -> Examples:
    """The first of Adult, with all their columns."""
    from gmip.tasks.builtin import ADULT_FILES, encode_adult, parse_adult
    from gmip.tasks.data_files import read_files

    rows = [row for content in read_files(*ADULT_FILES) for row in parse_adult(content)][:count]
    table, labels = encode_adult(rows)
    table = (table - table.mean(0)) / (table.std(0) + 1e-6)
    return Examples(torch.tensor(table, dtype=torch.float32), torch.tensor(labels))


def adult() -> tuple[Examples, Any, int]:
    """8,000 people of Adult."""
    return people(8000), None, 0


@functools.cache
def texts() -> tuple[Examples, Any, int]:
    """Texts of 16 words on one of four subjects, each with words of its own, and behind them what dropout leaves."""
    rng = np.random.default_rng(0)
    subjects = rng.integers(0, 4, 2000)
    common = rng.zipf(1.3, (2000, WORDS)) % 60
    own = 60 + 15 * subjects[:, None] + rng.zipf(1.5, (2000, WORDS)) % 15
    words = np.where(rng.random((2000, WORDS)) < 0.3, own, common)
    masks = (rng.random((2000, MASKS), np.float32) < 0.9) / np.float32(0.9)
    return Examples(torch.from_numpy(np.hstack([words, masks]).astype(np.float32)), torch.from_numpy(subjects)), None, 0


class Network(NamedTuple):
    """Data, a network for each kind, and the kinds."""

    data: Callable[[], tuple[Examples, Any, int]]
    make: Callable[[str], nn.Module]
    kinds: tuple[str, ...] = KINDS


NETWORKS = {
    "": Network(digits, lambda kind: perceptron(kind, 64, 10)),
    "adult-": Network(adult, lambda kind: perceptron(kind, 12, 2)),
    "cnn-": Network(cifar, convolutions),
    "bert-": Network(texts, Bert, ("no-dropout", "masks-known", "dropout", "dropout-8-steps")),
    "resnet-": Network(cifar, resnet, ("group-norm", "batch-norm", "batch-norm-8-steps")),
}
STEPS = {f"{prefix}{kind}": (network, kind) for prefix, network in NETWORKS.items() for kind in network.kinds}


def measure_step(name: str, seed: int, *, null: bool = False) -> dict[str, Row]:
    """One recorded full-batch step (or eight) after 20 others, attacked by decode as if nothing were done to the mean
    of the records' gradients, and by rehearsal."""
    network, kind = STEPS[name]
    kind, steps = kind.removesuffix("-8-steps"), 8 if kind.endswith("8-steps") else 1
    size = STEP_MEMBERS
    data = network.data()[0]
    recipe = Recipe(dataset_size=size, batch_size=size, num_steps=1, learning_rate=0.1, sampling="full")
    publish = publisher(kind)
    task = Task(
        name=kind, make_model=lambda: network.make(kind), pool=data, test=data[:10], recipe=recipe, publish=publish
    )
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside, hidden = np.split(order, [size, 2 * size])
    trained = hidden[:size] if null else inside
    background = data[hidden[size:][:1200]]
    some = data[trained]
    torch.manual_seed(seed)
    model = task.make_model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        if publish is not None:
            publish(model, some)
        else:
            with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bfloat16"):
                loss = nn.functional.cross_entropy(model(some.inputs), some.targets)
            loss.backward()
        optimizer.step()

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        for _ in range(0 if kind == "signs" else 20):
            step()
        who = {"members": np.sort(trained), "dataset_size": size, "batch_size": size, "sampling": "full"}
        with record(model, optimizer, Path(folder) / "run", data=task, **who):
            for _ in range(steps):
                step()
        trace, ids = Trace.open(Path(folder) / "run"), np.sort(np.concatenate([inside, outside]))
        found: dict[str, Row] = {}
        for key, attack in (("decode", Decode()), ("rehearsal", RehearsalSteps(rehearsals=40, seed=seed))):
            start = time.process_time()
            try:
                told = attack.run(task, trace, ids, background)
            except GmipError as error:
                print(f"{name}, seed {seed}, {attack.name}: refused: {error}", flush=True)
                found[key] = {}
                continue
            member, p_values = np.isin(told.ids, inside), told.p_values
            strangers = None if p_values is None else p_values if null else p_values[~member]
            found[key] = rates(told.scores, member, strangers) | {"seconds": time.process_time() - start}
            found[key] |= {name: told.facts[fact] for name, fact in FACTS.items() if fact in told.facts}
    return found


# -- federations ------------------------------------------------------------------------------------------------------

ROUNDS = {  # clients, records of each, local steps, each reply or the average
    "reply-1": (1, 40, 1),
    "reply-5": (1, 40, 5),
    "reply-20": (1, 40, 20),
    "reply-50": (1, 100, 50),
    "average-5": (5, 40, 5),
    "average-20": (5, 40, 20),
}


def measure_round(name: str, seed: int, *, null: bool = False) -> dict[str, Row] | str:
    """One round of FedAvg with the CNN, SGD at .05 in batches of 10."""
    clients, share, steps = ROUNDS[name]
    data, make, _ = cifar()
    size = clients * share
    recipe = Recipe(dataset_size=size, batch_size=10, num_steps=1, learning_rate=0.05, sampling="shuffled")
    task = Task(name=name, make_model=make, pool=data, test=data[:10], recipe=recipe)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside, hidden = np.split(order, [size, 2 * size + STRANGERS])
    trained, hidden = (hidden[:size], hidden[size:]) if null else (inside, hidden)
    torch.manual_seed(seed)
    model = make()

    def arrays(one: nn.Module) -> dict[str, Any]:
        return {key: value.detach().numpy().copy() for key, value in one.state_dict().items()}

    def replied(rows: Any) -> list[Reply]:
        found = []
        for part in np.array_split(rows, clients):
            own = copy.deepcopy(model)
            optimizer = torch.optim.SGD(own.parameters(), lr=0.05)
            batches = [batch for _ in range(steps) for batch in torch.randperm(share).split(10)][:steps]
            for batch in batches:
                some = data[part[batch.numpy()]]
                optimizer.zero_grad()
                nn.functional.cross_entropy(own(some.inputs), some.targets).backward()
                optimizer.step()
            found.append(Reply(arrays=arrays(own), weight=float(share)))
        return found

    def averaged(replies: list[Reply]) -> dict[str, Any]:
        return {key: np.mean([one.arrays[key] for one in replies], axis=0) for key in replies[0].arrays}

    def fit(rows: Any, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        own = copy.deepcopy(model)
        own.load_state_dict({key: torch.from_numpy(value) for key, value in averaged(replied(rows)).items()})
        return own

    replies = replied(trained)
    new = averaged(replies)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        sizes = {"dataset_size": size, "batch_size": size, "sampling": "full", "members": np.sort(trained)}
        local = {"learning_rate": 0.05, "local_steps": steps, "local_batch_size": 10, "clients": clients}
        with RoundRecorder(model, Path(folder) / "run", unit="examples", data=task, **sizes, **local) as recorder:
            recorder.begin(arrays(model))
            recorder.end(new, replies)
        ids = np.sort(np.concatenate([inside, outside]))
        start = time.process_time()
        trace = Trace.open(Path(folder) / "run")
        try:
            found = RehearsalSteps(seed=seed).run(task, trace, ids, data[hidden[:2000]])
        except GmipError as error:
            return str(error)
        seconds = time.process_time() - start
    own = copy.deepcopy(model)
    own.load_state_dict({key: torch.from_numpy(value) for key, value in new.items()})
    return told(task, own, found, ids, inside, seconds, None if null else fit, seed)


# -- rows and tables --------------------------------------------------------------------------------------------------

PARTS: dict[str, tuple[dict[str, Any], Callable[..., dict[str, Row] | str]]] = {
    "checkpoints": (RUNS, measure),
    "rounds": (ROUNDS, measure_round),
    "steps": (STEPS, measure_step),
}
BESIDE = {"checkpoints": ("loss", "lira", "rmia"), "rounds": ("loss", "lira", "rmia"), "steps": ("decode",)}
HEADS = {"lira": f"LiRA-{SHADOWS}", "rmia": f"RMIA-{SHADOWS}"}


def played(book: Book, part: str, name: str, seed: int, *, null: bool) -> None:
    """Its rows, unless they are there; a refusal is a row without numbers."""
    key: Row = {"part": part, "setting": name, "seed": seed, "null": null}
    if not book.wants(key | {"attack": "rehearsal"}):
        return
    found = PARTS[part][1](name, seed, null=null)
    if isinstance(found, str):
        print(f"{name}, seed {seed}{', nobody in' if null else ''}: refused: {found}", flush=True)
        found = {"rehearsal": {}}
    for attack, row in found.items():
        book.add(key | {"attack": attack} | row)


def table(book: Book, part: str) -> str:
    """Means over seeds, and the same with nobody of the list in; below, how far from the nominal these are."""
    heads = [part.removesuffix("s"), *(HEADS.get(name, name) for name in BESIDE[part])]
    heads += ["rehearsal", "self-play", "rho", "rho, nobody in", "CPU s"]
    lines, away, shares, areas, seeds = [], {}, {"p5": [], "p1": []}, [], set()
    for name in PARTS[part][0]:
        ours, nulls = (book.found(part=part, setting=name, attack="rehearsal", null=null) for null in (False, True))
        if not ours:
            continue
        told, empty = [row for row in ours if "auc" in row], [row for row in nulls if "auc" in row]
        line = [name, *(hits(book.found(part=part, setting=name, attack=one, null=False)) for one in BESIDE[part])]
        line += [hits(ours), average(told, "self-play", 3), average(told, "rho", 2), average(empty, "rho", 2)]
        lines.append([*line, average(told, "seconds", 1)])
        seeds |= {row["seed"] for row in ours}
        for kind, rows, sides in (("p of others", told, ("out",)), ("p of nobody in", empty, ("in", "out"))):
            if rows := [row for row in rows if "p5" in row]:
                for key, found in shares.items():
                    found.append(float(np.mean([row[key] for row in rows])))
                away[name, kind] = (shares["p5"][-1] - 0.05) / luck(rows, sides)
        if empty:
            areas.append(float(np.mean([row["auc"] for row in empty])))
            away[name, "AUC"] = (areas[-1] - 0.5) / chance(empty)
    if not lines:
        return ""
    far = sorted(away.items(), key=lambda item: -abs(item[1]))[:3]
    said = ", ".join(f"{value:+.1f} ({name}, {what})" for (name, what), value in far)
    ranges = [f"{min(found):.1%} to {max(found):.1%} (mean {np.mean(found):.1%})" for found in shares.values()]
    below = f"Nobody in: AUC {min(areas):.3f} to {max(areas):.3f}. "
    below += f"Strangers with p ≤ 5%: {ranges[0]}; p ≤ 1%: {ranges[1]}. "
    below += f"Farthest from chance, in its errors: {said}. Seeds {min(seeds)} to {max(seeds)}.\n"
    return f"{markdown(heads, lines)}\n{below}"


def average(rows: list[Row], key: str, digits: int) -> str:
    """The mean where it is known."""
    values = [row[key] for row in rows if key in row]
    return f"{np.mean(values):.{digits}f}" if values else ""


def hits(rows: list[Row]) -> str:
    """Mean AUC, and mean share of members found at 1% false alarms."""
    told = [row for row in rows if "auc" in row]
    if not told:
        return "refused" if rows else ""
    refused = f" ({len(rows) - len(told)} refused)" if len(told) < len(rows) else ""
    return f"{average(told, 'auc', 3)}, {np.mean([row['tpr'] for row in told]):.0%}{refused}"


def luck(rows: list[Row], sides: tuple[str, ...]) -> float:
    """The error of the share of p-values of 5% or less: of so many strangers, and of their ranks among decoys."""
    spread = [0.05 * 0.95 * (1.0 / sum(row[side] for side in sides) + 1.0 / DECOYS) for row in rows]
    return float(np.sqrt(sum(spread))) / len(rows)


def chance(rows: list[Row]) -> float:
    """The error of a mean AUC by chance alone: a few seeds would estimate it by chance, too."""
    spread = [(row["in"] + row["out"] + 1) / (12.0 * row["in"] * row["out"]) for row in rows]
    return float(np.sqrt(sum(spread)) / len(rows))


def main() -> None:
    """All rows, or those named; then the tables."""
    torch.set_num_threads(1)
    every = {name: part for part, (names, _) in PARTS.items() for name in names}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(every)} (default: all)")
    parser.add_argument("--seeds", default="10,11,12")
    parser.add_argument("--keep", type=Path, default=HERE / "rehearsal.csv")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--docs", action="store_true", help="write the tables into the docs")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in every]:
        parser.error(f"{unknown[0]} is no row")
    book = Book(given.keep, numbers=NUMBERS)
    for name in [] if given.show else given.names or every:
        for seed in map(int, given.seeds.split(",")):
            for null in (False, True):
                played(book, every[name], name, seed, null=null)
    found = {part: table(book, part) for part in PARTS}
    for part, text in found.items():
        print(f"\n{part}\n\n{text}")
    if given.docs:
        page = HERE.parent / "docs/evidence/rehearsal.md"
        page.write_text(written(page.read_text(encoding="utf-8"), "rehearsal.py", found), encoding="utf-8")


if __name__ == "__main__":
    main()
