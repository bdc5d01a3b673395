"""A trace that format version 1 wrote (gmip at commit 686c4a7) reads as it did, and a run recorded in it goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gmip.trace import Trace, TraceWriter
from tests.unit.trace.build import assert_steps, write_steps

OLD = Path(__file__).with_name("trace-version-1")


def test_version_1_is_read() -> None:
    trace = Trace.open(OLD)
    trace.verify()
    assert_steps(trace, 7, every=2)
    assert trace.fingerprint == "36bfe8c6a77ee33c684a66d23185237445df364fa43d6017b95d3b18c80e982d"  # as it was then
    assert all(info.clip_factor is None for info in trace.infos) and trace.batch_ids(0) is None


@pytest.mark.parametrize("at_step", [None, 0, 3, 6])
def test_version_1_is_resumed(tmp_path: Path, at_step: int | None) -> None:
    path = tmp_path / "run"
    shutil.copytree(OLD, path)
    with TraceWriter.resume(path, at_step=at_step) as writer:
        write_steps(writer, 12 - writer.num_steps, every=2)
        writer.skip(batch_size=10, ids=[3], clip_factor=0.5)
    assert '"version": 2' in (path / "trace.json").read_text()
    trace = Trace.open(path)
    trace.verify()
    ids = trace.batch_ids(12)
    assert ids is not None and ids.tolist() == [3]
    with TraceWriter.resume(path, at_step=12):
        pass
    assert_steps(Trace.open(path), 12, every=2)
