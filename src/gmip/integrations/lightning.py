"""Record a run of Lightning's Trainer, and audit it like any other.

    recording = GmipCallback("runs/a", task=task, members=members)
    Trainer(max_epochs=3, callbacks=[recording]).fit(module, DataLoader(..., shuffle=True))

The model of the task is the LightningModule that is trained, or a part of it.
"""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.integrations.lightning", "lightning", "torch")

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.integrations.accumulation import Accumulation, loader_facts
from gmip.tasks import Task, load
from gmip.trace import check_membership
from gmip.training import Recorder, record
from gmip.training.batch_log import Followed, rows_of


class GmipCallback(Callback):  # type: ignore[misc]
    """Writes the trace of a `fit`; training itself is not changed.

    Automatic and manual optimization, accumulated batches (one step, of all their examples) and `gradient_clip_val`,
    whose factor is recorded. How batches are drawn is read off the loader. An exception leaves a readable trace, marked
    as interrupted; a fit that goes on from a checkpoint goes on with its trace.

    Parameters
    ----------
    out : folder of the trace.
    task : the Task, or its name as the command line takes it ("my_task.py:make_task").
    module : the part of the LightningModule that the task's `make_model` returns ("net" for self.net); None: all of it,
        which then has a `forward`.
    optimizer : which one to record, where there are several (manual optimization); it must be said then.
    members, non_members : rows of the task's pool: who is in the training set, and who is known not to be.
    options : of `gmip.record`: every, parameters, notes, ...

    Guarantees
    ----------
    Each step of the trace is what a plain loop on the same batches would record, to float32 precision, where the
    loss that training_step returns (or manual_backward gets) is the mean of the task's loss over the batch. One process
    only.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        task: Task | str,
        module: str | None = None,
        optimizer: int | None = None,
        members: ArrayLike | None = None,
        non_members: ArrayLike | None = None,
        **options: Any,
    ) -> None:
        self._out, self._task = out, load(task) if isinstance(task, str) else task
        self._module, self._optimizer = module or "", optimizer
        self._options = {"members": members, "non_members": non_members, **options}
        self._recorder: Recorder | None = None
        self._batches = Accumulation()
        self._followed: Followed | None = None
        self._taken = 0

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of the training under way."""
        return self._recorder

    # -- what Lightning calls -------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        # The only moment to listen to who is in each batch: before on_train_start the first epoch is under way.
        loader = getattr(getattr(trainer.fit_loop, "_data_source", None), "instance", None)
        if isinstance(loader, DataLoader):
            members = check_membership(self._options["members"], None).get("members")
            rows = rows_of(loader, members, self._task)
            self._followed = None if rows is None else Followed(loader, rows)
        if self._followed is not None:
            self._followed.start()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.world_size > 1:
            raise UnsupportedModel(
                f"GmipCallback records one process, and this Trainer uses {trainer.world_size}",
                remedy="train with devices=1, or write the loop with gmip.record under torchrun (docs/frameworks.md)",
            )
        if self._optimizer is None and len(trainer.optimizers) != 1:
            raise InvalidArgument(
                f"must be said: the module has {len(trainer.optimizers)} optimizers",
                argument="optimizer",
                remedy="pass the number of the one to record, from 0",
            )
        with self._unfollowed():
            facts = loader_facts(
                trainer.train_dataloader, trainer.accumulate_grad_batches, trainer.global_step, follow=False
            )
        self._recorder = record(
            pl_module.get_submodule(self._module),
            trainer.optimizers[self._optimizer or 0],
            self._out,
            data=self._task,
            **facts,
            **self._options,
        ).__enter__()
        self._taken = self._recorder.num_steps
        self._batches.clear()
        if trainer.global_step and self._followed is not None:  # batches may be skipped now
            self._followed.stop()
            self._followed = None

    @contextlib.contextmanager
    def _unfollowed(self) -> Iterator[None]:
        if self._followed is not None:
            self._followed.stop()
        yield
        if self._followed is not None:
            self._followed.start()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._recorder is None:
            return
        if self._recorder.num_steps != self._taken:
            self._taken = self._recorder.num_steps
            self._batches.clear()
        size = next((len(leaf) for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.ndim), None)
        if size is None:
            raise InvalidArgument("A batch holds no tensor, so its examples cannot be counted")
        self._batches.add(size, 1.0 / size, None if self._followed is None else self._followed.take(size))
        # Lightning divides by the number of batches that a step should have; the last one of an epoch may have fewer.
        automatic = pl_module.automatic_optimization
        self._batches.tell(
            self._recorder, divided_by=trainer.accumulate_grad_batches if automatic else len(self._batches)
        )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._close(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close(exception)

    def _close(self, error: BaseException | None) -> None:
        followed, self._followed = self._followed, None
        if followed is not None:
            followed.stop()
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(None if error is None else type(error), error, None)
