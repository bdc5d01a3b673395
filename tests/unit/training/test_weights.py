"""Weights of released models: every kind of file, and what is wrong with one."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gmip.errors import GmipError
from gmip.training.models import load_weights, read_weights


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.words.weight


def loaded(path: Path, model: nn.Module) -> dict[str, torch.Tensor]:
    load_weights(model, read_weights(path), path)
    return model.state_dict()


def saved(path: Path, kind: str, state: dict[str, torch.Tensor]) -> Path:
    path.mkdir(exist_ok=True)
    if kind == "safetensors":
        save_file(state, path / "w.safetensors")
        return path / "w.safetensors"
    if kind == "folder":
        save_file(state, path / "model.safetensors")
        (path / "config.json").write_text("{}")
        return path
    if kind == "parts":
        names = list(state)
        parts = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(names)}
        for part in set(parts.values()):
            save_file({name: state[name] for name in names if parts[name] == part}, path / part)
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
        return path
    given = {
        "pt": state,
        "checkpoint": {"epoch": 3, "model_state_dict": state},
        "parallel": {f"module.{name}": value for name, value in state.items()},
        "compiled": {f"_orig_mod.{name}": value for name, value in state.items()},
    }[kind]
    torch.save(given, path / "w.pt")
    return path / "w.pt"


@pytest.mark.parametrize("kind", ["safetensors", "folder", "parts", "pt", "checkpoint", "parallel", "compiled"])
def test_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    state = small().state_dict()
    found = loaded(saved(tmp_path / "a", kind, state), small())
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_shared_weights_may_be_left_out_and_others_not(tmp_path: Path) -> None:
    model = Tied()
    path = saved(tmp_path / "a", "safetensors", {"words.weight": model.words.weight.detach().clone()})
    assert torch.equal(loaded(path, Tied())["head.weight"], model.words.weight)
    state = small().state_dict()
    del state["2.bias"]
    with pytest.raises(GmipError, match=r"lacks '2.bias'"):
        loaded(saved(tmp_path / "b", "pt", state), small())


def test_code_is_not_run(tmp_path: Path) -> None:
    torch.save({"model": small()}, tmp_path / "whole.pt")
    with pytest.raises(GmipError, match="would have to be executed") as caught:
        read_weights(tmp_path / "whole.pt")
    assert "weights_only" not in str(caught.value)
    with warnings.catch_warnings(action="ignore"):  # torch has no other way to write what people have
        torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / "script.pt"))
    with pytest.raises(GmipError, match=r"is a TorchScript program.*save model.state_dict"):
        read_weights(tmp_path / "script.pt")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("w.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}", "cannot be read as weights|another model"),
        ("w.safetensors", b"", "cannot be read as weights"),
        ("w.pt", b"PK\x03\x04 no", "cannot be read as weights"),
        ("w.pt", b"\x80\x04junk", "cannot be read|would have to be executed"),
        ("w.onnx", b"x", "not a known kind of weights"),
        ("absent.pt", None, "absent.pt"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GmipError, match=words):
        loaded(tmp_path / name, small())


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GmipError, match="holds no weights"):
        read_weights(tmp_path)
    for name in ("first.pt", "second.pt"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(GmipError, match=r"holds first.pt.*: neither one model .* nor two checkpoints with numbers"):
            read_weights(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/passwd"}}')
    with pytest.raises(GmipError, match=r"names '\.\./\.\./etc/passwd'"):
        read_weights(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(GmipError, match="cannot be read as weights"):
        read_weights(tmp_path)


def test_another_model(tmp_path: Path) -> None:
    path = saved(tmp_path / "a", "pt", {**small().state_dict(), "9.weight": torch.zeros(1)})
    with pytest.raises(GmipError, match=r"it has '9.weight', the model has 0.weight"):
        loaded(path, small())
    path = saved(tmp_path / "b", "pt", {**small().state_dict(), "0.bias": torch.zeros(9)})
    with pytest.raises(GmipError, match=r"'0.bias' has shape \(9,\), and \(4,\) in the model"):
        loaded(path, small())
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(GmipError, match="no weights by name"):
        read_weights(tmp_path / "list.pt")
    torch.save({"a": 1}, tmp_path / "number.pt")
    with pytest.raises(GmipError, match="'a', which is no tensor"):
        read_weights(tmp_path / "number.pt")


def test_complex_weights(tmp_path: Path) -> None:
    state = {name: value.to(torch.complex64) for name, value in small().state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(GmipError, match=r"w.pt has complex numbers in '0.weight', and the model has real ones"):
        loaded(tmp_path / "w.pt", small())
