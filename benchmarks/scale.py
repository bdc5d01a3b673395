"""How time and memory of GLiR grow with parameters, records and steps, and the audit of a large model.

    python benchmarks/scale.py                        # growth, about a minute
    python benchmarks/scale.py growth --long --docs   # 1e4 to 1e8 parameters, 1e3 to 1e5 records, 1 to 1e4 steps
    python benchmarks/scale.py gpt2 [--length 16]     # GPT-2 small, 64 records, 2 steps: GLiR, decode, run check, audit
    python benchmarks/scale.py lora [--length 16]     # a LoRA fine-tuning of it, 96 records, 4 steps: the same
    python benchmarks/scale.py sketch [--long]        # many records: exact, sketched and projected, up to 100,000
    python benchmarks/scale.py listed --docs          # decode: exact, projected, and 100,000 candidates
    python benchmarks/scale.py resnet18 [--long]      # gradients and inner products of 11 M convolutional parameters
    python benchmarks/scale.py run --steps 5000       # 500 + 500 candidates, 42 parameters: GLiR and the run check
    python benchmarks/scale.py workers                # two workers beside one, and two plain processes beside one
    python benchmarks/scale.py trace                  # what the trace of 1e6 rows and 5,000 steps costs, with a budget

Each point is a process of its own: its processor time (without imports and training) and its peak memory. The exponent
is the slope of log(time) over log(size) from one point to the next; start-up counts least in the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _harness import resident, written
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import spearmanr
from torch import nn

import gmip
from gmip.attacks import Decode, GLiR
from gmip.attacks.glir import Play
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import gram, inner_products
from gmip.auditing.recompute import check_run
from gmip.errors import GmipWarning
from gmip.parallel import Workers
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import next_token_loss
from gmip.trace import Trace
from gmip.training import Recorder, train
from gmip.vocabulary import Recipe

GIB = 2**30
MEMBERS, TEXTS = 16, 64
PIECES = 12
FEW, MANY, SMALL = 5_000, (20_000, 50_000, 100_000), "300 MiB"
SHORT = {"parameters": (10_000, 100_000, 1_000_000), "records": (1_000, 2_000, 4_000), "steps": (1, 10, 100)}
LONG = {
    "parameters": (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
    "records": (1_000, 2_000, 4_000, 20_000, 100_000),
    "steps": (1, 10, 100, 1_000, 10_000),
}


def growing(*, params: int = 10_000, records: int = 1_000, steps: int = 2, part: int = 10) -> Task:
    """A multi-layer perceptron of about so many parameters; one in `part` records is a member, in batches of 32."""
    wide = max(1, round((-110 + math.sqrt(110**2 + 4.0 * params)) / 2.0))
    torch.manual_seed(0)
    pool = Examples(torch.randn(records, 100), torch.randint(0, 10, (records,)))

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(100, wide), nn.Tanh(), nn.Linear(wide, wide), nn.Tanh(), nn.Linear(wide, 10))

    how: dict[str, Any] = {"batch_size": 32, "num_steps": steps, "learning_rate": 0.1, "sampling": "shuffled"}
    recipe = Recipe(dataset_size=records // part, **how)
    return Task(name="growing", make_model=model, pool=pool, test=pool[:10], recipe=recipe)


def point(what: str, size: int) -> dict[str, Any]:
    """Seconds and GiB of one GLiR: members and as many others are candidates, all other records are background."""
    warnings.simplefilter("ignore", GmipWarning)
    makes: dict[str, Callable[[], Task]] = {
        "parameters": lambda: growing(params=size),
        "records": lambda: growing(records=size),
        "steps": lambda: long_run(size),
    }
    task = makes[what]()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        train(task, seed=1, out=Path(folder) / "run")
        trace = Trace.open(Path(folder) / "run")
        before, start = _peak(), time.process_time()
        asked, rest = _candidates(task, trace)
        found = GLiR(play=Play(stop_when_decided=False), memory_limit="1 GiB").run(task, trace, asked, task.pool[rest])
        seconds, way = time.process_time() - start, "sketched" if "sketched" in found.facts else "exact"
        return {"seconds": seconds, "before": before, "GiB": _peak(), "way": way}


def crowd(records: int, noise: float) -> Task:
    """The same perceptron, about 10,000 parameters; one full batch of a twentieth of the records, clipped at 1; noise
    as a multiple of the clip norm."""
    task, size = growing(records=records), records // 20
    recipe = Recipe(dataset_size=size, batch_size=size, num_steps=1, learning_rate=0.1, sampling="full")
    return dataclasses.replace(task, recipe=dataclasses.replace(recipe, clip_norm=1.0, noise_std=noise / size))


def crowd_attacked(records: int, noise: float, limit: str, projection: int | None) -> dict[str, Any]:
    """Members and as many others are candidates, all other records are background."""
    torch.set_num_threads(1)
    task = crowd(records, noise)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        train(task, seed=1, out=Path(folder) / "run")
        trace = Trace.open(Path(folder) / "run")
        asked, rest = _candidates(task, trace)
        before, start = _peak(), time.process_time()
        found = GLiR(memory_limit=limit, projection=projection).run(task, trace, asked, task.pool[rest])
        seconds = time.process_time() - start
    inside = np.isin(found.ids, trace.members)
    assert found.prediction is not None and found.p_values is not None
    rank, way = found.facts.get("sketched"), "exact"
    if rank is not None or projection is not None:
        way = f"projected to {projection}, held" if rank is None else f"sketched, {rank}"
    return {
        "seconds": seconds,
        "GiB": _peak(),
        "before": before,
        "auc": auc(found.scores[inside], found.scores[~inside]),
        "forecast": found.prediction.auc,
        "low": float(np.mean(found.p_values[~inside] <= 0.05)),
        "way": way,
        "scores": found.scores.tolist() if records == FEW else [],
    }


def crowds(long: bool) -> None:
    """One line for each number of records and way; where the exact way is feasible, beside it."""
    print("| records | noise | way | CPU s | GiB (before) | AUC | self-play | p <= .05 | rank correlation |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    ways: list[tuple[int, float, str, int | None]] = [(FEW, 0.0, "8 GiB", None), (FEW, 0.0, SMALL, None)]
    ways += [(FEW, 1.0, "8 GiB", None), (FEW, 1.0, SMALL, None)]
    ways += [(MANY[0], noise, "4 GiB", 1024) for noise in (0.0, 1.0)]
    ways += [(many, noise, "1 GiB", None) for many in (MANY if long else MANY[:1]) for noise in (0.0, 1.0)]
    exact: dict[float, list[float]] = {}
    for one in ways:
        begin = f"import sys, json; sys.path.insert(0, {str(Path(__file__).resolve().parent)!r}); import scale; "
        call = f"print(json.dumps(scale.crowd_attacked(*{one!r})))"
        done = subprocess.run([sys.executable, "-c", begin + call], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        first = exact.setdefault(one[1], found["scores"])
        same = f"{spearmanr(first, found['scores']).statistic:.2f}" if found["scores"] else ""
        print(
            f"| {one[0]:,} | {one[1]:g} | {found['way']} | {found['seconds']:.1f} | {found['GiB']:.2f} "
            f"({found['before']:.2f}) | {found['auc']:.3f} | {found['forecast']:.3f} | {found['low']:.3f} | {same} |",
            flush=True,
        )


LISTED: tuple[tuple[int, int | None, str, float], ...] = (  # candidates, batch size, memory_limit, most_work
    *((FEW, None, limit, 1e15) for limit in ("4 GiB", "300 MiB", "100 MiB", "30 MiB")),
    (FEW, 64, "8 GiB", 1e15),
    (FEW, 64, "8 GiB", 2e12),
    *((many, None, "1 GiB", 2e12) for many in (MANY[0], MANY[-1])),
)


def listed_attacked(records: int, batch: int | None, limit: str, most_work: float) -> dict[str, Any]:
    """Decoding of one full batch, or of 20 mini-batches: every second candidate is a member."""
    torch.set_num_threads(1)
    task = growing(records=records, part=2, steps=1 if batch is None else 20)
    draw = {"batch_size": batch or records // 2, "sampling": "full" if batch is None else "shuffled"}
    task = dataclasses.replace(task, recipe=dataclasses.replace(task.recipe, **draw))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        train(task, seed=1, out=Path(folder) / "run")
        trace = Trace.open(Path(folder) / "run")
        before, start = _peak(), time.process_time()
        found = Decode(coverage=1.0, memory_limit=limit, most_work=most_work).run(task, trace, np.arange(records))
        seconds = time.process_time() - start
    inside = np.isin(found.ids, trace.members)
    chance = expit(found.scores)
    return {
        "seconds": seconds,
        "GiB": _peak(),
        "before": before,
        "numbers": found.facts.get("projected_to", trace.header.num_params),
        "auc": auc(found.scores[inside], found.scores[~inside]),
        "told": found.facts["bits"],
        "bits": 1.0 + float(np.log2(np.clip(np.where(inside, chance, 1.0 - chance), 1e-12, 1.0)).mean()),
        "chance": chance.tolist() if records == FEW else [],
    }


def lists(docs: bool) -> None:
    """One line for each way to decode; the exact one of the same batches comes first."""
    heads = "candidates | batches | numbers of a gradient | CPU s | GiB (before) | AUC | bits said | bits found"
    table = f"| {heads} | off the exact probability |\n|{' --- |' * 9}\n"
    print(table, end="", flush=True)
    exact: dict[int | None, list[float]] = {}
    begin = f"import sys, json; sys.path.insert(0, {str(Path(__file__).resolve().parent)!r}); import scale; "
    for one in LISTED:
        call = f"print(json.dumps(scale.listed_attacked(*{one!r})))"
        done = subprocess.run([sys.executable, "-c", begin + call], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        off = ""
        if found["chance"]:
            off = f"{np.abs(np.subtract(found['chance'], exact.setdefault(one[1], found['chance']))).mean():.3f}"
        row = [f"{one[0]:,}", "1, full" if one[1] is None else f"20 of {one[1]}", f"{found['numbers']:,}"]
        row += [f"{found['seconds']:.1f}", f"{found['GiB']:.2f} ({found['before']:.2f})", f"{found['auc']:.3f}"]
        table += f"| {' | '.join([*row, *(f'{found[name]:.3f}' for name in ('told', 'bits')), off])} |\n"
        print(table.splitlines()[-1], flush=True)
        if docs:
            documented("listed", table)


def documented(name: str, table: str) -> None:
    """Puts the table into the page of evidence."""
    page = Path(__file__).resolve().parent.parent / "docs/evidence/cost.md"
    page.write_text(written(page.read_text(encoding="utf-8"), "scale.py", {name: table}), encoding="utf-8")


def long_run(steps: int) -> Task:
    """Logistic regression with 42 parameters and noise: 500 members, 500 others, 2,000 background records."""
    torch.manual_seed(0)
    inputs = torch.randn(3_000, 20)
    pool = Examples(inputs, (inputs[:, 0] + torch.randn(3_000) > 0.0).long())
    recipe = Recipe(dataset_size=500, batch_size=50, num_steps=steps, learning_rate=0.1, sampling="shuffled")
    recipe = dataclasses.replace(recipe, noise_std=0.02, clip_norm=1.0)
    return Task(name="long", make_model=lambda: nn.Linear(20, 2), pool=pool, test=pool[:10], recipe=recipe)


def run_of(steps: int, part: str, folder: str) -> dict[str, float]:
    """Seconds and GiB of GLiR, or of the run check, on a run of so many steps, which "train" records."""
    warnings.simplefilter("ignore", GmipWarning)
    torch.set_num_threads(1)
    task = long_run(steps)
    if part == "train":
        train(task, seed=1, out=folder)
        return {}
    trace = Trace.open(folder)
    before, start, sums = _peak(), time.process_time(), {}
    if part == "check":
        check_run(task, trace)
    else:
        asked, rest = _candidates(task, trace)
        found = GLiR().run(task, trace, asked, task.pool[rest])
        sums = {"scores": float(np.abs(found.scores).sum()), "steps": found.facts["steps"]}
    return {"seconds": time.process_time() - start, "before": before, "GiB": _peak(), **sums}


def long_runs(steps: int) -> None:
    """One line for GLiR and one for the run check, each a process of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for part in ("train", "glir", "check"):
            begin = f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent)!r}); import scale; "
            call = f"print(scale.run_of({steps}, {part!r}, {folder + '/run'!r}))"
            done = subprocess.run([sys.executable, "-c", begin + call], capture_output=True, text=True, check=True)
            print(f"{steps:,} steps, {part}: {done.stdout.strip()}", flush=True)


def growth(long: bool, docs: bool) -> None:
    """A row for each size of what grows; the exponent is that from the size before."""
    table = "| what grows | size | way | CPU s | exponent | GiB (before) |\n| --- | --- | --- | --- | --- | --- |\n"
    print(table, end="", flush=True)
    for what, sizes in (LONG if long else SHORT).items():
        before = None
        for size in sizes:
            asked = [sys.executable, __file__, "--point", json.dumps([what, size])]
            found = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
            power = ""
            if before is not None and before[1]["way"] == found["way"]:
                power = f"{math.log(found['seconds'] / before[1]['seconds']) / math.log(size / before[0]):.2f}"
            before = size, found
            row = [what, f"{size:,}", found["way"], f"{found['seconds']:.2f}", power]
            table += f"| {' | '.join(row)} | {found['GiB']:.2f} ({found['before']:.2f}) |\n"
            print(table.splitlines()[-1], flush=True)
            if docs:
                documented("growth", table)


def gpt2(length: int = 32) -> Task:
    """GPT-2 small's architecture with random weights, and texts of random tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    ids = torch.randint(0, 50_257, (TEXTS + 8, length), generator=torch.Generator().manual_seed(0))
    records = Examples({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids)
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    recipe = Recipe(dataset_size=MEMBERS, batch_size=MEMBERS, num_steps=2, learning_rate=0.01, sampling="full")
    return Task(
        name="gpt2",
        make_model=lambda: GPT2LMHeadModel(GPT2Config(**quiet)),
        pool=records[:TEXTS],
        test=records[TEXTS:],
        recipe=recipe,
        loss=next_token_loss,
    )


def lora(length: int = 32) -> Task:
    """A LoRA fine-tuning of the same model: batches of 8, 2 epochs of 16 members among 96 texts."""
    from peft import LoraConfig, get_peft_model

    base = gpt2(length)
    ids = torch.randint(0, 50_257, (104, length), generator=torch.Generator().manual_seed(1))
    records = Examples({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids)

    def model() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            adapters = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["c_attn"], fan_in_fan_out=True)
            return get_peft_model(base.make_model(), adapters)

    recipe = Recipe(dataset_size=16, batch_size=8, num_steps=4, learning_rate=0.1, sampling="shuffled")
    return dataclasses.replace(base, name="lora", make_model=model, pool=records[:96], test=records[96:], recipe=recipe)


LARGE = {"gpt2": gpt2, "lora": lora}
PARTS = ("glir", "decode", "check", "audit")


def large(model: str, length: int, parts: Sequence[str], limit: str) -> None:
    """Records in a process of its own; then a process for each part, which says what that took."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        begin = f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent)!r}); import scale; "
        for part in ("train", *parts):
            call = f"scale.large_part({model!r}, {length}, {part!r}, {folder!r}, {limit!r})"
            subprocess.run([sys.executable, "-c", begin + call], check=True)


def large_part(model: str, length: int, part: str, folder: str, limit: str) -> None:
    """Members and as many others are candidates; the other texts are background."""
    warnings.simplefilter("ignore", GmipWarning)
    torch.set_num_threads(1)
    task, run, start = LARGE[model](length), Path(folder) / "run", time.process_time()
    if part == "train":
        train(task, seed=1, out=run)
        found = ""
    elif part == "check":
        outcomes = check_run(task, run, memory_limit=limit).outcomes
        found = ", ".join(f"{one.check} {one.status}" for one in outcomes)
    elif part == "audit":
        with warnings.catch_warnings():
            result = gmip.audit(task, runs=[str(run)], out=str(Path(folder) / "work"))
        gmip.write_report(result, Path(folder) / "report")
        found = ", ".join(f"{one.attack} {one.auc.value:.3f}" for one in result.runs[0].attacks)
    else:
        trace = Trace.open(run)
        asked, rest = _candidates(task, trace)
        attack = GLiR(memory_limit=limit) if part == "glir" else Decode(memory_limit=limit)
        scores = attack.run(task, trace, asked, task.pool[rest])
        inside = np.isin(scores.ids, trace.members)
        found = f"AUC {auc(scores.scores[inside], scores.scores[~inside]):.3f}"
    seconds = time.process_time() - start
    print(f"{model}, {part}: {seconds:.0f} CPU s, peak {_peak():.2f} GiB. {found}", flush=True)


def _candidates(task: Task, trace: Trace) -> tuple[NDArray[Any], NDArray[Any]]:
    """Members and as many others; the rest of the pool."""
    members = np.asarray(trace.members)
    others = np.setdiff1d(np.arange(len(task.pool)), members)
    return np.r_[members, others[: len(members)]], others[len(members) :]


class Block(nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(ins, outs, 3, stride, 1, bias=False),
            nn.Conv2d(outs, outs, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList([nn.GroupNorm(32, outs) for _ in range(3)])
        self.past = nn.Conv2d(ins, outs, 1, stride, bias=False) if stride > 1 or ins != outs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(inner + (x if self.past is None else self.norms[2](self.past(x))))


def resnet18() -> nn.Module:
    """ResNet-18 for images of 32 x 32, with GroupNorm."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(32, 64), nn.ReLU()]
    ins = 64
    for outs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(ins, outs, stride), Block(outs, outs, 1)]
        ins = outs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def convolutions(count: int) -> None:
    """Processor time of gradients and inner products, beside one plain pass and backward pass of the same images."""
    model, images = resnet18(), Examples(torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,)))
    gradients = PerExampleGradients(model, dtype=torch.float32, memory_limit="3 GiB")
    gradients.plan(images)
    ways: dict[str, Callable[[], object]] = {
        "a plain pass": lambda: nn.functional.cross_entropy(model(images.inputs), images.targets).backward(),
        "what makes the gradients": lambda: sum(1 for _ in gradients.pieces(images)),
        "all inner products": lambda: gram(gradients, images, precision=torch.float32),
    }
    print(f"ResNet-18 for 32 x 32 pixels, {gradients.num_params:,} parameters, {count} images, float32, CPU seconds:")
    for name, way in ways.items():
        start = time.process_time()
        way()
        print(f"{name}: {time.process_time() - start:.2f}", flush=True)
    print(f"peak {_peak():.2f} GiB")


# -- two workers ------------------------------------------------------------------------------------------------------


def shared_steps(folder: str) -> tuple[Task, Trace, NDArray[Any], Examples]:
    """A run whose steps are pieces of about a second, its candidates and background; it is recorded if need be. Where
    the folder says so all records are candidates, and half of them members."""
    task = growing(params=200_000, records=3_200, steps=PIECES, part=2 if folder.endswith("listed") else 10)
    if not (Path(folder) / "trace.json").exists():
        train(task, seed=1, out=folder)
    trace = Trace.open(folder)
    asked, rest = _candidates(task, trace)
    return task, trace, asked, task.pool[rest]


def steady(times: list[float], workers: int) -> float:
    """Pieces per second once all workers are at work: from the `workers`-th piece that is done to the last."""
    return (len(times) - workers) / (times[-1] - times[workers - 1])


def attacked(attack: GLiR | Decode, folder: str, workers: int) -> float:
    """Steps per second that so many workers of an attack are done with."""
    warnings.simplefilter("ignore", GmipWarning)
    task, trace, asked, background = shared_steps(folder)
    times: dict[int, float] = {}
    alone = attack.play.tuning_steps if isinstance(attack, GLiR) else 0  # by which the asking process chooses a setting

    def progress(done: int, total: int) -> None:
        if alone < done <= PIECES and total <= 2 * PIECES:  # not by records, nor what comes after the steps
            times.setdefault(done, time.perf_counter())

    attack.run(task, trace, asked, background, progress=progress, workers=Workers(workers=workers))
    return steady(sorted(times.values()), workers)


def plainly(folder: str, begin: Any, done: Any) -> None:
    """The inner products of each step in a plain loop, in a process of its own: no engine, nothing stored."""
    torch.set_num_threads(1)
    task, trace, asked, background = shared_steps(folder)
    gradients, steps, candidates = PerExampleGradients(task.make_model()), list(trace), task.pool[asked]
    inner_products(gradients, steps[:1], background[:64], candidates[:64])  # warm
    begin.wait()
    for step in steps[: PIECES // 2]:
        inner_products(gradients, [step], background, candidates)
        done.put(time.perf_counter())


def control(folder: str, processes: int) -> float:
    """Steps per second of plain loops in so many processes at once."""
    context = multiprocessing.get_context("spawn")
    begin, done = context.Barrier(processes), context.Queue()
    started = [context.Process(target=plainly, args=(folder, begin, done)) for _ in range(processes)]
    for process in started:
        process.start()
    times = sorted(done.get() for _ in range(processes * (PIECES // 2)))
    for process in started:
        process.join()
    return steady(times, processes)


def two_workers(rounds: int) -> None:
    """The speed of two beside one: of the attacks, and of what the machine gives to two processes at that moment."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        folder, listed = f"{place}/run", f"{place}/listed"
        shared_steps(folder)
        shared_steps(listed)
        ways: dict[str, Callable[[int], float]] = {
            "control": lambda count: control(folder, count),
            "GLiR": lambda count: attacked(GLiR(play=Play(stop_when_decided=False)), folder, count),
            "decode": lambda count: attacked(Decode(coverage=1.0, most_sweeps=1, most_work=1e15), listed, count),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                found[name].append((way(1), way(2)))
    allowed = [two / one for one, two in found["control"]]
    print(
        "| what | seconds a piece | two to one | least, most | to what two plain processes get |\n|---|---|---|---|---|"
    )
    for name, pairs in found.items():
        ratios = [two / one for one, two in pairs]
        beside = median(mine / plain for mine, plain in zip(ratios, allowed, strict=True))
        each = median(1.0 / one for one, _ in pairs)
        print(f"| {name} | {each:.2f} | {median(ratios):.2f} | {min(ratios):.2f}, {max(ratios):.2f} | {beside:.2f} |")
    print(f"\n{rounds} rounds, {os.cpu_count()} cores, load {before:.1f} before and {os.getloadavg()[0]:.1f} after")


# -- what a trace costs -----------------------------------------------------------------------------------------------


ROWS = 1_000_000  # of the data; half of them are members


def looped(steps: int, budget: str | None, folder: str | None) -> dict[str, float]:
    """CPU seconds and peak GiB of a training loop of a million rows in batches of 256, recorded or not."""
    warnings.simplefilter("ignore", GmipWarning)
    torch.set_num_threads(1)
    task = growing(records=ROWS)
    model, members = task.make_model(), np.arange(0, ROWS, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(task.pool.inputs[members], task.pool.targets[members])
    loader = torch.utils.data.DataLoader(data, batch_size=256, shuffle=True)
    who = {"members": members, "non_members": np.arange(1, ROWS, 2), "data": (task.pool.inputs, task.pool.targets)}
    before, start, wall = _peak(), time.process_time(), time.perf_counter()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(Recorder(model, optimizer, folder, loader=loader, budget=budget, **who))
        for inputs, targets in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return {"cpu": time.process_time() - start, "wall": time.perf_counter() - wall, "GiB": _peak() - before}


def traces(steps: int) -> None:
    """The plain loop, the recorded one, and those that a budget keeps within so much disk."""
    begin = f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent)!r}); import json, scale; "
    params = sum(p.numel() for p in growing().make_model().parameters())
    print(f"{ROWS:,} rows, {steps:,} steps of 256, {params:,} parameters:")
    print("\n| loop | CPU s | wall s | GiB | MB on disk | of which vectors | steps stored |")
    print("|---|---|---|---|---|---|---|")
    for name, budget in (("plain", None), ("recorded", None), ("budget 100 MB", "100 MB"), ("budget 10 MB", "10 MB")):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
            folder = None if name == "plain" else f"{place}/run"
            call = f"print(json.dumps(scale.looped({steps}, {budget!r}, {folder!r})))"
            done = subprocess.run([sys.executable, "-c", begin + call], capture_output=True, text=True, check=True)
            took, kept = json.loads(done.stdout), ["", "", ""]
            if folder is not None:
                sizes = {file.name: 512 * file.stat().st_blocks / 1e6 for file in Path(folder).iterdir()}
                shards = sum(size for file, size in sizes.items() if file.startswith("shard-"))
                kept = [f"{sum(sizes.values()):.0f}", f"{shards:.0f}", f"{len(Trace.open(folder)):,}"]
            row = [name, f"{took['cpu']:.0f}", f"{took['wall']:.0f}", f"{took['GiB']:.2f}", *kept]
            print(f"| {' | '.join(row)} |", flush=True)


def _peak() -> float:
    return resident("VmHWM") / GIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("growth", *LARGE, "resnet18", "run", "workers", "trace", "sketch", "listed")
    parser.add_argument("part", nargs="?", choices=parts, default="growth")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--docs", action="store_true", help="write the table of growth or listed into the docs")
    parser.add_argument("--steps", type=int, default=5_000, help="of the long run")
    parser.add_argument("--length", type=int, default=16, help="tokens of a text")
    parser.add_argument("--only", choices=PARTS, help="of gpt2 and lora")
    parser.add_argument("--limit", default="2 GiB", help="memory_limit of the attack")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    if wanted.point is not None:
        print(json.dumps(point(*json.loads(wanted.point))))
    elif wanted.part in LARGE:
        large(wanted.part, wanted.length, PARTS if wanted.only is None else (wanted.only,), wanted.limit)
    elif wanted.part == "run":
        long_runs(wanted.steps)
    elif wanted.part == "trace":
        traces(wanted.steps)
    elif wanted.part == "workers":
        two_workers(3 if wanted.long else 2)
    elif wanted.part == "sketch":
        crowds(wanted.long)
    elif wanted.part == "listed":
        lists(wanted.docs)
    elif wanted.part == "resnet18":
        convolutions(96 if wanted.long else 32)
    else:
        growth(wanted.long, wanted.docs)


if __name__ == "__main__":
    main()
