"""Ranks: two processes under torchrun record the trace of one; what they cannot record they say in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gmip
from gmip.attacks import GLiR
from gmip.trace import Trace
from gmip.training import record
from gmip.training.ranks import Ranks
from tests.unit.training import ranks_script
from tests.unit.training.ranks_script import CLIP, EVEN, NOISE, UNEVEN
from tests.unit.training.recording import (
    LR,
    batches_of,
    check_same_trace,
    check_trace,
    loss_of,
    make_model,
    recorded,
    sgd,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The folder in which two ranks left their traces, and what they said."""
    folder = tmp_path_factory.mktemp("ranks")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [*launch, ranks_script.__file__, str(folder)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"2 processes took 12 steps of 20 examples each: {folder / 'example'}\n"
    return folder


def said(folder: Path, name: str) -> list[str | None]:
    return [json.loads((folder / f"said-{rank}.json").read_text(encoding="utf-8")).get(name) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("ddp", EVEN),
        ("inner_model", EVEN),
        ("accumulated", (8, 8)),
        ("uneven_sum", UNEVEN),
        ("uneven_global_mean", UNEVEN),
    ],
)
def test_two_ranks_record_what_one_would(ranks, tmp_path, name, sizes):
    batches = batches_of(*sizes)
    trace = check_trace(ranks / name, batches)
    assert trace.complete
    recorded(tmp_path / "plain", batches, sampling="shuffled")
    check_same_trace(ranks / name, tmp_path / "plain")


def test_fsdp2_records_whole_parameters(ranks, tmp_path):
    recorded(tmp_path / "plain", batches_of(*EVEN), sampling="shuffled", every=2)
    check_same_trace(ranks / "sharded", tmp_path / "plain")
    assert len(Trace.open(ranks / "sharded")) == 2


def test_fsdp2_clipped_as_a_whole_by_the_ids_of_all_ranks(ranks):
    """The factor is that of the whole gradient, not of a rank's part of it."""
    trace = Trace.open(ranks / "sharded_and_clipped")
    model = make_model()
    for number, (batch, step) in enumerate(zip(batches_of(8, 8), trace, strict=True)):
        model.zero_grad()
        loss_of(model, batch).backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        assert norm > 0.2 and step.info.clip_factor == pytest.approx(0.1 / norm, rel=1e-4)
        assert float(np.linalg.norm(step.gradient)) == pytest.approx(0.1, rel=1e-4)
        sgd(model).step()
        assert sorted(trace.batch_ids(number)) == list(range(8 * number, 8 * number + 8))


def test_opacus_divides_by_what_all_ranks_expect(ranks):
    """Three batches of the loader make 20/3 -> 6 expected, 3 for each rank; whatever the shares, it divides by 6."""
    batches = batches_of(6, 6, 5)
    trace = check_trace(ranks / "private", batches, divisors=[6.0] * 3, clip_norm=CLIP)
    assert trace.header.clip_norm == CLIP and {info.noise_std for info in trace.infos} == {0.0}


def test_opacus_adds_its_noise_once_for_all_ranks(ranks):
    trace = Trace.open(ranks / "private_noise")
    assert [info.noise_std for info in trace.infos] == pytest.approx([NOISE * CLIP / 6.0] * 3)
    for step, later in zip(trace, list(trace)[1:], strict=False):  # what was used, noise and all: it replays
        w = torch.add(torch.from_numpy(np.array(step.parameters)), torch.from_numpy(np.array(step.gradient)), alpha=-LR)
        assert np.array_equal(later.parameters, w.numpy())
    clean = next(iter(Trace.open(ranks / "private")))
    noise = np.asarray(next(iter(trace)).gradient) - np.asarray(clean.gradient)
    # 39 draws of that size: a norm outside these bounds has a chance of less than 1e-6.
    assert 0.45 < float(np.linalg.norm(noise)) / (NOISE * CLIP / 6.0 * np.sqrt(39)) < 1.6


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("uneven_mean", "The ranks saw 3, 2 examples in a step and their mean losses are averaged"),
        ("different_gradients", "The 2 ranks are about to step with different gradients"),
        ("joined", "Inside DDP's join() a rank without batches takes no step"),
        ("flattened", "FullyShardedDataParallel flattens parameters"),
        ("other_factor", "Gradients are divided by 1 (set_gradient_divide_factor), not by the 2 ranks"),
    ],
)
def test_what_cannot_be_recorded_is_said_on_every_rank(ranks, name, sentence):
    first, second = said(ranks, name)
    assert first is not None and first.startswith(sentence)
    assert first == second
    steps = {"uneven_mean": 2}.get(name, 0)  # those before are kept
    if name not in ("flattened", "other_factor"):
        assert Trace.open(ranks / name).num_steps == steps


def test_a_folder_in_the_way_stops_all_ranks(ranks):
    first, second = said(ranks, "folder_in_the_way")
    assert first is not None and "already holds a trace" in first
    assert second == f"Rank 0 could not begin to record: {first}"


def test_a_rank_that_does_not_record_is_missed(ranks):
    first, second = said(ranks, "one_rank_alone")
    assert first is not None and first.startswith("Not all of the 2 ranks came to gmip.record within 1 s:")
    assert second is None and not (ranks / "one_rank_alone").exists()


def test_one_process_is_a_rank_alone():
    alone = Ranks(nn.Linear(2, 2))
    assert alone.writes and alone.size == 1
    assert alone.start(lambda: 7) == 7
    assert alone.sizes(None, []) == [None] and alone.sizes(5, [torch.ones(2)]) == [5]
    assert torch.equal(alone.whole(torch.ones(2)), torch.ones(2))


def test_the_example_is_audited_as_a_plain_loop_on_its_batches(ranks, tmp_path):
    """The batches are those that the trace of the two processes names."""
    trace, task = Trace.open(ranks / "example"), gmip.tasks.load("breast-cancer")
    assert trace.header.sampling == "shuffled" and trace.header.dataset_size == 60
    torch.manual_seed(0)
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    who: dict[str, Any] = {"members": trace.members, "non_members": trace.non_members, "data": task}
    sizes: dict[str, Any] = {"dataset_size": 60, "batch_size": 20, "sampling": "shuffled"}
    with record(model, optimizer, tmp_path / "plain", **sizes, **who) as recorder:
        for number in range(trace.num_steps):
            ids = trace.batch_ids(number)
            assert ids is not None
            recorder.batch(ids=ids)
            batch = task.pool[ids]
            optimizer.zero_grad()
            task.loss(model(batch.inputs), batch.targets).mean().backward()
            optimizer.step()
    check_same_trace(trace.path, tmp_path / "plain", tolerance=2.0e-5)
    plain = Trace.open(tmp_path / "plain")
    glir = GLiR(play=None, shrinkage="oas", projection=60)
    ours, theirs = (glir.run(task, one).scores for one in (trace, plain))
    np.testing.assert_allclose(ours, theirs, atol=0.01 * float(np.std(theirs)))
    result = gmip.audit(task, runs=[trace.path, plain.path], attacks=["loss"], seed=0)
    a, b = result.runs
    assert a.attacks[0].auc.value == pytest.approx(b.attacks[0].auc.value, abs=1.0e-3) and a.verdict == b.verdict
