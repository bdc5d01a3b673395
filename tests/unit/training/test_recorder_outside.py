"""Training outside the recorded steps: it is in the trace, and what sound loops do is not taken for it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from gmip.errors import GmipWarning, UnsupportedModel
from gmip.trace import Trace
from gmip.training import record
from gmip.training.watches import _checksums, _of_bits, has_stepped
from tests.unit.training.recording import LR, N, batches_of, dataset, loss_of, make_model, n, plain_loop, sgd

SIZES: dict[str, Any] = {"dataset_size": N, "batch_size": n, "sampling": "fixed"}


def other_training(model: nn.Module) -> None:
    plain_loop(model, torch.optim.SGD(model.parameters(), lr=0.1), batches_of(8, 8))


def other_weights(model: nn.Module) -> None:
    model.load_state_dict(make_model(seed=5).state_dict())


def clamped(model: nn.Module) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.clamp_(-0.1, 0.1)


def data_swapped(model: Any) -> None:
    model.head.bias.data = model.head.bias.data + 1.0  # no in-place operation, and no version of the tensor


def run(path: Path, model: Any, *parts: Callable[[nn.Module], None] | int, **options: Any) -> None:
    """Steps of one batch each, as many as a number says, and faults among them; all within one recording."""
    optimizer = sgd(model)
    with record(model, optimizer, path, **SIZES, **options):
        for part in parts:
            if isinstance(part, int):
                plain_loop(model, optimizer, batches_of(*[8] * part))
            else:
                part(model)


@pytest.mark.filterwarnings("ignore:A step saw 24 examples")  # of the other optimizer, too
@pytest.mark.parametrize("fault", [other_training, other_weights, clamped, data_swapped])
def test_changes_between_steps(path: Path, fault: Callable[[nn.Module], None]) -> None:
    with pytest.warns(GmipWarning, match="not a recorded step changed the parameters before step 2: no guarantee"):
        run(path, make_model(), 2, fault, 1, fault, 1, every=2)
    trace = Trace.open(path)
    assert [info.outside for info in trace.infos] == [False, False, True, True] and trace.changed_at_end == ()


@pytest.mark.parametrize("fault", [other_training, other_weights, clamped])
def test_changes_after_the_last_step(path: Path, fault: Callable[[nn.Module], None]) -> None:
    with pytest.warns(GmipWarning, match=r"not a recorded step changed body\.weight and 3 more: no guarantee covers"):
        run(path, make_model(), 2, fault)
    trace = Trace.open(path)
    assert not any(info.outside for info in trace.infos)
    assert trace.changed_at_end == ("body.weight", "body.bias", "head.weight", "head.bias")


def test_parameters_that_the_optimizer_does_not_hold(path: Path) -> None:
    """Another optimizer trains them, or they join the training later."""
    model = make_model()
    model.body.requires_grad_(False)

    def joins(model: Any) -> None:
        model.body.requires_grad_(True)
        other_training(model.body)

    with pytest.warns(GmipWarning, match=r"changed body.weight and 1 more"):
        run(path, model, 1, joins)
    assert Trace.open(path).changed_at_end == ("body.weight", "body.bias")


@pytest.mark.parametrize("kind", ["Adam", "Adagrad", "momentum"])
def test_a_late_start(tmp_path: Path, kind: str) -> None:
    """The state of an optimizer tells; that of plain SGD has nothing to tell."""
    for late in (False, True):
        model = make_model()
        optimizer: Any = (
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            if kind == "momentum"
            else getattr(torch.optim, kind)(model.parameters(), lr=0.1)
        )
        if late:
            plain_loop(model, optimizer, batches_of(8, 8))
        assert has_stepped(optimizer) is late
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if late else "error", GmipWarning)
            with record(model, optimizer, tmp_path / str(late), **SIZES):
                plain_loop(model, optimizer, batches_of(8, 8))
        assert [info.outside for info in Trace.open(tmp_path / str(late)).infos] == [late, False]


def back(optimizer: Any) -> Callable[[], None]:
    kept = copy.deepcopy(optimizer.state_dict())
    return lambda: optimizer.load_state_dict(copy.deepcopy(kept))


def nudged(optimizer: Any) -> Callable[[], None]:
    def change() -> None:
        next(iter(optimizer.state.values()))["exp_avg"].data.flatten()[0] += 1.0

    return change


@pytest.mark.parametrize(("change", "seen"), [(back, False), (nudged, True)])
def test_the_state_of_the_optimizer(path: Path, change: Callable[[Any], Callable[[], None]], seen: bool) -> None:
    """It may go back to what an earlier step left. After another change no step is seen to end."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    plan = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with warnings.catch_warnings(record=True) as told, record(model, optimizer, path, noise_std=0.1, **SIZES):
        warnings.simplefilter("always")
        plain_loop(model, optimizer, batches_of(8, 8))
        later = change(optimizer)
        plan.step()
        plain_loop(model, optimizer, batches_of(8))
        later()
        plain_loop(model, optimizer, batches_of(8, 8))
    trace = Trace.open(path)
    assert [info.outside for info in trace.infos] == [False] * 4 + [None if seen else False]
    assert (trace.changed_at_end is None) is seen
    assert any("changed the state of the optimizer before step 3" in str(one.message) for one in told) is seen


class Loops:
    """Sound ones. Each trains `model` by `optimizer` alone."""

    @staticmethod
    def evaluated(model: Any, optimizer: Any) -> None:
        for batch in batches_of(8, 8, 8):
            plain_loop(model, optimizer, [batch])
            model.eval()
            with torch.no_grad():
                model(dataset()[0])
            model.train()

    @staticmethod
    def accumulated(model: Any, optimizer: Any) -> None:
        for x, y in batches_of(8, 8):
            optimizer.zero_grad()
            for half in ((x[:4], y[:4]), (x[4:], y[4:])):
                (loss_of(model, half) / 2).backward()
            optimizer.step()

    @staticmethod
    def averaged(model: Any, optimizer: Any) -> None:
        """An average of the models elsewhere, which takes the place of the model for an evaluation."""
        average = AveragedModel(model)
        for batch in batches_of(8, 8, 8):
            plain_loop(model, optimizer, [batch])
            average.update_parameters(model)
            kept = copy.deepcopy(model.state_dict())
            model.load_state_dict(average.module.state_dict())
            model.load_state_dict(kept)

    @staticmethod
    def kept_best(model: Any, optimizer: Any) -> None:
        """It goes back to earlier weights, in between and at the end."""
        plain_loop(model, optimizer, batches_of(8))
        best = copy.deepcopy(model.state_dict())
        for _ in range(2):
            plain_loop(model, optimizer, batches_of(8, 8))
            model.load_state_dict(best)

    @staticmethod
    def scaled(model: Any, optimizer: Any) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        for i, batch in enumerate(batches_of(8, 8, 8)):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, batch) * (torch.inf if i == 1 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()

    @staticmethod
    def closed(model: Any, optimizer: Any) -> None:
        for batch in batches_of(8, 8, 8):

            def closure(batch: Any = batch) -> Any:
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                return loss

            optimizer.step(closure)

    @staticmethod
    def constrained(model: Any, optimizer: Any) -> None:
        plain_loop(model, optimizer, batches_of(8, 8, 8))  # see below: a hook of the optimizer's step clamps

    @staticmethod
    def checkpointed(model: Any, optimizer: Any) -> None:
        for batch in batches_of(8, 8):
            plain_loop(model, optimizer, [batch])
            model.load_state_dict(copy.deepcopy(model.state_dict()))
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


@pytest.mark.filterwarnings("ignore:A step saw 16 examples")  # that of the step that a GradScaler skips, and the next
@pytest.mark.parametrize("noise", [None, 0.1])  # with noise the state of the optimizer is compared, too
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", [name for name in vars(Loops) if not name.startswith("_")])
def test_sound_loops(path: Path, name: str, shared: bool, noise: float | None) -> None:
    model = make_model()
    if shared:  # two layers with one weight, and one that is stored by columns
        model.tail = nn.Linear(3, 3)
        model.more = nn.Linear(3, 3)
        model.more.weight = model.tail.weight
        model.tail.weight.data = model.tail.weight.data.t()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=0.1)
    if name == "constrained":
        optimizer.register_step_post_hook(lambda *_: clamped(model))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Something that is not", GmipWarning)
        with record(model, optimizer, path, noise_std=noise, **SIZES):
            getattr(Loops, name)(model, optimizer)
    trace = Trace.open(path)
    assert trace.num_steps >= 2 and trace.changed_at_end == ()
    assert all(info.outside is False for info in trace.infos)


def test_statistics_of_layers_are_no_parameters(path: Path) -> None:
    model: Any = nn.Sequential(make_model(), nn.BatchNorm1d(3).eval())
    optimizer = sgd(model)
    with record(model, optimizer, path, **SIZES):
        for batch in batches_of(8, 8):
            plain_loop(model, optimizer, [batch])
            model[1].running_mean += 1.0
    trace = Trace.open(path)
    assert not any(info.outside for info in trace.infos) and trace.changed_at_end == ()


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("at", [2, 4])
def test_resumed_recordings(path: Path, at: int, moved: bool) -> None:
    """From a checkpoint of step 2, or after all 4: the trace knows the parameters there."""
    model, batches = make_model(), batches_of(8, 8, 8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    kept = []
    with record(model, optimizer, path, **SIZES):
        for batch in batches:
            kept.append(copy.deepcopy((model.state_dict(), optimizer.state_dict())))
            plain_loop(model, optimizer, [batch])
    if at < 4:
        model.load_state_dict(kept[at][0])
        optimizer.load_state_dict(kept[at][1])
    if moved:
        other_training(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if moved else "error", GmipWarning)
        with record(model, optimizer, path, resume_at=at, **SIZES):
            plain_loop(model, optimizer, batches[:2])
    assert [info.outside for info in Trace.open(path).infos] == [False] * at + [moved, False]


def test_a_change_at_the_end_is_not_forgotten_when_the_recording_goes_on(path: Path) -> None:
    model = make_model()
    with pytest.warns(GmipWarning, match="changed body.weight and 3 more"):
        run(path, model, 1, other_training)
    with pytest.warns(GmipWarning, match="before step 1"):
        run(path, model, 1, resume_at=1)
    assert [info.outside for info in Trace.open(path).infos] == [False, True]


def test_a_loop_without_an_optimizer_is_not_seen_to_end_its_steps(path: Path) -> None:
    model = make_model()
    with record(model, None, path, **SIZES) as recorder:
        for batch in batches_of(8, 8):
            model.zero_grad()
            loss_of(model, batch).backward()
            recorder.step()
            with torch.no_grad():
                for p in model.parameters():
                    p -= LR * p.grad
    trace = Trace.open(path)
    assert [info.outside for info in trace.infos] == [False, None] and trace.changed_at_end is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8])
def test_checksums_see_one_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(4, 6).mul(9).to(dtype), torch.ones(3, 2, dtype=dtype).t(), torch.ones((), dtype=dtype)]
    for way in (_checksums, lambda all_: [int(_of_bits(one)) for one in all_]):
        before = way(tensors)
        assert way([one.clone() for one in tensors]) == before
        for one in tensors:
            bits = one.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()])
            place = (0,) * one.ndim
            bits[place] ^= 1
            assert way(tensors) != before
            bits[place] ^= 1
    assert _checksums([torch.empty(0)]) == _checksums([torch.empty(0)])


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.data.add_(1.0),
        lambda p: setattr(p, "data", p.data + 1.0),  # elsewhere in memory
        lambda p: setattr(p, "data", p.data.T),  # at the same place
        lambda p: setattr(p, "data", p.data.double() + 1.0),
        lambda p: p.data.view(torch.int32)[0, 0].bitwise_xor_(1),  # one bit
    ],
)
def test_a_remembered_place_does_not_hide_a_change(change: Callable[[torch.nn.Parameter], Any]) -> None:
    weight = torch.nn.Parameter(torch.arange(9.0).reshape(3, 3))
    views: dict[int, Any] = {}
    before = _checksums([weight], views)
    assert views and _checksums([weight], views) == before == _checksums([weight])
    change(weight)
    assert _checksums([weight], views) == _checksums([weight]) != before


@pytest.mark.filterwarnings("ignore::gmip.errors.GmipWarning")  # something else changed the parameters
@pytest.mark.parametrize("kind", ["complex", "other shape"])
def test_what_a_copy_would_cut_or_repeat_is_refused(tmp_path: Path, kind: str) -> None:
    """A record without imaginary parts, or of numbers that were repeated, is not that of the run."""
    model = torch.nn.Linear(3, 2, bias=False)
    if kind == "complex":
        model.weight = torch.nn.Parameter(torch.randn(2, 3, dtype=torch.complex64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def recorded() -> None:
        with record(model, optimizer, tmp_path / "a", dataset_size=4, batch_size=4, sampling="full"):
            if kind == "other shape":
                model.weight.data = torch.zeros(1, 3)
            model(torch.ones(4, 3, dtype=model.weight.dtype)).abs().mean().backward()
            optimizer.step()

    with pytest.raises(UnsupportedModel, match="shape"):
        recorded()
