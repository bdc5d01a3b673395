"""What every user of the store relies on: whole or not at all, after kill -9, by two writers, on a full disk."""

from __future__ import annotations

import errno
import math
import os
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.errors import FileError, GmipWarning, InvalidArgument
from gmip.store import Entry, Store

FACTS = {"seed": 1, "recipe": {"noise_std": 0.1, "sizes": (1, 2)}}
ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3).T,
    "flags": np.array([True, False]),
    "single": np.float32(0.1) * np.ones((2, 0), dtype=np.float32),
    "number": np.array(7, dtype=np.int64),
    "words": np.array(["a", "größer"]),
}
FIELDS = {"name": "a\nb", "rate": 0.1 + 0.2, "nothing": None, "far": -math.inf, "list": [1, "x"]}


def entries(store: Store) -> list[Path]:
    assert store.folder is not None
    return sorted(store.folder.glob("*.entry"))


def same(found: Entry | None, arrays: dict[str, Any], fields: dict[str, Any]) -> bool:
    return (
        found is not None
        and found.fields == fields
        and found.arrays.keys() == arrays.keys()
        and list(map(list, (found.arrays, found.fields))) == list(map(list, (arrays, fields)))  # in order
        and all(
            found.arrays[name].dtype == array.dtype and np.array_equal(found.arrays[name], array)
            for name, array in arrays.items()
        )
    )


def test_what_is_put_is_found_by_another_process(tmp_path: Path) -> None:
    Store(tmp_path / "a" / "b", "test", FACTS).put({"step": 3}, ARRAYS, FIELDS)
    store = Store(tmp_path / "a" / "b", "test", dict(reversed(FACTS.items())))
    found = store.get({"step": 3})
    assert found is not None and same(found, ARRAYS, FIELDS)
    found.arrays["matrix"][0, 0] = 5.0  # writable, and nobody else's
    assert same(store.get({"step": 3}), ARRAYS, FIELDS)
    store.put({"step": 3}, fields={"x": math.nan})
    again = store.get({"step": 3})
    assert again is not None and not again.arrays and math.isnan(again.fields["x"])


def test_everything_that_decides_is_part_of_the_key(tmp_path: Path) -> None:
    store = Store(tmp_path, "test", FACTS, version="1")
    store.put({"step": 3}, ARRAYS)
    others = [
        Store(tmp_path, "other", FACTS, version="1"),
        Store(tmp_path, "test", FACTS | {"seed": 2}, version="1"),
        Store(tmp_path, "test", FACTS, version="2"),
        Store(tmp_path, "test", FACTS),  # gmip's own version
    ]
    assert len({str(one.folder) for one in [store, *others]}) == 5
    assert [one.get({"step": 3}) for one in others] == [None] * 4
    assert store.get({"step": 4}) is None and store.get({"step": "3"}) is None


def test_computed_once(tmp_path: Path) -> None:
    store = Store(tmp_path, "test")
    first = store.compute("a", lambda: Entry({"x": np.arange(3)}, {"y": 1}))
    again = store.compute("a", lambda: pytest.fail("computed twice"))
    assert same(again, dict(first.arrays), dict(first.fields))


def test_cleared(tmp_path: Path) -> None:
    store, other = Store(tmp_path, "test", {"seed": 1}), Store(tmp_path, "test", {"seed": 2})
    for one in (store, other):
        one.put("a", ARRAYS)
    for _ in range(2):
        store.clear()
        assert store.folder is not None and not store.folder.exists()
    assert store.get("a") is None and same(other.get("a"), ARRAYS, {})
    store.put("a", ARRAYS)
    assert same(store.get("a"), ARRAYS, {})


def test_a_store_without_a_folder_keeps_nothing() -> None:
    store = Store(None, "test")
    store.put("a", ARRAYS)
    store.clear()
    assert store.get("a") is None
    assert store.compute("a", lambda: Entry(fields={"y": 1})).fields == {"y": 1}


@pytest.mark.parametrize(
    ("key", "arrays", "fields"),
    [
        ({"a": object()}, {}, {}),
        ("a", {}, {"x": np.zeros(2)}),
        ("a", {"x": np.array([object()])}, {}),
        ("a", {"x": np.zeros(1, dtype=[("a", "i4")])}, {}),
    ],
)
def test_what_is_not_plain_is_refused(tmp_path: Path, key: Any, arrays: Any, fields: Any) -> None:
    with pytest.raises(InvalidArgument, match="stored"):
        Store(tmp_path, "test").put(key, arrays, fields)
    assert not list(tmp_path.rglob("*.entry"))


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_anywhere_is_noticed_and_computed_again(tmp_path: Path) -> None:
    store = Store(tmp_path, "test", FACTS)
    store.put("a", ARRAYS, FIELDS)
    (path,) = entries(store)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        with pytest.warns(GmipWarning, match=r"\.entry is damaged \(its checksum differs\): it is computed again"):
            assert store.get("a") is None
    with pytest.warns(GmipWarning, match="computed again"):
        store.compute("a", lambda: Entry(ARRAYS, FIELDS))
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:20], lambda c: b"", lambda c: c + b"x"])
def test_a_file_of_another_length_is_noticed(tmp_path: Path, damage: Any) -> None:
    store = Store(tmp_path, "test")
    store.put("a", ARRAYS)
    (path,) = entries(store)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(GmipWarning, match="damaged"):
        assert store.get("a") is None


def test_the_file_of_another_entry_is_noticed(tmp_path: Path) -> None:
    store, other = Store(tmp_path, "test", {"seed": 1}), Store(tmp_path, "test", {"seed": 2})
    store.put("a", ARRAYS)
    (path,) = entries(store)
    for one, key in ((store, "b"), (other, "a")):
        one.put(key, ARRAYS)
        for place in set(entries(one)) - {path}:
            place.write_bytes(path.read_bytes())
        with pytest.warns(GmipWarning, match="it is another entry"):
            assert one.get(key) is None


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write a checksum can write an array of objects."""
    monkeypatch.setattr("gmip.store._PLAIN", "biufcSUO")
    store = Store(tmp_path, "test")
    store.put("a", {"x": np.array([print], dtype=object)})
    monkeypatch.undo()
    with pytest.warns(GmipWarning, match="array of"):
        assert store.get("a") is None


# -- killed, two at once, a full disk ----------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
import numpy as np
from gmip.store import Store

store, number = Store(Path(sys.argv[1]), "test"), 0
while True:
    store.put(number % 5, {"x": np.full(200_000, float(number))}, {"number": number})
    print(number, flush=True)
    number += 1
"""


def writer(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)


def test_kill_9_leaves_whole_entries_and_the_next_writer_tidies_up(tmp_path: Path) -> None:
    for stop in (3, 6, 9):
        process = writer(tmp_path)
        assert process.stdout is not None
        while int(process.stdout.readline()) < stop:
            pass
        process.kill()
        process.communicate(timeout=60)
    store = Store(tmp_path, "test")
    assert store.folder is not None and len(entries(store)) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for key in range(5):
            found = store.get(key)
            assert found is not None and (found.arrays["x"] == found.fields["number"]).all()
    (store.folder / ".left.entry.0123456789abcdef.tmp").write_bytes(b"half")
    store.put(0, ARRAYS)
    assert not list(store.folder.glob(".*"))


def test_two_writers_and_a_reader_at_once(tmp_path: Path) -> None:
    processes = [writer(tmp_path) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline()
        store, seen = Store(tmp_path, "test"), 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for turn in range(300):
                found = store.get(turn % 5)
                if found is not None:
                    assert (found.arrays["x"] == found.fields["number"]).all()
                    seen += 1
        assert seen > 50 and all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=60)


def test_one_forgets_while_others_write(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work(act: Any) -> None:
        try:
            for turn in range(40):
                act(Store(tmp_path, "test"), turn)
        except BaseException as error:
            failures.append(error)

    acts = [lambda store, turn: store.put(turn % 3, ARRAYS)] * 2 + [lambda store, turn: store.clear()]
    threads = [threading.Thread(target=work, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "test")
    store.put("a", ARRAYS)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for key in ("a", "b"):
        with pytest.raises(FileError, match=r"\.entry cannot be written \(No space left on device\): make room"):
            store.put(key, {"x": np.zeros(3)})
    monkeypatch.undo()
    assert same(store.get("a"), ARRAYS, {}) and store.get("b") is None
    assert store.folder is not None and [path.name for path in store.folder.iterdir()] == [entries(store)[0].name]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot be written .*: make room or fix the permissions"):
        Store(tmp_path / "file", "test").put("a", ARRAYS)


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
@pytest.mark.parametrize(("shared", "modes"), [(False, (0o700, 0o600)), (True, (0o755, 0o644))])
def test_who_can_read(tmp_path: Path, shared: bool, modes: tuple[int, int]) -> None:
    before = os.umask(0o022)
    try:
        store = Store(tmp_path / "new", "test", shared=shared)
        store.put("a", ARRAYS)
    finally:
        os.umask(before)
    assert store.folder is not None
    found = [stat.S_IMODE(path.stat().st_mode) for path in (store.folder, *entries(store), store.folder.parent)]
    assert found == [*modes, modes[0]]
    assert stat.S_IMODE((store.folder.parent / ".store.lock").stat().st_mode) == modes[1]
