"""Who was in each batch, as a loop tells it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gmip.errors import GmipWarning, InvalidArgument
from gmip.tasks import load
from gmip.trace import Trace
from gmip.training import record, train
from tests.unit.training.recording import N, dataset, loss_of, make_model, n, plain_loop, sgd


def test_loop_tells_who(path):
    model, (x, y) = make_model(), dataset()
    optimizer, rng = sgd(model), np.random.default_rng(0)
    drawn = [rng.choice(N, n, replace=False) for _ in range(4)]
    members = np.arange(N)
    with record(
        model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed", members=members, data=(x, y), every=2
    ) as recorder:
        for ids in drawn:
            recorder.batch(ids=torch.from_numpy(ids))
            plain_loop(model, optimizer, [(x[ids], y[ids])])
    trace = Trace.open(path)
    assert trace.recorded.tolist() == [0, 2]
    for step, ids in enumerate(drawn):
        assert np.array_equal(trace.batch_ids(step), ids)


def test_loader_tells_who(path):
    model, (x, y) = make_model(), dataset()
    optimizer, members = sgd(model), np.array([4, 2, 11, 17, 0, 9, 13, 5, 6, 8])
    loader = DataLoader(
        TensorDataset(x[members], y[members]), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5)
    )
    seen = []
    with record(model, optimizer, path, loader=loader, members=members, data=(x, y)):
        for _ in range(3):
            for inputs, targets in loader:
                seen.append(inputs)
                plain_loop(model, optimizer, [(inputs, targets)])
    trace = Trace.open(path)
    header = trace.header
    assert (header.sampling, header.dataset_size, header.batch_size) == ("shuffled", 10, 4)
    for step, inputs in enumerate(seen):
        assert torch.equal(x[np.array(trace.batch_ids(step))], inputs)


def test_train_tells_who(tmp_path):
    result = train("digits", load("digits").recipe.replace(num_steps=3), seed=1, out=tmp_path / "run")
    trace = Trace.open(tmp_path / "run")
    for step in range(3):
        assert np.isin(trace.batch_ids(step), result.split.members).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"members": np.arange(N + 1), "data": None}, "names 21 records, more than dataset_size = 20"),
        ({"members": [3, N]}, "members has 20, but data has rows 0 to 19"),
        ({"non_members": [N + 4]}, "non_members has 24"),
        ({"dataset_size": None}, "dataset_size is not given"),
        ({"sampling": None}, "sampling is not given"),
        ({"loader": DataLoader(TensorDataset(*dataset()), batch_size=n, shuffle=True)}, "not what the loader does"),
        ({"noise_std": -1.0}, "noise_std"),
        ({"on_nan": "ignore"}, "on_nan"),
    ],
)
def test_refused_before_the_first_step(path, options: dict[str, Any], words: str):
    model = make_model()
    given: dict[str, Any] = {"dataset_size": N, "batch_size": n, "sampling": "fixed", "data": dataset()}
    with pytest.raises(InvalidArgument, match=words):
        record(model, sgd(model), path, **{**given, **options})


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"ids": [0, N]}, "ids has 20, but data has rows 0 to 19"),
        ({"ids": [0, 15]}, "has 15, which is not one of the members"),
        ({"ids": [[1, 2]]}, "ids must be a one-dimensional"),
        ({"ids": [1, 2], "size": 3}, "not the number of ids, 2"),
        ({}, "needs size or ids"),
    ],
)
def test_ids_that_cannot_be(path, told: dict[str, Any], words: str):
    model = make_model()
    recorder = record(
        model, sgd(model), path, dataset_size=N, batch_size=n, sampling="fixed", members=np.arange(10), data=dataset()
    )
    with recorder, pytest.raises(InvalidArgument, match=words):
        recorder.batch(**told)


def test_full_needs_no_saying(path):
    model = make_model()
    recorder = record(model, sgd(model), path, dataset_size=N, batch_size=N)
    assert recorder._header.sampling == "full"


def test_a_loop_that_contradicts_is_told(path):
    """The first n again and again, where batches are declared to be drawn anew."""
    model, (x, y) = make_model(), dataset()
    optimizer = sgd(model)

    def loop() -> None:
        with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed", data=(x, y)) as recorder:
            for _ in range(6):
                recorder.batch(ids=np.arange(n))
                plain_loop(model, optimizer, [(x[:n], y[:n])])

    with pytest.warns(GmipWarning, match=r"as declared: batches overlap \(40, expected 16\)"):
        loop()


@pytest.mark.parametrize("on_nan", ["stop", "skip", "record"])
def test_gradients_that_are_not_finite(path, on_nan):
    model, (x, y) = make_model(), dataset()
    optimizer, batch = sgd(model), (x[:n], y[:n])

    def loop() -> None:
        with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed", on_nan=on_nan):
            plain_loop(model, optimizer, [batch])
            optimizer.zero_grad()
            (loss_of(model, batch) * torch.inf).backward()
            optimizer.step()

    if on_nan == "stop":
        with pytest.raises(InvalidArgument, match="gradient of step 1 is not finite"):
            loop()
    elif on_nan == "skip":
        with pytest.warns(GmipWarning, match="counted, not recorded"):
            loop()
    else:
        loop()
    trace = Trace.open(path)
    assert (trace.num_steps, len(trace)) == {"stop": (1, 1), "skip": (2, 1), "record": (2, 2)}[on_nan]


def test_a_hand_written_loop_declares_its_noise(path):
    model, (x, y) = make_model(), dataset()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed", clip_norm=0.5, noise_std=0.1):
        plain_loop(model, optimizer, [(x[:n], y[:n])])
    trace = Trace.open(path)
    assert trace.header.clip_norm == 0.5 and trace.infos[0].noise_std == 0.1
    assert trace.runs()[0].noise_std == 0.1


@pytest.mark.parametrize(("others", "warned"), [(N // 2, True), (N // 2 - 1, False)])
def test_no_background_left_is_said(path, others, warned):
    model, (x, y) = make_model(), dataset()
    split = {"members": np.arange(N // 2), "non_members": np.arange(N // 2, N // 2 + others)}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        record(model, sgd(model), path, dataset_size=N // 2, batch_size=n, sampling="fixed", data=(x, y), **split)
    assert any("no background left" in str(one.message) and one.filename == __file__ for one in said) is warned
