from __future__ import annotations

import json
import threading
import warnings

import numpy as np
import pytest
import safetensors.numpy

from gmip.attacks.shadow.shadow_files import ShadowFiles, ShadowSet
from gmip.attacks.shadow.shadow_models import Parts
from gmip.errors import DataUnavailable, FileError, GmipWarning, InvalidArgument
from tests.unit.attacks.shadow.helpers import make_task

FACTS = {"seed": 1, "recipe": {"noise_std": 0.1}}
INSIDE = np.array([True, False, True])


def parts(value: float, population: bool = False) -> Parts:
    return Parts(np.full((3, 2), value), np.full(4, value, dtype=np.float32) if population else None)


def test_what_is_written_is_read(tmp_path):
    store = ShadowFiles(tmp_path / "a" / "b", FACTS)
    store.write(7, INSIDE, {"x-1.0": parts(1.5), "y": parts(2.5, population=True)})
    assert store.stored(7) == {"x-1.0": False, "y": True} and store.stored(0) == {}
    inside, found = ShadowFiles(tmp_path / "a" / "b", FACTS).read(7)
    assert inside.dtype == np.bool_ and inside.tolist() == INSIDE.tolist()
    assert found["x-1.0"].candidates.dtype == np.float64 and (found["x-1.0"].candidates == 1.5).all()
    assert found["x-1.0"].population is None
    assert found["y"].population is not None and found["y"].population.dtype == np.float32


def test_signals_are_added(tmp_path):
    store = ShadowFiles(tmp_path, FACTS)
    store.write(0, INSIDE, {"x": parts(1.0)})
    store.write(0, INSIDE, {"y": parts(2.0)})
    store.write(0, INSIDE, {"y": parts(3.0)})
    found = store.read(0)[1]
    assert found["x"].candidates[0, 0] == 1.0 and found["y"].candidates[0, 0] == 3.0


def test_other_facts_other_folder(tmp_path):
    first, other = ShadowFiles(tmp_path, FACTS), ShadowFiles(tmp_path, FACTS | {"seed": 2})
    assert first.path != other.path
    assert json.loads((first.path / "shadows.json").read_text()) == FACTS
    assert ShadowFiles(tmp_path, dict(reversed(FACTS.items()))).path == first.path


@pytest.mark.parametrize("content", [b'{"seed": 2}', b"not json", b"[]"])
def test_manifest_that_disagrees_is_refused(tmp_path, content):
    store = ShadowFiles(tmp_path, FACTS)
    (store.path / "shadows.json").write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"does not describe the shadow set.*seed.*remove the folder"):
        ShadowFiles(tmp_path, FACTS)


def test_recipe_that_is_not_json(tmp_path):
    with pytest.raises(InvalidArgument, match="must be plain JSON"):
        ShadowFiles(tmp_path, {"recipe": {"options": object()}})


def flip(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


@pytest.mark.parametrize("damage", [flip, lambda c: c[:-1], lambda c: c[:20], lambda c: b"", lambda c: b"x" * len(c)])
def test_damage_is_noticed(tmp_path, damage):
    store = ShadowFiles(tmp_path, FACTS)
    store.write(0, INSIDE, {"x": parts(1.0)})
    store.file(0).write_bytes(damage(store.file(0).read_bytes()))
    with pytest.warns(GmipWarning, match=r"model-00000.safetensors is damaged .*: the model is trained again"):
        assert store.stored(0) == {}
    with pytest.raises(DataUnavailable, match=r"model-00000.safetensors is damaged"):
        store.read(0)
    store.write(0, INSIDE, {"x": parts(2.0)})
    assert store.read(0)[1]["x"].candidates[0, 0] == 2.0


def test_file_of_another_model_or_set_is_noticed(tmp_path):
    store, other = ShadowFiles(tmp_path, FACTS), ShadowFiles(tmp_path, FACTS | {"seed": 2})
    store.write(0, INSIDE, {"x": parts(1.0)})
    for path in (store.file(1), other.file(0)):
        path.write_bytes(store.file(0).read_bytes())
    for holder, index in ((store, 1), (other, 0)):
        with pytest.warns(GmipWarning, match="of another model or set"):
            assert holder.stored(index) == {}


def test_file_without_checksum_is_noticed(tmp_path):
    store = ShadowFiles(tmp_path, FACTS)
    store.file(0).write_bytes(safetensors.numpy.save({"inside": INSIDE}))
    with pytest.warns(GmipWarning, match="damaged"):
        assert store.stored(0) == {}


def test_missing_file(tmp_path):
    with pytest.raises(DataUnavailable, match=r"model-00003.safetensors is missing"):
        ShadowFiles(tmp_path, FACTS).read(3)


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot be written .*: make room or fix the permissions"):
        ShadowFiles(tmp_path / "file", FACTS)


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path):
    store = ShadowFiles(tmp_path, FACTS)
    (store.path / ".model-00000.safetensors.0123.tmp").write_bytes(b"half")
    store.write(0, INSIDE, {"x": parts(1.0)})
    assert sorted(path.name for path in ShadowFiles(tmp_path, FACTS).path.iterdir()) == [
        ".lock",
        "model-00000.safetensors",
        "shadows.json",
    ]


def test_writers_at_the_same_time_keep_each_others_signals(tmp_path):
    """Each opens the lock's file for itself, so threads exclude each other as processes do."""
    keys = [f"k{number}" for number in range(4)]
    failures: list[BaseException] = []

    def write(key: str) -> None:
        try:
            store = ShadowFiles(tmp_path, FACTS)
            for index in range(15):
                store.write(index, INSIDE, {key: parts(float(index))})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(ShadowFiles(tmp_path, FACTS).stored(index).keys() == set(keys) for index in range(15))


def test_reading_side(tmp_path):
    store = ShadowFiles(tmp_path, FACTS)
    for index in range(3):
        store.write(index, INSIDE, {"x": parts(float(index)), "y": parts(0.0)})
    population = make_task().pool[range(4)]
    shadows = ShadowSet(store, 2, np.arange(3), population, ["x"])
    assert len(shadows) == 2 and shadows.path == store.path and shadows.population is population
    models = list(shadows)
    assert [model.index for model in models] == [0, 1]
    candidates, of_population = models[1].signal("x")
    assert candidates.shape == (3, 2) and of_population is None
    with pytest.raises(InvalidArgument, match="Signal 'y' is not in the shadow set"):
        models[0].signal("y")
    assert "2 models, 3 candidates" in repr(shadows)
