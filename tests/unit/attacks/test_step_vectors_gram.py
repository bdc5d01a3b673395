from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from gmip.attacks import ghost
from gmip.attacks.ghost import Outer
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import compress, gram
from gmip.errors import InvalidArgument
from tests.unit.attacks.models import MODELS, looped, looped_flat, make


def relative(a, b):
    """Largest difference, relative to the norms of the two vectors of each inner product."""
    norms = np.sqrt(np.diag(b))
    return np.max(np.abs(a - b) / np.outer(norms, norms))


@pytest.mark.parametrize("kind", MODELS)
def test_same_as_products_of_the_gradients(kind):
    model, examples = make(kind, 6)
    rows = looped_flat(model, examples).numpy()
    vectors = np.random.default_rng(0).normal(size=(2, rows.shape[1]))
    every = np.concatenate([rows, vectors])
    gradients = PerExampleGradients(model)
    sets = examples[range(4)], examples[range(4, 6)]
    assert relative(gram(gradients, sets, vectors), every @ every.T) < 1e-12
    assert relative(gram(gradients, examples), rows @ rows.T) < 1e-12
    # Nothing fits: one example is held at a time, and the others pass by.
    streamed = gram(PerExampleGradients(model, chunk=1, memory_limit=1000), sets, vectors)
    assert relative(streamed, every @ every.T) < 1e-12
    np.testing.assert_array_equal(streamed, streamed.T)


@pytest.mark.parametrize("kind", ["three layers", "convolution", "few wide tokens", "many tokens", "part frozen"])
def test_clipped_gradients_of_some_parameters(kind):
    model, examples = make(kind, 9)
    parts = looped(model, examples)
    norms = torch.cat(list(parts.values()), 1).norm(dim=1)
    limit = float(norms.median())
    names = list(parts)[::-1][: len(parts) // 2 + 1]
    rows = (torch.clamp(limit / norms, max=1.0)[:, None] * torch.cat([parts[n] for n in names], 1)).numpy()
    gradients = PerExampleGradients(model, parameters=names, clip_norm=limit)
    mean = rows[:4].mean(0)
    every = np.concatenate([rows, mean[None]])
    assert relative(gram(gradients, examples, mean), every @ every.T) < 1e-12


@pytest.mark.parametrize("clip_norm", [None, 0.05])
@pytest.mark.parametrize("kind", ["few wide tokens", "images", "signals", "language", "turned"])
def test_layers_whose_gradients_are_never_held(monkeypatch, kind, clip_norm):
    """Whatever is multiplied out at a time, and by whichever way."""
    model, examples = make(kind, 6) if kind != "turned" else turned()
    rows = looped_flat(model, examples)
    if clip_norm is not None:
        rows *= torch.clamp(clip_norm / rows.norm(dim=1, keepdim=True), max=1.0)
    vectors = np.random.default_rng(0).normal(size=(2, rows.shape[1]))
    every = np.concatenate([rows.numpy(), vectors])
    gradients = PerExampleGradients(model, clip_norm=clip_norm)
    (_, pieces), *_ = gradients.pieces(examples)
    assert sum(piece.entries for piece in pieces) < 0.7 * gradients.num_params
    sets = examples[range(4)], examples[range(4, 6)]
    for strip, ready, pairs, per_pair in (
        (2**23, 2**25, 2**22, 32),
        (50, 300, 20, 32),
        (200, 1, 1, 1e9),
        (200, 1, 20, -1e9),
    ):
        for name, value in (("_STRIP", strip), ("_READY", ready), ("_PAIRS", pairs), ("_PER_PAIR", per_pair)):
            monkeypatch.setattr(ghost, name, value)
        assert relative(gram(gradients, sets, vectors), every @ every.T) < 1e-12
        assert (
            relative(
                gram(PerExampleGradients(model, clip_norm=clip_norm, chunk=1, memory_limit=4000), sets, vectors),
                every @ every.T,
            )
            < 1e-12
        )
        torch.testing.assert_close(gradients.rows(examples), rows, rtol=1e-10, atol=1e-12)
        weights, sums = torch.randn(2, 6, dtype=torch.float64), torch.zeros(2, rows.shape[1], dtype=torch.float64)
        parts = [part for piece in pieces for part in piece.apart()]
        assert len(parts) == len(gradients.names)
        for part in parts:
            part.add_to(sums, weights)
        torch.testing.assert_close(sums, weights @ rows, rtol=1e-10, atol=1e-12)
        squares = torch.stack([part.squared_norms() for part in parts]).sum(0)
        torch.testing.assert_close(squares, rows.square().sum(1), rtol=1e-10, atol=1e-12)


def turned():
    """A layer of transformers whose weight has a row for each input."""
    conv = pytest.importorskip("transformers.pytorch_utils", reason="transformers is not installed").Conv1D
    _, examples = make("attention", 6)
    torch.manual_seed(0)
    model = torch.nn.Sequential(conv(50, 8), torch.nn.Tanh(), conv(40, 50), torch.nn.Flatten(), torch.nn.Linear(160, 3))
    return model, examples


def test_which_layers_are_never_multiplied_out():
    def names(kind):
        model, examples = make(kind)
        (_, pieces), *_ = PerExampleGradients(model).pieces(examples)
        return Counter(type(use).__name__ for piece in pieces if isinstance(piece, Outer) for use in piece.uses)

    assert names("language") == {"Lookups": 2, "Outers": 2}
    assert names("images") == {"Windows": 3, "Outers": 1}
    assert names("signals") == {"Windows": 1, "Outers": 1}
    assert names("many tokens") == {"Outers": 1}  # the head's


def test_single_precision_is_summed_in_double():
    model, examples = make("three layers", 9)
    gradients = PerExampleGradients(model, dtype=torch.float32)
    rows = gradients.rows(examples).double().numpy()
    matrix = gram(gradients, examples)
    assert matrix.dtype == np.float64
    # The factors are rounded to float32, their products are not.
    assert relative(matrix, rows @ rows.T) < 3e-7


def test_compress_is_an_isometry_onto_the_span():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(30, 12)) @ rng.normal(size=(12, 400)) * np.geomspace(1.0, 1e-5, 400)
    matrix = vectors @ vectors.T
    points = compress(matrix)
    assert points.shape == (30, 12)
    assert relative(points @ points.T, matrix) < 1e-12
    assert compress(np.zeros((4, 4))).shape == (4, 0)
    assert compress(np.ones((1, 1))).shape == (1, 1)


def test_compress_keeps_small_directions():
    scales = np.array([1.0, 1e-3, 1e-6])
    points = compress(np.diag(scales**2))
    np.testing.assert_allclose(np.sort(np.linalg.norm(points, axis=1)), scales[::-1], rtol=1e-12)


def test_bad_arguments_get_a_sentence():
    model, examples = make("linear")
    gradients = PerExampleGradients(model)
    with pytest.raises(InvalidArgument, match=r"vectors have shape \(1, 5\): pass flat vectors of length 27"):
        gram(gradients, examples, np.zeros(5))
    with pytest.raises(InvalidArgument, match="vectors have entries that are not finite"):
        gram(gradients, examples, np.full(27, np.nan))
    with pytest.raises(InvalidArgument, match=r"square, not of shape \(2, 3\)"):
        compress(np.zeros((2, 3)))
    with pytest.raises(InvalidArgument, match="not finite"):
        compress(np.full((2, 2), np.inf))
    with pytest.raises(InvalidArgument, match="eigenvalues from -1 to 1, so it holds no inner products"):
        compress(np.array([[0.0, 1.0], [1.0, 0.0]]))
