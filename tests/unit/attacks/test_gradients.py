from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from gmip.attacks.gradients import PerExampleGradients
from gmip.errors import GmipWarning, InvalidArgument, TraceMismatch, UnsupportedModel
from gmip.tasks.task import Examples, Task, cross_entropy
from gmip.trace import Header, ParameterSpec, Trace
from gmip.training import train
from gmip.vocabulary import Recipe
from tests.unit.attacks.models import MODELS, looped, looped_flat, make


def close(a, b, *, rtol=1e-10):
    """Within rtol of the size of b as a whole."""
    return torch.linalg.vector_norm(a.double() - b) <= rtol * torch.linalg.vector_norm(b)


@pytest.mark.parametrize("kind", MODELS)
def test_same_as_one_backward_pass_for_each_example(kind):
    model, examples = make(kind)
    expected = looped_flat(model, examples)
    gradients = PerExampleGradients(model)
    assert gradients.num_params == expected.shape[1]
    rows = gradients.rows(examples)
    assert rows.dtype == torch.float64
    assert close(rows, expected)
    assert close(torch.cat(list(PerExampleGradients(model, chunk=3).chunks(examples))), expected)
    assert close(torch.cat(list(PerExampleGradients(model, memory_limit=1).chunks(examples))), expected)


@pytest.mark.parametrize("kind", MODELS)
def test_clipping_counts_every_trainable_parameter(kind):
    model, examples = make(kind)
    parts = looped(model, examples)
    norms = torch.cat(list(parts.values()), 1).norm(dim=1)
    limit = float(norms.median())
    factor = torch.clamp(limit / norms, max=1.0)[:, None]
    names = [name for name in parts if name != "0.bias"][::-1][:2]  # not in the model's order, and not all
    rows = PerExampleGradients(model, parameters=names, clip_norm=limit).rows(examples)
    assert close(rows, factor * torch.cat([parts[name] for name in names], 1))
    whole = PerExampleGradients(model, clip_norm=limit).rows(examples)
    assert whole.norm(dim=1).max() <= limit * (1 + 1e-12)


def test_weight_without_its_bias():
    model, examples = make("three layers")
    parts = looped(model, examples)
    for name in ("2.weight", "2.bias"):
        assert close(PerExampleGradients(model, parameters=[name]).rows(examples), parts[name])
        norm = torch.cat(list(parts.values()), 1).norm(dim=1, keepdim=True)
        clipped = PerExampleGradients(model, parameters=[name], clip_norm=1e-3).rows(examples)
        assert close(clipped, 1e-3 / norm * parts[name])


def test_a_gradient_of_zero_is_not_scaled():
    model, examples = make("linear")
    zero = PerExampleGradients(model, lambda out, y: 0.0 * out.sum(1), clip_norm=1.0).rows(examples)
    assert torch.equal(zero, torch.zeros_like(zero))


def test_single_precision():
    model, examples = make("convolution")
    rows = PerExampleGradients(model, dtype=torch.float32).rows(examples)
    assert rows.dtype == torch.float32
    assert close(rows, looped_flat(model, examples), rtol=1e-5)
    out = torch.empty(rows.shape, dtype=torch.float64)
    assert PerExampleGradients(model, dtype=torch.float32).rows(examples, out=out) is out
    assert close(rows, out, rtol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_model_is_left_as_it_was(kind):
    model, examples = make(kind)
    model.register_buffer("calls", torch.zeros(3))
    next(model.modules()).train()
    list(model.modules())[-1].eval()
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.5)
    before = copy.deepcopy(model)
    state, modes = torch.get_rng_state(), [m.training for m in model.modules()]
    gradients = PerExampleGradients(model, clip_norm=0.1).at(np.zeros(PerExampleGradients(model).num_params))
    for _ in gradients.chunks(examples):
        assert [m.training for m in model.modules()] == modes  # also in between
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for (name, p), q in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(p, q) and torch.equal(p.grad, torch.full_like(p, 0.5)), name
        assert p.requires_grad == q.requires_grad
    for b, c in zip(model.buffers(), before.buffers(), strict=True):
        assert torch.equal(b, c)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_buffers_that_count_calls_do_not_count():
    class Counting(nn.Linear):
        calls: torch.Tensor

        def __init__(self):
            super().__init__(8, 3)
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    model, examples = Counting(), make("linear")[1]
    assert close(PerExampleGradients(model).rows(examples), looped_flat(model, examples))
    assert model.calls == 0


def test_at_other_parameters_from_read_only_arrays():
    model, examples = make("three layers")
    other, _ = make("three layers", seed=5)
    named = {name: p.detach().numpy() for name, p in other.named_parameters()}
    flat = np.concatenate([v.ravel() for v in named.values()])
    for array in (flat, *named.values()):
        array.flags.writeable = False
    gradients = PerExampleGradients(model)
    expected = looped_flat(other, examples)
    assert close(gradients.at(flat).rows(examples), expected)
    assert close(gradients.at(named).rows(examples), expected)
    assert close(gradients.rows(examples), looped_flat(model, examples))
    with pytest.raises(InvalidArgument, match=r"values has shape \(3,\): pass a flat vector of shape \(132,\)"):
        gradients.at(np.zeros(3))
    with pytest.raises(InvalidArgument, match=r"differ in parameter '0.bias'"):
        gradients.at({name: v for name, v in named.items() if name != "0.bias"})
    with pytest.raises(InvalidArgument, match=r"0.bias have shape \(2,\), not \(7,\)"):
        gradients.at({**named, "0.bias": np.zeros(2)})


class Branches(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, training=True))


class InPlace(nn.Linear):
    mean: torch.Tensor

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean.add_(x[0])
        return super().forward(x)


class Recurrent(nn.Linear):
    def __init__(self, *sizes, cell=nn.LSTM):
        super().__init__(*sizes)
        self.inner = cell(2, 8, batch_first=True)

    def forward(self, x):
        return super().forward(self.inner(x.view(-1, 4, 2))[0][:, -1])


class Gated(Recurrent):
    def __init__(self, *sizes):
        super().__init__(*sizes, cell=nn.GRU)


class OneOfTwo(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.other = nn.Linear(*sizes)

    def forward(self, x):
        return super().forward(x) if x[0, 0] > 0 else self.other(x)


@pytest.mark.parametrize("kind", [Branches, Gated, InPlace, OneOfTwo, Recurrent])
def test_what_cannot_be_vectorised_is_computed_one_by_one_and_says_so(kind):
    torch.manual_seed(0)
    model = kind(8, 3).train()
    examples = make("linear")[1]
    expected = looped_flat(model, examples)
    gradients = PerExampleGradients(model, chunk=3)
    with pytest.warns(GmipWarning, match=r"several examples at once \(torch.func.vmap: .*\), so .* about 7 x .* ms"):
        rows = gradients.rows(examples)
    assert close(rows, expected)
    assert close(gradients.at(np.zeros(gradients.num_params)).rows(examples), looped_flat(zeroed(model), examples))
    assert model.training and not model._forward_hooks and all(p.requires_grad for p in model.parameters())
    assert all(p.grad is None for p in model.parameters()) and not any(b.any() for b in model.buffers())
    limit = float(expected.norm(dim=1).median())
    with pytest.warns(GmipWarning, match="one after the other"):
        clipped = PerExampleGradients(model, parameters=["bias"], clip_norm=limit).rows(examples)
    factor = torch.clamp(limit / expected.norm(dim=1, keepdim=True), max=1.0)
    assert close(clipped, factor * looped(model, examples)["bias"])


def zeroed(model):
    other = copy.deepcopy(model)
    for p in other.parameters():
        p.data.zero_()
    return other


def test_random_operations_get_a_sentence_and_the_model_is_left_as_it_was():
    model = Noisy(8, 3).train()
    with pytest.raises(UnsupportedModel, match="draws random numbers in eval mode"):
        PerExampleGradients(model).rows(make("linear")[1])
    assert model.training and not model._forward_hooks and all(p.requires_grad for p in model.parameters())


class Pair(nn.Module):
    """Takes two inputs by name, and answers as transformers' models do."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 3)

    def forward(self, ids, mask):
        return SimpleNamespace(logits=self.head((self.table(ids) * mask[..., None]).sum(1)), loss=None)


def test_several_inputs_by_name():
    torch.manual_seed(0)
    model, ids, mask = Pair(), torch.randint(0, 11, (6, 4)), (torch.rand(6, 4) > 0.3).float()
    examples = Examples({"ids": ids, "mask": mask}, torch.randint(0, 3, (6,)))
    rows = PerExampleGradients(model, chunk=4).rows(examples)
    twin = copy.deepcopy(model).double()
    for i, row in enumerate(rows):
        loss = cross_entropy(twin(ids[i : i + 1], mask[i : i + 1].double()).logits, examples.targets[i : i + 1]).sum()
        assert close(row, torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(twin.parameters()))]))
    with pytest.raises(InvalidArgument, match=r"one example of ids \(4,\) in torch.float64 \(.*mask"):
        PerExampleGradients(model).rows(Examples({"ids": ids}, examples.targets))


def test_layers_that_mix_examples_are_refused():
    with pytest.raises(UnsupportedModel, match="mixes the examples"):
        PerExampleGradients(nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4, track_running_stats=False)))


def test_bad_arguments_get_a_sentence():
    model, examples = make("linear")
    with pytest.raises(InvalidArgument, match=r"parameters has 'wight', .* did you mean 'weight'"):
        PerExampleGradients(model, parameters=["wight"])
    with pytest.raises(InvalidArgument, match="at least one parameter, and each once"):
        PerExampleGradients(model, parameters=[])
    with pytest.raises(InvalidArgument, match="at least one parameter, and each once"):
        PerExampleGradients(model, parameters=["bias", "bias"])
    with pytest.raises(InvalidArgument, match=r"dtype is torch\.float16"):
        PerExampleGradients(model, dtype=torch.float16)
    with pytest.raises(InvalidArgument, match=r"loss returned shape \(\) for 1 example"):
        PerExampleGradients(model, nn.functional.cross_entropy).rows(examples)
    with pytest.raises(InvalidArgument, match=r"cannot be run on one example of shape \(5,\) in torch.float64 .mat1"):
        PerExampleGradients(model).rows(Examples(torch.zeros(4, 5), torch.zeros(4, dtype=torch.long)))
    with pytest.raises(InvalidArgument, match=r"out has shape \(1, 2\)"):
        PerExampleGradients(model).rows(examples, out=torch.zeros(1, 2))
    examples.inputs[4, 2] = float("nan")
    with pytest.raises(InvalidArgument, match="gradient of example 4 of 7 is not finite"):
        PerExampleGradients(model, chunk=3).rows(examples)
    assert PerExampleGradients(model).rows(examples[[]]).shape == (0, 27)


@pytest.mark.parametrize("clip_norm", [None, 0.7])
def test_mean_is_what_the_trace_of_a_run_published(tmp_path, clip_norm):
    _, data = make("three layers", 60)
    layers = (nn.Linear, 8, 7), (nn.Tanh,), (nn.Linear, 7, 3)
    task = Task(
        name="small",
        make_model=lambda: nn.Sequential(*(layer(*sizes) for layer, *sizes in layers)),
        pool=data,
        test=data,
        recipe=Recipe(
            dataset_size=20, batch_size=20, num_steps=2, learning_rate=0.5, sampling="full", clip_norm=clip_norm
        ),
    )
    result = train(task, seed=3, out=tmp_path / "run")
    trace = Trace.open(tmp_path / "run")
    gradients = PerExampleGradients.for_trace(result.model, task.loss, trace.header)
    for step in trace:
        rows = gradients.at(step.parameters).rows(task.pool[np.array(trace.members)])
        np.testing.assert_allclose(rows.mean(0), step.gradient, atol=1e-7)
        assert (clip_norm is None) == bool(rows.norm(dim=1).max() > 0.7 + 1e-9)


def test_trace_of_another_model_is_refused():
    model, _ = make("three layers")
    specs = PerExampleGradients(model)

    def header(names, shapes, num_params=132):
        parameters = tuple(ParameterSpec(n, s) for n, s in zip(names, shapes, strict=True))
        return Header(parameters=parameters, num_params=num_params, dataset_size=5, batch_size=5, clip_norm=2.0)

    fitting = PerExampleGradients.for_trace(model, cross_entropy, header(specs.names, specs.shapes), chunk=2)
    assert fitting.names == specs.names and fitting.clip_norm == 2.0
    with pytest.raises(TraceMismatch, match=r"records parameter body.weight, which is not a trainable parameter"):
        PerExampleGradients.for_trace(model, cross_entropy, header(["body.weight"], [(3, 3)]))
    with pytest.raises(
        TraceMismatch, match=r"records parameter 0.bias with shape \(9,\), the model has it with \(7,\)"
    ):
        PerExampleGradients.for_trace(model, cross_entropy, header(["0.bias"], [(9,)]))
    with pytest.raises(TraceMismatch, match="trained 99 parameters, the model has 132 trainable ones"):
        PerExampleGradients.for_trace(model, cross_entropy, header(["0.bias"], [(7,)], 99))


def test_the_limit_on_a_gpu_is_half_of_what_is_free(monkeypatch):
    """Without a GPU: what torch says of one is made up."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 4000))
    monkeypatch.setattr(PerExampleGradients, "device", torch.device("cuda"))
    gradients = PerExampleGradients(make("linear")[0], memory_limit=900)
    assert (gradients.memory_limit, gradients.within(300).memory_limit) == (500, 300)
    monkeypatch.setattr(PerExampleGradients, "device", torch.device("cpu"))
    assert gradients.within(900).memory_limit == 900
