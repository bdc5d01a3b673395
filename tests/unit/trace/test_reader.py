"""Trace: reading steps, names, and the check that it belongs to the data at hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from gmip.errors import GmipWarning, InvalidArgument, TraceMismatch
from gmip.trace import Trace, TraceWriter
from tests.unit.report.page import Page
from tests.unit.trace.build import record, vectors, write_steps


@pytest.mark.usefixtures("three_rows")
def test_steps_by_index(tmp_path: Path) -> None:
    trace = record(tmp_path, 10, every=2)
    for position in (4, 0, 3, -1, -5, np.int64(2)):  # across shards, back and forth
        index = int(trace.recorded[position])
        assert trace[position].info.index == index
        np.testing.assert_array_equal(trace[position].gradient, vectors(index)[1])
    for position in (5, -6):
        with pytest.raises(IndexError):
            trace[position]
    with pytest.raises(TypeError):
        trace[1.0]  # type: ignore[index]


def test_everything_is_read_only(tmp_path: Path) -> None:
    trace = record(tmp_path, 2)
    assert trace.members is not None and trace.non_members is not None
    for array in (trace[0].parameters, trace[0].gradient, trace.members, trace.non_members, trace.recorded):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        trace[0].gradient.flags.writeable = True


@pytest.mark.usefixtures("three_rows")
def test_steps_outlive_the_trace(tmp_path: Path) -> None:
    steps = list(record(tmp_path, 7))
    for index, step in enumerate(steps):
        np.testing.assert_array_equal(step.parameters, vectors(index)[0])


def test_named(tmp_path: Path) -> None:
    trace = record(tmp_path, 1)
    named = trace.named(trace[0].gradient)
    gradient = vectors(0)[1]
    assert list(named) == ["layer.weight", "scale"]
    np.testing.assert_array_equal(named["layer.weight"], gradient[:4].reshape(2, 2))
    assert named["scale"].shape == () and named["scale"] == gradient[4]
    for bad in (np.zeros(4), np.zeros((1, 5)), 3.0):
        with pytest.raises(InvalidArgument, match="vector"):
            trace.named(bad)


def test_repr_says_what_it_is(tmp_path: Path) -> None:
    trace = record(tmp_path, 4, every=2)
    assert repr(trace).endswith("4 steps, 2 recorded, complete>")
    assert repr(trace[1]) == f"<Step 2: {trace.header.recorded_params} parameters>"


def test_in_a_notebook(tmp_path: Path) -> None:
    trace = record(tmp_path / "<i>run", 4, every=2)
    page = Page(trace._repr_html_())
    assert page.all("strong")[0][1] == f"Trace {trace.path.name}" and not page.all("i")
    assert str(tmp_path) not in page.texts[0]
    cells = {name: value for (_, name), (_, value) in zip(page.all("th"), page.all("td"), strict=True)}
    assert cells["steps"] == "4, 2 recorded" and cells["state"] == "complete"
    assert cells["training records"] == f"{trace.header.dataset_size:,}"


@pytest.mark.parametrize(
    ("fingerprints", "message"),
    [
        ({"train": "aa"}, "'test' that is not given"),
        ({"train": "aa", "test": "cc"}, "'test' has fingerprint cc and not bb"),
        ({}, "'train' that is not given"),
    ],
)
def test_check_data_names_the_part(tmp_path: Path, fingerprints: dict[str, str], message: str) -> None:
    trace = record(tmp_path, 1, fingerprints={"train": "aa", "test": "bb"})
    trace.check_data({"test": "bb", "train": "aa"})
    with pytest.raises(TraceMismatch, match=message):
        trace.check_data(fingerprints)


def test_check_data_warns_without_fingerprints(tmp_path: Path) -> None:
    with pytest.warns(GmipWarning, match="no fingerprints"):
        record(tmp_path, 1).check_data({"train": "aa"})


def test_fingerprint_follows_the_contents(tmp_path: Path) -> None:
    found = set()
    for number, (count, facts) in enumerate([(3, {}), (3, {"notes": {"seed": 1}}), (4, {}), (3, {})]):
        trace = record(tmp_path / str(number), count, **facts)
        assert trace.fingerprint == Trace.open(trace.path).fingerprint
        found.add(trace.fingerprint)
    assert len(found) == 4  # the last is a run of its own, though equal to the first
    before = Trace.open(tmp_path / "0")
    copied = tmp_path / "copy"
    shutil.copytree(before.path, copied)
    assert Trace.open(copied).fingerprint == before.fingerprint
    with TraceWriter.resume(copied, at_step=2) as writer:
        write_steps(writer, 1)
    assert Trace.open(copied).fingerprint != before.fingerprint  # without the final state
    with TraceWriter.resume(copied) as writer:
        assert Trace.open(copied).fingerprint != before.fingerprint
        write_steps(writer, 1)
