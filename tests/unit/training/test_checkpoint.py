"""A checkpoint is private, and what is not as it was written is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from gmip.errors import FileError, TraceError
from gmip.training.loop import load_checkpoint, save_checkpoint
from gmip.training.steppers import PlainStepper
from tests.unit.training.recording import batches_of, make_model, plain_loop


def state(seed: int = 0) -> PlainStepper:
    model = make_model(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    plain_loop(model, optimizer, batches_of(4, 4))
    return PlainStepper(model, optimizer, cross_entropy, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    before = os.umask(0)
    try:
        save_checkpoint(tmp_path / "checkpoint.safetensors", state(), step=7)
    finally:
        os.umask(before)
    return tmp_path / "checkpoint.safetensors"


def test_round_trip(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "model.head.weight" in load_file(path)  # a plain safetensors file
    other, wanted = state(1), state()
    assert load_checkpoint(path, other, at_most=7) == 7
    for name, value in other.model.state_dict().items():
        assert torch.equal(value, wanted.model.state_dict()[name])
    found = other.optimizer.state_dict()["state"]
    for index, expected in wanted.optimizer.state_dict()["state"].items():
        assert all(torch.equal(found[index][key], value) for key, value in expected.items())
    assert other.generator is not None and wanted.generator is not None
    assert torch.equal(other.generator.get_state(), wanted.generator.get_state())


def test_a_weight_that_two_layers_share(tmp_path: Path) -> None:
    def tied(seed: int) -> torch.nn.Sequential:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5))
        model[1].weight = model[0].weight
        return model

    models = tied(0), tied(1)
    steppers = [PlainStepper(model, torch.optim.SGD(model.parameters(), lr=0.1), cross_entropy) for model in models]
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, steppers[0], step=2)
    assert load_checkpoint(path, steppers[1], at_most=2) == 2
    assert torch.equal(models[1][0].weight, models[0][0].weight) and models[1][1].weight is models[1][0].weight


def test_none_to_use(path: Path) -> None:
    assert load_checkpoint(path, state(), at_most=6) == 0
    assert load_checkpoint(path.with_name("none"), state(), at_most=9) == 0


def test_any_flipped_bit_is_noticed(path: Path) -> None:
    data, model = path.read_bytes(), make_model(3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    stepper = PlainStepper(model, optimizer, cross_entropy, generator=torch.Generator())
    noticed = 0
    places = [*range(0, 1500, 7), *range(1500, len(data), 97), len(data) - 1]
    for place in places:
        altered = bytearray(data)
        altered[place] ^= 1 << (place % 8)
        path.write_bytes(altered)
        try:
            found = load_checkpoint(path, stepper, at_most=9)
        except TraceError:
            noticed += 1
        else:
            assert found == 0, place  # its format became another
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert noticed > len(places) - 10


@pytest.mark.parametrize("length", [0, 5, 8, 100, -1])
def test_a_part_is_refused(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(TraceError, match="damaged"):
        load_checkpoint(path, state(), at_most=9)


def test_links_and_pipes_are_refused(path: Path) -> None:
    link, pipe = path.with_name("link"), path.with_name("pipe")
    link.symlink_to(path)
    os.mkfifo(pipe)
    for place, why in ((link, "a symbolic link"), (pipe, "a pipe")):
        with pytest.raises(FileError, match=why):
            load_checkpoint(place, state(), at_most=9)
