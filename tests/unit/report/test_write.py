"""Reports on disk: whole or not at all, and read back."""

from __future__ import annotations

import csv
import json
import threading

import numpy as np
import pytest

import gmip.report.write as module
from gmip.auditing import Candidate, Candidates
from gmip.errors import FileError, InvalidArgument, TraceError
from gmip.report import read_result, to_html, to_markdown, write_report
from tests.unit.report import sample

EVERY = {"report.html", "report-to-share.html", "report.md", "result.json", "summary.html"}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("make", [sample.consistent, sample.three_runs, sample.bare, sample.hostile])
def test_written_and_read_back(tmp_path, make):
    result = make()
    written = write_report(result, tmp_path / "a" / "b")
    assert names(written.folder) == sorted(EVERY) and written.csv == ()
    assert read_result(written.json) == read_result(str(written.folder)) == result
    assert to_html(read_result(written.json)) == to_html(result)
    assert written.html.read_text(encoding="utf-8") == to_html(result)
    assert written.markdown.read_text(encoding="utf-8") == to_markdown(result)


def test_an_earlier_report_is_replaced(tmp_path):
    write_report(sample.exposed(), tmp_path)
    write_report(sample.consistent(), tmp_path)
    assert read_result(tmp_path) == sample.consistent()
    assert names(tmp_path) == sorted(EVERY)


def with_rows(result, rows):
    """The result with candidates; columns that not every audit has are there if a row has them."""
    fields = [f for f in Candidate._fields if f not in ("group", "own_mu")]
    tables = {run: Candidates({f: [getattr(one, f) for one in some] for f in fields}) for run, some in rows.items()}
    return result.with_candidates(tables)


def test_candidates(tmp_path):
    rows = [
        Candidate("=1+1", True, np.float64(-1.5)),
        Candidate(7, False, 2.0, p_value=0.25, posterior=0.5, susceptibility=3.0),
        Candidate('a,"b"\n', False, 0.1),
    ]
    header = ["id", "member", "score", "p_value", "posterior", "susceptibility"]
    result = sample.three_runs()
    written = write_report(with_rows(result, {"GMIP noise": rows, "no noise": []}), tmp_path)
    assert [path.name for path in written.csv] == ["exposed-GMIP-noise.csv", "exposed-no-noise.csv"]
    with written.csv[0].open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            header,
            ["'=1+1", "True", "-1.5", "", "", ""],
            ["7", "False", "2.0", "0.25", "0.5", "3.0"],
            ['a,"b"\\n', "False", "0.1", "", "", ""],
        ]
    assert written.csv[1].read_text().split() == [",".join(header)]


HARMLESS = {
    "=1+1": "'=1+1",
    "a\r=1+1": "a\\r=1+1",
    "a\n=1+1": "a\\n=1+1",
    "a\t=1+1": "a\\t=1+1",
    "\r=1": "'\\r=1",
    "\t=1": "'\\t=1",
    " @SUM(1)": "' @SUM(1)",
    "\ufeff=1": "'\ufeff=1",
    "\u200e+1": "'\u200e+1",
    "\uff1d1+1": "'\uff1d1+1",
    "\uff0b1": "'\uff0b1",
    "\uff0d1": "'\uff0d1",
    "\uff20A1": "'\uff20A1",
    "\ufe661": "'\ufe661",
    "\u22121": "'\u22121",
    "a\u2028=1": "a\\u2028=1",
    "": "",
    "a=1": "a=1",
    "é": "é",
}


def test_no_text_begins_a_formula_in_a_spreadsheet(tmp_path):
    rows = [Candidate(text, True, 1.0) for text in HARMLESS]
    (path,) = write_report(with_rows(sample.three_runs(), {"no noise": rows}), tmp_path).csv
    lines = path.read_bytes().decode().splitlines()  # of any kind of line break, as some spreadsheets read
    assert [line.split(",")[0] for line in lines[1:]] == list(HARMLESS.values())


def test_file_names_are_safe_and_distinct(tmp_path):
    runs = [
        sample.run("consistent", claimed=1, found=1, name=name) for name in ("../a", "a", "A", "/", "é", sample.HOSTILE)
    ]
    written = write_report(with_rows(sample.result(*runs), {run.name: [] for run in runs}), tmp_path)
    assert [path.name for path in written.csv][:5] == [
        *("exposed-a.csv", "exposed-a-2.csv", "exposed-A-3.csv", "exposed-run.csv", "exposed-run-2.csv")
    ]
    assert all(path.parent == tmp_path and path.exists() for path in written.csv) and len(set(written.csv)) == 6


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, np.zeros(3), object()])
def test_records_are_refused(tmp_path, value):
    with pytest.raises(InvalidArgument, match="never the records themselves"):
        write_report(with_rows(sample.consistent(), {"cifar10-head": [Candidate(1, True, value)]}), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_nothing_is_half_written(tmp_path, monkeypatch):
    write_report(sample.exposed(), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}

    def fail(result, **how):
        raise RuntimeError("no page")

    monkeypatch.setattr(module, "to_html", fail)
    with pytest.raises(RuntimeError, match="no page"):
        write_report(with_rows(sample.consistent(), {"cifar10-head": []}), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_result_is_the_last(tmp_path, monkeypatch):
    order = []

    def write_in_order(path, content):
        order.append(path.name)

    monkeypatch.setattr(module, "write", write_in_order)
    write_report(with_rows(sample.consistent(), {"cifar10-head": []}), tmp_path)
    assert order == [
        "exposed-cifar10-head.csv",
        "report-to-share.html",
        "summary.html",
        "report.md",
        "report.html",
        "result.json",
    ]


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"file.*cannot be written") as caught:
        write_report(sample.consistent(), tmp_path / "file")
    assert not isinstance(caught.value, TraceError)


def test_two_reports_at_once_and_a_planted_link(tmp_path):
    """The old temporary name was fixed: the second report failed, or wrote through a link of that name."""
    target = tmp_path / "target"
    target.write_text("precious")
    folder = tmp_path / "report"
    folder.mkdir()
    for name in (".result.json.tmp", "report.html"):
        (folder / name).symlink_to(target)
    failures: list[BaseException] = []

    def report() -> None:
        try:
            for _ in range(2):
                write_report(sample.consistent(), folder)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=report) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and target.read_text() == "precious"
    assert names(folder) == [".result.json.tmp", *sorted(EVERY)]
    assert read_result(folder) == sample.consistent()


# -- reading ----------------------------------------------------------------------------------------------------------


def changed(place, value):
    data = json.loads(module._json(sample.consistent()))
    *path, last = place
    inner = data
    for part in path:
        inner = inner[part]
    inner[last] = value
    del data["checksum"]
    return json.dumps(data | {"checksum": module._checksum(data)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not the result of an audit"),
        ("{}", "not the result of an audit"),
        ('{"format": "other", "version": 1}', "not the result of an audit"),
        (changed(["version"], 2), "has version 2 and this gmip reads version 1"),
        (changed(["version"], None), "has version None"),
        (changed(["titel"], "x"), "unknown key titel, did you mean 'title': the keys are format, "),
        (
            changed(["runs", 0, "attacks", 1, "mu_lowr"], 1),
            r"unknown key runs\[0\].attacks\[1\].mu_lowr, did you mean 'mu_lower'",
        ),
        (changed(["runs", 0, "gate", "limits"], 1), "gate.limits, did you mean 'limit'"),
        (changed(["runs"], []), "wrong at runs"),
        (changed(["runs", 0, "facts", "noise_std"], float("nan")), r"wrong at runs\[0\].facts.noise_std \(.*finite"),
        (
            changed(["runs", 0, "attacks", 0, "roc", "fpr"], [0.0]),
            r"wrong at runs\[0\].attacks\[0\].roc \(.*as many FPRs",
        ),
        (changed(["confidence"], "much"), "wrong at confidence"),
    ],
)
def test_bad_results_get_one_sentence(tmp_path, text, message):
    path = tmp_path / "result.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument, match=message) as raised:
        read_result(path)
    sentence = str(raised.value)
    assert sentence.startswith(str(path)) and sentence.endswith(".") and "\n" not in sentence and len(sentence) < 450


def test_flipped_bits_are_found(tmp_path):
    """Wherever they change what the file says; most are no JSON any more."""
    path = write_report(sample.consistent(), tmp_path).json
    content = path.read_bytes()
    whole = json.loads(content)
    coins = np.random.default_rng(5)
    found = []
    for place in (content.index(b'"confidence": 0.95') + 16, *coins.integers(len(content), size=60)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            assert read_result(path) == sample.consistent() and json.loads(damaged) == whole
        except InvalidArgument as error:
            found.append(str(error))
    assert found[0].startswith(f"{path} is not as gmip wrote it (its checksum does not match): ")
    assert len(found) > 50 and all("\n" not in sentence for sentence in found)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "result.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InvalidArgument, match="is not JSON"):
        read_result(tmp_path)


def test_no_result(tmp_path):
    with pytest.raises(InvalidArgument, match=r"result\.json does not exist"):
        read_result(tmp_path)
    with pytest.raises(InvalidArgument, match=r"x\.json does not exist"):
        read_result(tmp_path / "x.json")
    (tmp_path / "f").write_text("")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_result(tmp_path / "f" / "x.json")


def test_files_of_another_audit_do_not_stay(tmp_path):
    first = sample.exposed()
    name = first.runs[0].name
    kept = tmp_path / "exposed-by-hand.csv"
    write_report(with_rows(first, {name: [Candidate(1, True, 1.0)]}), tmp_path)
    kept.write_text("mine")
    (exposed,) = set(tmp_path.glob("exposed-*.csv")) - {kept}
    write_report(first, tmp_path)  # the same audit again, as gmip report does
    assert exposed.exists() and (tmp_path / "report-to-share.html").exists()
    write_report(sample.consistent(), tmp_path)
    assert names(tmp_path) == [
        "exposed-by-hand.csv",
        "report-to-share.html",
        "report.html",
        "report.md",
        "result.json",
        "summary.html",
    ]
