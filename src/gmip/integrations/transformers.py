"""Record a run of transformers' Trainer, and audit it like any other.

    recording = GmipCallback("runs/a", task=task, members=members)
    trainer = Trainer(model, args, train_dataset=Subset(Records(task.pool), members), callbacks=[recording])
    trainer.train()

The model of the task is the model that is trained: `make_model` returns a BertForSequenceClassification, a
GPT2LMHeadModel, one that peft has wrapped.
"""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.integrations.transformers", "transformers", "torch")

import os
from typing import Any, Final

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import TrainerCallback

from gmip.errors import UnsupportedModel, warn
from gmip.integrations.accumulation import Accumulation, loader_facts
from gmip.tasks import Examples, Task, load
from gmip.tasks.inputs import IGNORED, logits, rows_of
from gmip.tasks.inputs import masked_token_loss as masked_token_loss
from gmip.tasks.inputs import next_token_loss as next_token_loss
from gmip.training import Recorder, record
from gmip.training.watches import QuietHook

_SAME: Final = 0.01  # relative difference of two losses that are the same but for rounding
_SMALL: Final = 1.0e-5  # a loss below is mostly rounding


class Records(Dataset[dict[str, Tensor]]):
    """The records of a task as a data set for Trainer: inputs by name, targets as "labels".

    Inputs that are one tensor are called "input_ids".
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        inputs = rows_of(self._examples.inputs, row)
        named = inputs if isinstance(inputs, dict) else {"input_ids": inputs}
        return {**named, "labels": self._examples.targets[row]}


class GmipCallback(TrainerCallback):  # type: ignore[misc]
    """Writes the trace of a Trainer's run; training itself is not changed.

    Accumulated batches are one step, of all their examples. Clipping by `max_grad_norm` is seen, and its factor
    recorded. The trace ends with the model that `train()` leaves: the best one under `load_best_model_at_end`. Training
    that goes on from a checkpoint goes on with its trace. How batches are drawn is read off the Trainer's loader.

    Parameters
    ----------
    out : folder of the trace.
    task : the Task, or its name as the command line takes it ("my_task.py:make_task"). Its loss of an example is the
        one that Trainer minimises the mean of; where it is not, a GmipWarning says so.
    members, non_members : rows of the task's pool: who is in the training set, and who is known not to be.
    options : of `gmip.record`: every, parameters, notes, ...

    Guarantees
    ----------
    Each step of the trace is what a plain loop on the same batches would record, to float32 precision. Some models
    of transformers (5.23: BERT's and GPT-2's classifiers) add up the mean losses of accumulated batches instead of
    averaging them: the trace holds the mean of the examples all the same. One process only.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        task: Task | str,
        members: ArrayLike | None = None,
        non_members: ArrayLike | None = None,
        **options: Any,
    ) -> None:
        self._out, self._task = out, load(task) if isinstance(task, str) else task
        self._options = {"members": members, "non_members": non_members, **options}
        self._recorder: Recorder | None = None
        self._batches = Accumulation()
        self._hook: Any = None
        self._divided = False  # whether Trainer divides the losses of accumulated batches by their number
        self._normed: int | None = None  # by which count of labels the model divides; None: those of the batch
        self._unseen: list[int] = []  # sizes of batches whose loss is computed outside the model
        self._warned: set[str] = set()

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of the training under way."""
        return self._recorder

    def mean_loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """The mean of the task's loss over the examples: Trainer(compute_loss_func=callback.mean_loss).

        Needed where the model's own loss is another mean: that of language models is one over all tokens of a batch, in
        which a long sequence counts more than a short one.
        """
        losses = self._task.loss(logits(outputs), labels)
        if torch.is_grad_enabled():
            self._batches.add(len(labels), 1.0 / len(labels))  # Trainer leaves it to the function to divide
        return losses.mean()

    # -- what Trainer calls ---------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.world_size > 1 or args.n_gpu > 1:
            raise UnsupportedModel(
                f"GmipCallback records one process, and this Trainer uses {max(args.world_size, args.n_gpu)}",
                remedy="train with one, or write the loop with gmip.record under torchrun (docs/frameworks.md)",
            )
        self._close(failed=True)  # a training before this one that did not come to its end
        model, loader = kwargs["model"], kwargs["train_dataloader"]
        facts = loader_facts(loader, args.gradient_accumulation_steps, state.global_step, follow=True)
        recorder = record(model, kwargs["optimizer"], self._out, data=self._task, **facts, **self._options)
        self._hook = model.register_forward_hook(QuietHook(self._look), with_kwargs=True)
        self._recorder = recorder.__enter__()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._batches.clear()
        self._unseen.clear()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._recorder is None:
            return
        if self._unseen and not len(self._batches):
            self._warn(
                "The loss is computed outside the model, so gmip cannot check that it is the mean of the task's "
                "loss over the examples of a step, as audits assume. Pass compute_loss_func=callback.mean_loss "
                "to be sure."
            )
            self._recorder.batch(sum(self._unseen))
        self._batches.tell(self._recorder, divided_by=len(self._batches) if self._divided else 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            self._hook.remove()
            error = RuntimeError("the training did not come to its end") if failed else None
            recorder.__exit__(None if error is None else type(error), error, None)

    # -- what the loss is the mean of -----------------------------------------------------------------------------

    def _look(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Compares the loss of the model with the mean of the task's, to know what accumulated losses add up to."""
        if not torch.is_grad_enabled():
            return
        labels = kwargs.get("labels")
        if labels is None:
            self._unseen.append(next(len(a) for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.ndim))
            return
        n, items, totals = len(labels), kwargs.get("num_items_in_batch"), _label_totals(labels)
        # Trainer hands over how many labels there are in all batches of the step, and then does not divide itself.
        self._divided = items is None
        shares = [] if items is None else [total / float(items) for total in totals]
        with torch.no_grad():
            mean = float(self._task.loss(logits(output), labels).mean())
        given = float(output["loss"].detach())
        if mean > _SMALL:
            self._normed = next((i for i, share in enumerate(shares) if _same(given, share * mean)), None)
            if not totals or (self._normed is None and not _same(given, mean)):
                self._warn(
                    f"The model's loss of a batch is {given:.4g}, where the mean of the task's loss over its examples "
                    f"is {mean:.4g}"
                    + (": it is a mean over tokens, and sequences differ in length" if not totals else "")
                    + ". The recorded gradients are not what an audit computes. Pass "
                    "compute_loss_func=callback.mean_loss to Trainer, or give the task the loss that is minimised."
                )
        divided = self._normed is not None and self._normed < len(shares)
        self._batches.add(n, shares[self._normed] / n if divided else 1.0 / n)  # type: ignore[index]

    def _warn(self, text: str) -> None:
        if text[:30] not in self._warned:
            self._warned.add(text[:30])
            warn(text)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= _SAME * abs(b)


def _label_totals(labels: Tensor) -> list[int]:
    """How many labels there are in a batch, as the losses of transformers count; none if examples differ in number."""
    if labels.ndim == 1:
        return [len(labels)]
    counts = [(part != IGNORED).flatten(1).sum(1) for part in (labels[:, 1:], labels)]  # of next tokens, of all
    return [int(count.sum()) for count in counts if bool((count == count[0]).all())]
