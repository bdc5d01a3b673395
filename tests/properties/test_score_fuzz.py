"""Whatever is in a file of scores or predictions: a sentence and exit code 2, or a whole report; never a traceback.

GMIP_FUZZED_FILES sets how many files of each kind are tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gmip.cli import main
from gmip.report import read_result

pytestmark = pytest.mark.slow

FUZZ = settings(
    max_examples=int(os.environ.get("GMIP_FUZZED_FILES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
REPORT = {"report.html", "report-to-share.html", "report.md", "summary.html", "result.json"}
GOOD_CSV = "id,member,score,group,run\n" + "".join(f"{i},{i % 2},{i * 5 % 11},{'ab'[i % 4 > 1]},x\n" for i in range(12))
GOOD_JSON = "".join(f'{{"member": {i % 2}, "score": {i * 5 % 11}, "group": "a"}}\n' for i in range(12))
GOOD_PREDICTIONS = "member,label,p_a,p_b,p_c,ref_x_loss,ref_x_in,ref_y_loss,ref_y_in\n" + "".join(
    f"{i % 2},{'abc'[i % 3]},.{i % 7},.{9 - i % 7},.1,{i},{i % 3 // 2},.{i},{(i + 1) % 3 // 2}\n" for i in range(12)
)
CELLS = st.sampled_from(
    [
        "",
        "1",
        "0",
        "-1e400",
        "nan",
        "inf",
        "1e308",
        "-0.0",
        "1_0",
        "=1+1",
        '"',
        "\x00",
        "\ud800",
        "\u202e",
        "é" * 201,
        "[]",
    ]
)
HEADERS = st.lists(
    st.sampled_from(["id", "member", "score", "group", "run", "", "\t", "loss", "p_1", "ref_x_loss", "ref_x_in"]),
    max_size=6,
)


@st.composite
def damaged(draw: st.DrawFn, good: str) -> tuple[str, bytes]:
    """A sound file with some of its bytes, cells or lines replaced; or a table of arbitrary cells."""
    suffix = draw(st.sampled_from([".csv", ".csv", ".jsonl", ".tsv", ".parquet"]))
    text = GOOD_JSON if suffix == ".jsonl" else good
    if draw(st.booleans()):
        content = bytearray(text.encode())
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(content)))
            content[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=3))
        return suffix, bytes(content)
    if draw(st.booleans()):
        lines = [draw(HEADERS), *draw(st.lists(st.lists(CELLS, max_size=6), max_size=6))]
        return suffix, "\n".join(",".join(line) for line in lines).encode("utf-8", "surrogatepass")
    cells = re.split(r"([,\n:{}])", text)
    for _ in range(draw(st.integers(1, 3))):
        cells[2 * draw(st.integers(0, len(cells) // 2))] = draw(CELLS)
    return suffix, "".join(cells).encode("utf-8", "surrogatepass")


CLAIMS = st.sampled_from([(), ("--claim", "mu=0"), ("--claim", "epsilon=1e-9@1")])


@FUZZ
@given(damaged(GOOD_PREDICTIONS), CLAIMS)
@example((".csv", GOOD_PREDICTIONS.encode()), ())
@example((".csv", GOOD_PREDICTIONS.replace(",6,0,", ",1e308,0,").encode()), ())
def test_prediction_files(file: tuple[str, bytes], claim: tuple[str, ...]) -> None:
    audited(file, claim)


@FUZZ
@given(damaged(GOOD_CSV), CLAIMS)
@example((".csv", GOOD_CSV.encode()), ())
@example((".jsonl", GOOD_JSON.replace('"a"', '"\\ud800"').encode()), ())
@example((".jsonl", GOOD_JSON.replace('"score": 5', '"score": ' + "9" * 5000).encode()), ())
@example((".csv", b"member,score\n" + b"1,1e308\n1,-1e308\n0,1e308\n0,-1e308\n"), ("--claim", "mu=0"))
@example((".csv", b"member,score\n1,1\n1,1\n0,1\n0,1\n"), ("--claim", "mu=1e9"))
def test_score_files(file: tuple[str, bytes], claim: tuple[str, ...]) -> None:
    audited(file, claim)


def audited(file: tuple[str, bytes], claim: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder) / f"scores{file[0]}", Path(folder) / "out"
        path.write_bytes(file[1])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["audit", str(path), "--out", str(target), *claim])
        said = err.getvalue().strip().splitlines()
        written = {one.name for one in target.iterdir()} if target.exists() else set()
        assert not [name for name in written if name.endswith(".tmp")]
        if code == 2:
            assert out.getvalue() == "" and said[-1].endswith(".") and "Traceback" not in err.getvalue()
            assert written <= {".lock"}
        else:
            assert code == 0, err.getvalue()
            assert written >= REPORT
            read_result(target)
