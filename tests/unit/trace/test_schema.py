"""Header and its parts: what they take, what they refuse, what follows from them."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
import pytest

import gmip.trace
from gmip.errors import InvalidArgument
from gmip.trace import Header, ParameterSpec, fingerprint
from gmip.vocabulary import Recipe
from tests.unit.trace.build import PARAMETERS, header

RECIPE = Recipe(dataset_size=100, batch_size=10, num_steps=5, learning_rate=0.1)


def test_public_names() -> None:
    assert gmip.trace.__all__ == [
        "FORMAT_VERSION",
        "Header",
        "LocalTraining",
        "ModelOptions",
        "ModelRecord",
        "ParameterSpec",
        "Provenance",
        "ReleasedModel",
        "Step",
        "StepInfo",
        "Trace",
        "TraceWriter",
        "check_indices",
        "check_membership",
        "fingerprint",
    ]
    assert gmip.trace.FORMAT_VERSION == 3


def test_sizes_follow_from_shapes() -> None:
    assert [spec.size for spec in PARAMETERS] == [4, 1]
    assert header().recorded_params == 5
    assert ParameterSpec("w", [3, np.int64(2)]).shape == (3, 2)


def test_an_empty_parameter_among_others() -> None:
    assert header(parameters=(*PARAMETERS, ParameterSpec("empty", (0, 3)))).recorded_params == 5


def test_notes_become_plain_json_of_their_own() -> None:
    given: dict[str, Any] = {"betas": (0.9, 0.999), "name": "adam", "nested": {"seed": 3}}
    found = header(notes=given).notes
    assert found == {"betas": [0.9, 0.999], "name": "adam", "nested": {"seed": 3}}
    given["nested"]["seed"] = 4
    assert found["nested"]["seed"] == 3


def test_frozen_and_by_keyword() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        header().batch_size = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Header(PARAMETERS, 8, 100, 10)  # type: ignore[call-arg]
    assert header() == header() and header() != header(batch_size=11)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": ()}, "parameters"),
        ({"parameters": [("w", (3,))]}, "parameters"),
        ({"parameters": (ParameterSpec("w", (2,)), ParameterSpec("w", (3,)))}, "'w' more than once"),
        ({"parameters": (ParameterSpec("w", (0,)),)}, "empty"),
        ({"num_params": 4}, "num_params = 4"),
        ({"num_params": 7.5}, "num_params"),
        ({"dataset_size": 0}, "dataset_size"),
        ({"batch_size": 101}, "batch_size = 101"),
        ({"batch_size": "10"}, "batch_size"),
        ({"sampling": "random"}, "'random'"),
        ({"sample_rate": 0.5}, "sample_rate = 0.5 does not go with sampling = 'fixed'"),
        ({"sampling": "poisson", "sample_rate": 0.9}, "sample_rate = 0.9 does not go with sampling = 'poisson'"),
        ({"sampling": "poisson", "sample_rate": 1.5}, "sample_rate = 1.5"),
        ({"dtype": "float16"}, "'float16'"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": float("nan")}, "clip_norm"),
        ({"fingerprints": {"train": 3}}, "fingerprints"),
        ({"fingerprints": "abc"}, "fingerprints"),
        ({"notes": {"lr": float("nan")}}, "notes"),
        ({"notes": {"lr": np.float32(0.1)}}, "notes"),
        ({"notes": {1: "a"}}, "notes"),
        ({"notes": ["lr"]}, "notes"),
        ({"recipe": {"learning_rate": 0.1}}, "recipe must be a gmip.Recipe, not dict.*notes"),
        ({"recipe": RECIPE.replace(batch_size=5)}, "recipe says batch_size = 5, and the run has 10"),
        ({"recipe": RECIPE.replace(optimizer_options={"betas": object()})}, "optimizer_options"),
        ({"provenance": {"task": "digits"}}, "must be a Provenance, not dict"),
        ({"every": 0}, "every"),
        ({"budget": 0}, "budget"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        header(**changes)


@pytest.mark.parametrize(("name", "shape"), [("", (3,)), (3, (3,)), ("w", 3), ("w", (3, -1)), ("w", (1.5,))])
def test_refuses_parameter(name: Any, shape: Any) -> None:
    with pytest.raises(InvalidArgument):
        ParameterSpec(name, shape)


def test_fingerprint_known_answer() -> None:
    array = np.array([[1.0, 2.0, 3.0]])
    text = b"<f8(1, 3)" + bytes.fromhex("000000000000f03f00000000000000400000000000000840")
    assert fingerprint(array) == hashlib.sha256(text).hexdigest()
    assert fingerprint() == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        [np.array([1, 2, 3, 5])],
        [np.array([[1, 2], [3, 4]])],
        [np.array([1, 2, 3, 4], dtype=np.int32)],
        [np.array([1.0, 2.0, 3.0, 4.0])],
        [np.array([1, 2]), np.array([3, 4])],
        [np.array([4, 3, 2, 1])],
        [np.array([1, 2, 3, 4]), np.zeros(0)],
    ],
)
def test_fingerprint_tells_apart(other: list[np.ndarray]) -> None:
    assert fingerprint(*other) != fingerprint(np.array([1, 2, 3, 4]))


def test_shape_counts_even_for_one_number() -> None:
    assert len({fingerprint(np.array(1.0)), fingerprint(np.array([1.0])), fingerprint(np.array([[1.0]]))}) == 3


def test_memory_layout_does_not_count() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert fingerprint(np.asfortranarray(array)) == fingerprint(array)
    assert fingerprint(np.repeat(array, 2, axis=1)[:, ::2]) == fingerprint(array)
    assert fingerprint(array.tolist()) == fingerprint(array)


@pytest.mark.parametrize("array", [np.array([True, False]), np.array([1 + 2j]), np.array(["a", "b"]), np.zeros((0, 3))])
def test_fingerprint_of_any_kind_of_array(array: np.ndarray) -> None:
    assert fingerprint(array) == fingerprint(array.copy())
    assert len(fingerprint(array)) == 64


def test_fingerprint_refuses_objects() -> None:
    with pytest.raises(InvalidArgument, match="object"):
        fingerprint(np.array([{}, []], dtype=object))
