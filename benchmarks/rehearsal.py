"""Rehearsal of checkpoints, rounds of FedAvg and recorded steps: AUC, members found at 1% false alarms, and nulls.

python benchmarks/rehearsal.py [NAME ...]    (CIFAR-10 from GMIP_DATA; each training about a CPU minute)
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from gmip.attacks import Decode, RehearsalSteps
from gmip.attacks.publications import CheckpointedModel, Moment, Way, flat, state_vectors
from gmip.attacks.rehearsal_attack import Rehearsal
from gmip.attacks.signals import losses
from gmip.errors import GmipError
from gmip.integrations.federated import Reply, RoundRecorder
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import Header, ParameterSpec, ReleasedModel, Trace
from gmip.training import record
from gmip.training.models import trainable_parameters
from gmip.vocabulary import Recipe

STRANGERS = 300
RUNS: dict[str, dict[str, Any]] = {
    "cnn-sgd": {"optimizer": "SGD", "learning_rate": 0.05, "batch_size": 20, "epochs": 4},
    "cnn-momentum": {"optimizer": "SGD", "learning_rate": 0.02, "batch_size": 50, "options": {"momentum": 0.9}},
    "cnn-adam": {"optimizer": "Adam", "learning_rate": 4e-3, "batch_size": 50, "epochs": 8},
    "cnn-adamw-cosine": {"optimizer": "AdamW", "learning_rate": 1e-3, "batch_size": 50, "epochs": 4, "cosine": True},
    "mlp-sgd": {"data": "digits", "optimizer": "SGD", "learning_rate": 0.1, "batch_size": 20, "epochs": 4},
    "mlp-adam": {"data": "digits", "optimizer": "Adam", "learning_rate": 5e-3, "batch_size": 20, "epochs": 4},
    "cnn-sgd-strangers": {"optimizer": "SGD", "learning_rate": 0.05, "batch_size": 20, "epochs": 4, "null": True},
}


def cifar() -> tuple[Examples, Any, int]:
    """CIFAR-10 in 16 x 16, a network of 4,040 parameters, and 600 members."""
    raw = np.fromfile(Path(os.environ["GMIP_DATA"]) / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8)
    rows = raw.reshape(-1, 3073)[:6000]
    x = rows[:, 1:].reshape(-1, 3, 16, 2, 16, 2).astype(np.float32).mean((3, 5))
    x = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)

    def make() -> nn.Module:
        features = nn.Sequential(
            *(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten()),
        )
        return nn.Sequential(features, nn.Linear(64, 26), nn.ReLU(), nn.Linear(26, 10))

    return Examples(torch.from_numpy(x), torch.from_numpy(rows[:, 0].astype(np.int64))), make, 600


def digits() -> tuple[Examples, Any, int]:
    """The digits of scikit-learn, a network of 4,810 parameters, and 200 members."""
    x, y = load_digits(return_X_y=True)
    data = Examples(torch.tensor(x / 16.0, dtype=torch.float32), torch.tensor(y))
    return data, lambda: nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)), 200


def measure(name: str, seed: int = 0) -> None:
    """Train, attack and print a row."""
    run = {"epochs": 3, "options": {}, "data": "cifar", "cosine": False, "null": False} | RUNS[name]
    data, make, size = cifar() if run["data"] == "cifar" else digits()
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
    trained, hidden = (hidden[:size], hidden[size:]) if run["null"] else (inside, hidden)
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
            print(f"| {name} | refused: {error} |", flush=True)
            return
    seconds = time.process_time() - start
    member, other = np.isin(found.ids, inside), ~np.isin(found.ids, inside)
    plain = -losses(task, model, data[ids])
    assert found.p_values is not None
    cells = [
        name,
        rates(plain[member], plain[other]),
        rates(found.scores[member], found.scores[other]),
        f"{(found.p_values[other] <= 0.05).mean():.1%}, {(found.p_values[other] <= 0.01).mean():.1%}",
        f"{found.facts.get('self_play_auc', np.nan):.3f}",
        f"{found.facts.get('rho', np.nan):.2f}",
        f"{found.facts['publications']}",
        f"{seconds / len(ways):.1f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def rates(inside: Any, outside: Any) -> str:
    """AUC, and members found at 1% false alarms."""
    return f"{auc(inside, outside):.3f} / {(inside > np.quantile(outside, 0.99)).mean():.0%}"


def train(task: Task, rows: Any, run: dict[str, Any], seed: int) -> tuple[nn.Module, list[Moment], list[Way]]:
    """A plain loop, and its weights and optimizer's state before it and after each epoch."""
    torch.manual_seed(seed)
    model, recipe = task.make_model(), task.recipe
    optimizer = getattr(torch.optim, recipe.optimizer)(
        model.parameters(), lr=recipe.learning_rate, **recipe.optimizer_options
    )
    steps = -(-len(rows) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * run["epochs"]) if run["cosine"] else None
    parameters = list(model.parameters())
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

STEPS = ("batch-norm", "dropout", "augmentation", "whole-clip", "signs", "top-5%", "bfloat16")
STEP_MEMBERS = 60


def layers(kind: str) -> list[nn.Module]:
    """What stands behind the first layer of 64 units."""
    return [nn.BatchNorm1d(64)] if kind == "batch-norm" else [nn.Dropout(0.25)] if kind == "dropout" else []


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


def measure_step(kind: str, seed: int, *, null: bool = False, cnn: bool = False) -> dict[str, Any]:
    """One recorded full-batch step after 20 others, attacked by decode as if nothing were done, and by rehearsal."""
    size = STEP_MEMBERS
    data, make, _ = cifar() if cnn else digits()
    if cnn:
        norm = [nn.BatchNorm2d(12)] if kind == "batch-norm" else [nn.Dropout(0.25)] if kind == "dropout" else []

        def make() -> nn.Module:
            first = [nn.Conv2d(3, 12, 3, padding=1), *norm, nn.ReLU(), nn.MaxPool2d(4)]
            second = [nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
            return nn.Sequential(*first, *second, nn.Linear(64, 10))
    else:

        def make() -> nn.Module:
            return nn.Sequential(nn.Linear(64, 64), *layers(kind), nn.ReLU(), nn.Linear(64, 10))

    recipe = Recipe(dataset_size=size, batch_size=size, num_steps=1, learning_rate=0.1, sampling="full")
    publish = publisher(kind)
    task = Task(name=kind, make_model=make, pool=data, test=data[:10], recipe=recipe, publish=publish)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside, hidden = np.split(order, [size, 2 * size])
    trained = hidden[:size] if null else inside
    background = data[hidden[size:][:1200]]
    some = data[trained]
    torch.manual_seed(seed)
    model = make()
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
            step()
        trace, ids = Trace.open(Path(folder) / "run"), np.sort(np.concatenate([inside, outside]))
        found = {}
        for attack in (Decode(), RehearsalSteps(rehearsals=40, seed=seed)):
            try:
                told = attack.run(task, trace, ids, background)
            except GmipError:
                continue
            member = np.isin(told.ids, inside)
            strangers = np.ones_like(member) if null else ~member
            low = np.nan if told.p_values is None else (told.p_values[strangers] <= 0.05).mean()
            found[attack.name] = (told.scores[member], told.scores[~member], low)
    return found


def step_table(names: list[str], seeds: int = 3) -> None:
    """Means over seeds, and the same with nobody of the list in."""
    print("| one step | decode | rehearsal-steps | others at p <= 5% | nobody in: AUC | p <= 5% |")
    print("|---|---|---|---|---|---|")
    for name in names:
        kind, cnn = name.removeprefix("cnn-"), name.startswith("cnn-")
        runs = [measure_step(kind, seed, cnn=cnn) for seed in range(seeds)]
        nulls = [measure_step(kind, seed, cnn=cnn, null=True) for seed in range(seeds)]
        cells = [name]
        for attack in ("decode", "rehearsal-steps"):
            pairs = [run[attack][:2] for run in runs if attack in run]
            cells.append(mean_rates(pairs) if len(pairs) == len(runs) else f"refused ({len(runs) - len(pairs)})")
        rehearsed = [run["rehearsal-steps"] for run in runs if "rehearsal-steps" in run]
        null = [run["rehearsal-steps"] for run in nulls if "rehearsal-steps" in run]
        cells.append(f"{np.mean([one[2] for one in rehearsed]):.1%}" if rehearsed else "")
        cells.append(f"{np.mean([auc(one[0], one[1]) for one in null]):.3f}" if null else "")
        cells.append(f"{np.mean([one[2] for one in null]):.1%}" if null else "")
        print(f"| {' | '.join(cells)} |", flush=True)


def mean_rates(pairs: Any) -> str:
    """Mean AUC, and mean share of members found at 1% false alarms."""
    found = np.mean([(ins > np.quantile(outs, 0.99)).mean() for ins, outs in pairs])
    return f"{np.mean([auc(*pair) for pair in pairs]):.3f} / {found:.0%}"


# -- federations ------------------------------------------------------------------------------------------------------

ROUNDS = {  # clients, records of each, local steps, each reply or the average
    "reply-1": (1, 40, 1),
    "reply-5": (1, 40, 5),
    "reply-20": (1, 40, 20),
    "reply-50": (1, 100, 50),
    "average-5": (5, 40, 5),
    "average-20": (5, 40, 20),
}


def measure_round(name: str, seed: int = 0, *, null: bool = False) -> None:
    """One round of FedAvg with the CNN, SGD at .05 in batches of 10."""
    clients, share, steps = ROUNDS[name]
    data, make, _ = cifar()
    size = clients * share
    recipe = Recipe(dataset_size=size, batch_size=10, num_steps=1, learning_rate=0.05, sampling="shuffled")
    task = Task(name=name, make_model=make, pool=data, test=data[:10], recipe=recipe)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside, hidden = np.split(order, [size, 2 * size])
    trained, hidden = (hidden[:size], hidden[size:]) if null else (inside, hidden)
    torch.manual_seed(seed)
    model = make()

    def arrays(one: nn.Module) -> dict[str, Any]:
        return {key: value.detach().numpy().copy() for key, value in one.state_dict().items()}

    replies = []
    for rows in np.array_split(trained, clients):
        own = copy.deepcopy(model)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.05)
        batches = [batch for _ in range(steps) for batch in torch.randperm(share).split(10)][:steps]
        for batch in batches:
            part = data[rows[batch.numpy()]]
            optimizer.zero_grad()
            nn.functional.cross_entropy(own(part.inputs), part.targets).backward()
            optimizer.step()
        replies.append(Reply(arrays=arrays(own), weight=float(share)))
    new = {key: np.mean([one.arrays[key] for one in replies], axis=0) for key in replies[0].arrays}
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
            print(f"| {name}{' (nobody in)' if null else ''} | refused: {error} |", flush=True)
            return
        seconds = time.process_time() - start
    member = np.isin(found.ids, inside)
    model.load_state_dict({key: torch.from_numpy(value) for key, value in new.items()})
    plain = -losses(task, model.eval(), data[ids])
    assert found.p_values is not None
    cells = [
        name + (" (nobody in)" if null else ""),
        rates(plain[member], plain[~member]),
        rates(found.scores[member], found.scores[~member]),
        f"{(found.p_values[np.ones_like(member) if null else ~member] <= 0.05).mean():.1%}",
        f"{found.facts.get('self_play_auc', np.nan):.3f}",
        f"{found.facts.get('rho', np.nan):.2f}",
        f"{seconds:.1f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """All tables, or the rows named."""
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    everything = [f"{kind}{name}" for kind in ("", "cnn-") for name in STEPS]
    named = {*RUNS, *everything, *ROUNDS}
    if unknown := [name for name in wanted if name not in named]:
        sys.exit(f"{unknown[0]} is none of {', '.join(sorted(named))}")
    if checkpoints := [name for name in RUNS if not wanted or name in wanted]:
        print("| training | loss | rehearsal | others at p <= 5%, 1% | self-play | rho | pairs | CPU s a pair |")
        print("|---|---|---|---|---|---|---|---|")
        for name in checkpoints:
            measure(name)
    if rounds := [name for name in ROUNDS if not wanted or name in wanted]:
        print("| round | loss | rehearsal-steps | others at p <= 5% | self-play | rho | CPU s |")
        print("|---|---|---|---|---|---|---|")
        for name in rounds:
            measure_round(name)
        measure_round(rounds[-1], null=True)
    if steps := [name for name in everything if not wanted or name in wanted]:
        step_table(steps)


if __name__ == "__main__":
    main()
