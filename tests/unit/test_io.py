"""Writing whole or not at all, locks and hashes."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gmip import _io
from gmip._io import (
    Lock,
    make_folder,
    read,
    read_if_there,
    remove_leftovers,
    replacing,
    safetensors_metadata,
    sha256,
    sha256_of_file,
    write,
)
from gmip.errors import FileError, TraceError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "text äß€\n", b"", b"\x00\xff"])
def test_the_content_is_there_and_nothing_else(tmp_path, content):
    write(tmp_path / "a", "before")
    write(tmp_path / "a", content)
    assert (tmp_path / "a").read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_what_was_there(tmp_path, failure):
    write(tmp_path / "a", "before")
    with pytest.raises(failure), replacing(tmp_path / "a") as file:  # noqa: PT012
        file.write(b"half")
        raise failure
    assert (tmp_path / "a").read_text() == "before" and names(tmp_path) == ["a"]


def test_a_full_disk_is_one_error_and_leaves_what_was_there(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write(tmp_path / "a", "before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"a cannot be written \(No space left on device\): make room or fix the perm"):
        write(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "before" and names(tmp_path) == ["a"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes(tmp_path, umask):
    """Whatever is made is its owner's, and what is there stays; where it is shared, the umask decides."""
    (tmp_path / "mine").mkdir(mode=0o755)
    before = os.umask(umask)
    try:
        make_folder(tmp_path / "mine" / "new" / "newer")
        make_folder(tmp_path / "mine" / "all", shared=True)
        write(tmp_path / "secret", "")
        write(tmp_path / "open", "", shared=True)
        write(tmp_path / "was open", "", shared=True)
        write(tmp_path / "was open", "")
        Lock(tmp_path / "lock", wait=False).release()
    finally:
        os.umask(before)
    assert mode(tmp_path / "mine") == 0o755
    assert mode(tmp_path / "mine" / "new") == mode(tmp_path / "mine" / "new" / "newer") == 0o700
    assert mode(tmp_path / "mine" / "all") == 0o777 & ~umask
    assert [mode(tmp_path / name) for name in ("secret", "was open", "lock")] == [0o600] * 3
    assert mode(tmp_path / "open") == 0o666 & ~umask


def test_a_secret_is_secret_while_it_is_written(tmp_path):
    with replacing(tmp_path / "secret") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600


# -- reading ----------------------------------------------------------------------------------------------------------


def test_only_regular_files_are_read(tmp_path):
    """And nobody waits for a pipe."""
    write(tmp_path / "file", "x")
    assert read(tmp_path / "file") == read_if_there(tmp_path / "file") == b"x"
    assert read_if_there(tmp_path / "none") is None
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name, why in {
        "link": "a symbolic link",
        "lost": "a symbolic link",
        "pipe": "a pipe, a socket or a dev",
    }.items():
        for reading in (read, read_if_there):
            with pytest.raises(FileError, match=rf"{name} cannot be read \(it is {why}.*put the file itself"):
                reading(tmp_path / name)
    with pytest.raises(FileError, match=r"null cannot be read \(it is a pipe, a socket or a device"):
        read(Path(os.devnull))
    with pytest.raises(FileError, match="Is a directory"):
        read(tmp_path)
    with pytest.raises(FileError, match="No such file"):
        read(tmp_path / "none")


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{{"])
def test_what_has_no_metadata(content):
    with pytest.raises(ValueError):  # noqa: PT011, of json or of this function
        safetensors_metadata(content)


# -- replacing --------------------------------------------------------------------------------------------------------


def test_a_link_is_replaced_and_its_target_untouched(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    target.write_text("precious")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere" / "none")
    for name in ("link", "dangling"):
        write(tmp_path / name, "new")
        assert not (tmp_path / name).is_symlink() and (tmp_path / name).read_text() == "new"
    assert target.read_text() == "precious" and names(tmp_path / "elsewhere") == ["target"]


def test_a_link_in_place_of_the_temporary_file_is_refused(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 16)
    planted = tmp_path / f".a.{'0' * 16}.tmp"
    for goal in (target, tmp_path / "none"):
        planted.symlink_to(goal)
        with pytest.raises(FileError, match=r"a cannot be written"):
            write(tmp_path / "a", "new")
        assert planted.is_symlink()  # it is not ours to remove
        planted.unlink()
    assert target.read_text() == "precious" and names(tmp_path) == ["target"]


def test_the_old_fixed_temporary_name_is_not_used(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / ".a.tmp").symlink_to(target)
    write(tmp_path / "a", "new")
    assert target.read_text() == "precious" and (tmp_path / "a").read_text() == "new"


def test_two_writers_at_once_both_succeed(tmp_path):
    path = tmp_path / "a"
    with replacing(path) as first, replacing(path) as second:
        first.write(b"1" * 10)
        second.write(b"2" * 20)
    assert path.read_bytes() == b"1" * 10  # the last one to finish
    assert names(tmp_path) == ["a"]


def test_a_race_of_many_writers_and_a_reader(tmp_path):
    path, failures, seen = tmp_path / "a", [], set()
    write(path, b"0" * 5000)
    contents = [bytes([65 + i]) * (1000 * (i + 1)) for i in range(4)]

    def writer(content: bytes) -> None:
        try:
            for _ in range(25):
                write(path, content)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=writer, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.add(path.read_bytes())
    for thread in threads:
        thread.join()
    assert not failures and seen <= {*contents, b"0" * 5000} and path.read_bytes() in contents
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["x" * 250, "é" * 120])
def test_names_as_long_as_the_file_system_takes(tmp_path, name):
    write(tmp_path / name, "x")
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("path", [Path("/"), Path(), Path("a\0b")])
def test_what_is_no_name(path):
    with pytest.raises(FileError, match="is not the name of a file"):
        write(path, "x")


def test_what_is_in_the_way(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for path, why in ((tmp_path / "folder", "directory"), (tmp_path / "file" / "a", "Not a directory")):
        with pytest.raises(FileError, match=rf"cannot be written \(.*{why}") as caught:
            write(path, "x")
        assert not isinstance(caught.value, TraceError)
    with pytest.raises(FileError, match="file cannot be written"):
        make_folder(tmp_path / "file")
    with pytest.raises(FileError, match=r"none cannot be read \(No such file"):
        sha256_of_file(tmp_path / "none")
    assert names(tmp_path) == ["file", "folder"]


READ_ONLY = """
import os, sys
from pathlib import Path
from gmip._io import Lock, make_folder, write
from gmip.errors import FileError
os.chdir(sys.argv[1])
if os.geteuid() == 0:  # who may write everywhere
    os.setuid(65534)
for act in (lambda: write(Path("a"), "x"), lambda: Lock(Path("l"), wait=False), lambda: make_folder(Path("b"))):
    try:
        act()
    except FileError as error:
        print(error)
"""


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    tmp_path.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
        )
    finally:
        tmp_path.chmod(0o755)
    remedy = "cannot be written (Permission denied): make room or fix the permissions, or choose another path."
    assert done.stdout.splitlines() == [f"{name} {remedy}" for name in ("a", "l", "b")]
    assert names(tmp_path) == []


KILLED = """
import sys
from pathlib import Path
from gmip._io import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_the_old_file_and_one_leftover(tmp_path):
    write(tmp_path / "a", "before")
    for other in (".b.0123456789abcdef.tmp", ".a.tmp", ".a.txt.tmp", "a.tmp", ".hidden"):
        (tmp_path / other).touch()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "a")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait(timeout=60)
    process.stdout.close()
    process.stdin.close()
    assert (tmp_path / "a").read_text() == "before" and len(names(tmp_path)) == 7
    remove_leftovers(tmp_path, "a".__eq__)  # .a.tmp is what older releases left
    assert names(tmp_path) == [".a.txt.tmp", ".b.0123456789abcdef.tmp", ".hidden", "a", "a.tmp"]


# -- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_excludes_until_it_is_released(tmp_path):
    path = tmp_path / "lock"
    with Lock(path, wait=False) as lock:
        assert lock.held
        with pytest.raises(FileError, match="lock is in use by another process: wait for it to end"):
            Lock(path, wait=False)
    again = Lock(path, wait=False)
    again.release()
    again.release()
    assert names(tmp_path) == ["lock"]


def test_a_signed_lock_says_who_holds_it(tmp_path):
    path = tmp_path / "lock"
    path.write_text("the signature of somebody with a long name, who is gone\n")
    with Lock(path, wait=False, signed=True):
        with pytest.raises(FileError, match=rf"in use by process {os.getpid()} on [\w.-]+: wait for it to end"):
            Lock(path, wait=False, signed=True)
        path.write_text("<script>")
        with pytest.raises(FileError, match="in use by another process"):
            Lock(path, wait=False, signed=True)
    Lock(path, wait=False, signed=True).release()


def test_the_file_of_a_lock_is_never_changed(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b"precious\n")
    with Lock(path, wait=False):
        assert path.read_bytes() == b"precious\n"
    assert path.read_bytes() == b"precious\n"


def test_a_lock_follows_no_link(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "none")
    with pytest.raises(FileError, match=r"lock cannot be written \(it is a symbolic link\)"):
        Lock(tmp_path / "lock", wait=True)
    assert not (tmp_path / "none").exists()


HOLDER = """
import sys
from pathlib import Path
from gmip._io import Lock
lock = Lock(Path(sys.argv[1]), wait=False)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait(timeout=60)
    process.stdout.close()
    process.stdin.close()


def test_a_lock_of_another_process(tmp_path, holder):
    with pytest.raises(FileError, match="in use by another process"):
        Lock(tmp_path / "lock", wait=False)
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=60)
    assert (tmp_path / "lock").exists()  # and means nothing
    Lock(tmp_path / "lock", wait=False).release()


def test_waiting_for_a_lock_of_another_process(tmp_path, holder):
    threading.Timer(0.2, holder.kill).start()
    begun = time.monotonic()
    with Lock(tmp_path / "lock", wait=True) as lock:
        assert lock.held and time.monotonic() - begun > 0.1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    with Lock(tmp_path / "lock", wait=False) as lock:
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        lock.release()
        Lock(tmp_path / "lock", wait=False).release()
    child.kill()
    child.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_what_older_releases_locked_excludes_and_is_excluded(tmp_path):
    import fcntl

    with (tmp_path / "lock").open("wb") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        with pytest.raises(FileError, match="in use"):
            Lock(tmp_path / "lock", wait=False)
        fcntl.flock(file.fileno(), fcntl.LOCK_UN)
        with Lock(tmp_path / "lock", wait=False), pytest.raises(BlockingIOError):
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EIO])
def test_a_file_system_that_does_not_lock(tmp_path, monkeypatch, number):
    def refuse(*_: object, **__: object) -> bool:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_io, "lock_descriptor", refuse)
    if number == errno.EIO:
        with pytest.raises(FileError, match="Input/output error"):
            Lock(tmp_path / "lock", wait=True)
    else:
        with Lock(tmp_path / "lock", wait=True) as lock:
            assert not lock.held


# -- hashes -----------------------------------------------------------------------------------------------------------


def test_hashes(tmp_path):
    assert sha256("é") == sha256("é".encode()) == hashlib.sha256(b"\xc3\xa9").hexdigest()
    write(tmp_path / "a", "é")
    assert sha256_of_file(tmp_path / "a") == sha256("é")
