from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from gmip.errors import GmipWarning, InvalidArgument, UnsupportedModel
from gmip.integrations.lightning import GmipCallback
from gmip.tasks import Examples, Task
from gmip.trace import Trace
from gmip.vocabulary import Recipe
from tests.unit.integrations.trainers import Noted, check_example, check_same_run, drawn_batches, joined_in, plain_run

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),  # Lightning 2.6 with torch 2.13
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),  # of every loader without
]
MEMBERS = 20


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


class Module(pl.LightningModule):  # type: ignore[misc]
    """A classifier; `kind` of optimization: automatic, manual, or manual with a closure."""

    def __init__(self, kind: str = "automatic", optimizers: int = 1) -> None:
        super().__init__()
        self.net, self.kind, self.count = Net(), kind, optimizers
        self.automatic_optimization = kind == "automatic"

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, number: int) -> Any:
        def loss() -> Any:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        if self.kind == "automatic":
            return loss()
        optimizer = self.optimizers()
        optimizer.zero_grad()
        if self.kind == "manual":
            self.manual_backward(loss())
            return optimizer.step()
        return optimizer.step(closure=lambda: self.manual_backward(loss()))

    def validation_step(self, batch: Any, number: int) -> None:
        nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        optimizer, schedule = optimize(self)
        if self.count > 1:
            return [optimizer, optimize(self)[0]]
        return [optimizer], [{"scheduler": schedule, "interval": "step"}] if self.kind == "automatic" else []


def optimize(model: Any) -> tuple[Any, Any]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + step))


def make_task(make_model: Any = Net) -> Task:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(120, 5, generator=generator), torch.randint(0, 3, (120,), generator=generator)
    return Task(
        name="lit",
        make_model=make_model,
        pool=Examples(x[:100], y[:100]),
        test=Examples(x[100:], y[100:]),
        recipe=Recipe(dataset_size=MEMBERS, batch_size=8, num_steps=6, learning_rate=0.5, sampling="shuffled"),
    )


def fit(task: Task, module: Any, out: Path, *, module_name: str | None = "net", size: int = 4, **settings: Any) -> Any:
    """Trains for two epochs; returns the rows drawn."""
    data = Noted(TensorDataset(task.pool.inputs, task.pool.targets))
    options = {"optimizer": 0} if module.count > 1 else {}
    recording = GmipCallback(
        out, task=task, module=module_name, members=range(MEMBERS), non_members=range(20, 40), **options
    )
    settings = {"max_epochs": 2, "callbacks": [recording], **settings}
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="cpu", enable_model_summary=False, **quiet, **settings)
    checks = DataLoader(TensorDataset(task.test.inputs, task.test.targets), batch_size=7)
    trainer.fit(module, DataLoader(Subset(data, range(MEMBERS)), batch_size=size, shuffle=True), checks)
    assert recording.recorder is None
    return data.drawn


@pytest.mark.parametrize(
    ("kind", "accumulated", "clip"),
    [("automatic", 1, 0.05), ("automatic", 2, 0.05), ("automatic", 2, None), ("manual", 1, None), ("closure", 1, None)],
)
def test_the_trace_of_a_fit_is_that_of_a_plain_loop(tmp_path, kind, accumulated, clip):
    task = make_task()
    torch.manual_seed(0)
    module = Module(kind)
    torch.manual_seed(0)
    model = Net()
    automatic = kind == "automatic"
    settings = {"accumulate_grad_batches": accumulated, "gradient_clip_val": clip} if automatic else {}
    drawn = fit(task, module, tmp_path / "ours", **settings)
    steps = joined_in(drawn_batches(drawn, 4, MEMBERS), accumulated, 5)
    plain_run(
        tmp_path / "plain",
        task,
        model,
        steps,
        optimize=optimize if automatic else lambda m: (optimize(m)[0], None),
        max_grad_norm=clip,
        divide_by=lambda count: float(accumulated),  # also in the last step of an epoch, of fewer batches
        dataset_size=MEMBERS,
        batch_size=4 * accumulated,
        sampling="shuffled",
        members=range(MEMBERS),
        non_members=range(20, 40),
    )
    check_same_run(task, tmp_path / "ours", tmp_path / "plain")
    trace = Trace.open(tmp_path / "ours")
    for i, step in enumerate(steps):
        assert sorted(trace.batch_ids(i)) == sorted(row for batch in step for row in batch)
    if clip is not None:
        assert all(info.clip_factor is not None and info.clip_factor < 1.0 for info in trace.infos)


def test_the_whole_module_is_the_model_unless_a_part_is_named(tmp_path):
    task = make_task(Module)
    fit(task, Module(), tmp_path / "run", module_name=None)
    names = [spec.name for spec in Trace.open(tmp_path / "run").header.parameters]
    assert names == ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"]


def test_accumulated_batches_of_different_sizes_are_said(tmp_path):
    with pytest.warns(GmipWarning, match="accumulates batches of 6, 2 examples"):
        fit(make_task(), Module(), tmp_path / "run", size=6, accumulate_grad_batches=2)


class Failing(Module):
    def training_step(self, batch: Any, number: int) -> Any:
        if number == 3:
            raise OSError("no more data")
        return super().training_step(batch, number)


def test_an_exception_leaves_a_readable_trace(tmp_path):
    with pytest.raises(OSError, match="no more data"):
        fit(make_task(), Failing(), tmp_path / "run")
    trace = Trace.open(tmp_path / "run")
    assert trace.num_steps == 3 and not trace.complete


def test_a_fit_that_goes_on_from_a_checkpoint_goes_on_with_its_trace(tmp_path):
    task, checkpoint = make_task(), tmp_path / "one.ckpt"
    data = Subset(TensorDataset(task.pool.inputs, task.pool.targets), range(MEMBERS))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    for epochs, start in ((1, None), (2, checkpoint)):
        recording = GmipCallback(tmp_path / "run", task=task, module="net", members=range(MEMBERS))
        trainer = pl.Trainer(max_epochs=epochs, callbacks=[recording], enable_checkpointing=False, **quiet)
        trainer.fit(Module(), DataLoader(data, 4, shuffle=True), DataLoader(data, 4), ckpt_path=start)
        trainer.save_checkpoint(checkpoint)
    trace = Trace.open(tmp_path / "run")
    assert trace.num_steps == 10 and trace.complete
    assert 0.0 < np.abs(trace[5].parameters - trace[4].parameters).max() < 0.1  # goes on from where it was


def test_what_cannot_be_recorded_gets_a_sentence(tmp_path):
    recording = GmipCallback(tmp_path / "run", task=make_task(), module="net")
    two = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(InvalidArgument, match="optimizer must be said: the module has 0 optimizers"):
        recording.on_train_start(two, Module())
    with pytest.raises(UnsupportedModel, match="records one process, and this Trainer uses 2"):
        recording.on_train_start(type("Two", (), {"world_size": 2}), Module())
    with pytest.raises(InvalidArgument, match="optimizer must be said: the module has 2 optimizers"):
        recording.on_train_start(type("Two", (), {"world_size": 1, "optimizers": [1, 2]}), Module())


def test_example(tmp_path):
    check_example("lightning_trainer.py", tmp_path / "run")
