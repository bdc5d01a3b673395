"""Attacks by the loss: members have been fitted, so theirs is lower; for language models also by tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Attack, AttackedRecords, RunTraits
from gmip.attacks.signals import answers, losses, released_model, without_nan
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.stats.scores import finite
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import masked_token_loss, next_token_loss, token_losses
from gmip.trace import ModelRecord, Trace, fingerprint
from gmip.training.loop import initial_model
from gmip.training.models import load_weights, read_weights, unwrapped


@dataclass(frozen=True, kw_only=True)
class Loss(Attack):
    """Score = minus the loss of the candidate under the trained model (Yeom et al. 2018).

    Nothing is trained and no background is used. A record that is hard for any model looks like a non-member and an
    easy one like a member, which costs most at low false-positive rates; LiRA and RMIA correct that by shadow models.

    Parameters
    ----------
    device : where the model is evaluated.
    """

    device: str = "cpu"

    name: ClassVar[str] = "loss"

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Always."""
        return True

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Progress) -> ScoreSet:
        model = released_model(task, target, device=self.device)
        found = losses(task, model, who.candidates)
        progress(len(found), len(found))
        return ScoreSet(ids=who.ids, scores=finite(-found), attack=self.name)


# -- attacks on language models and on fine-tuned ones ----------------------------------------------------------------


_PROBES: Final = 4  # made-up sequences that tell by which loss a model was trained
_LARGEST: Final = np.finfo(np.float64).max / 2.0  # of a loss, so that differences stay finite


@dataclass(frozen=True, kw_only=True)
class MinK(Attack):
    """Score = mean log-probability of the k% least likely tokens of the sequence (Min-K%, Shi et al. 2024).

    A text that was not trained on has some words that surprise the model; the mean over all words hides them. For
    models that answer with logits for each token, under `next_token_loss` or `masked_token_loss`. If the labels ask
    for m tokens, the k m/100 least likely count, rounded down, at least one; a sequence without any has score 0.

    Parameters
    ----------
    percent : k; 100 is minus the loss.
    device : where the model is evaluated.
    """

    percent: float = 20.0
    device: str = "cpu"

    name: ClassVar[str] = "min-k"

    def __post_init__(self) -> None:
        check.fields(self, percent=check.positive)
        if self.percent > 100.0:
            raise InvalidArgument("is above 100", argument="percent", value=self.percent, remedy="pass at most 100")

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Progress) -> ScoreSet:
        model = released_model(task, target, device=self.device)
        found = self._least_likely(task, model, who.candidates)
        progress(len(found), len(found))
        return ScoreSet(ids=who.ids, scores=found, attack=self.name)

    def _least_likely(self, task: Task, model: nn.Module, examples: Examples) -> NDArray[np.float64]:
        found = np.empty(len(examples))
        for rows, surprise, wanted in _tokens(self.name, task, model, examples):
            ordered = torch.where(wanted, surprise.double(), -torch.inf).sort(1, descending=True).values
            asked = wanted.sum(1, keepdim=True)
            count = (asked * (self.percent / 100.0) + 1.0e-9).long().clamp(min=1).minimum(asked)
            least = torch.arange(ordered.shape[1], device=ordered.device) < count
            total = torch.where(least, ordered, 0.0).sum(1)
            found[rows] = -(total / count[:, 0].clamp(min=1)).cpu().numpy()
        return np.clip(without_nan(task, found), -_LARGEST, _LARGEST)


def _tokens(attack: str, task: Task, model: nn.Module, examples: Examples) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """(rows, the loss of each of their tokens, which of these the labels ask for), shapes (rows, tokens)."""
    shift: int | None = None
    for rows, logits, labels in answers(model, examples):
        if shift is None:
            shift = _shift(attack, task, logits, labels)
        yield rows, *token_losses(logits[:, : logits.shape[1] - shift], labels[:, shift:])


def _shift(attack: str, task: Task, logits: Tensor, labels: Tensor) -> int:
    """How many positions a label is behind the logits that predict it: 1 in causal models, 0 in masked ones.

    It is the task's loss that says so: it is tried on made-up logits, where the two differ.
    """
    if logits.ndim != 3 or labels.shape != logits.shape[:2] or labels.is_floating_point():
        raise InvalidArgument(
            f"The attack {attack!r} asks for the probability of single tokens, and task {task.name!r} has answers of "
            f"shape {tuple(logits.shape[1:])} and labels of shape {tuple(labels.shape[1:])} for a record",
            remedy="use it on language models, and 'loss' or 'reference' here",
        )
    generator = torch.Generator().manual_seed(0)
    made = 3.0 * torch.randn(_PROBES, *logits.shape[1:], generator=generator).to(logits)
    tokens = torch.randint(logits.shape[2], (_PROBES, labels.shape[1]), generator=generator).to(labels)
    theirs = task.loss(made, tokens)
    for shift, ours in ((1, next_token_loss), (0, masked_token_loss)):
        if torch.allclose(theirs, ours(made, tokens), rtol=1.0e-3, atol=1.0e-3):
            return shift
    raise InvalidArgument(
        f"The loss of task {task.name!r} is neither the mean over next tokens nor that over masked ones, so it is "
        "unknown which logits belong to which label",
        remedy="give the task next_token_loss or masked_token_loss of gmip.tasks.inputs",
    )


@dataclass(frozen=True, kw_only=True)
class Reference(Attack):
    """Score = loss under the base model minus loss under the fine-tuned one (Mireshghallah et al. 2022).

    The base model knows which records are easy for any model; what is left is what training on the members did. For any
    model whose training began with weights that the attacker has, such as a public pretrained one; language models,
    where the loss is the mean of minus log p, give the mean log-ratio of the tokens' probabilities.

    Parameters
    ----------
    base : weights of the base model: .safetensors, .pt, or a folder of save_pretrained, for the model that the task
        makes; None: the parameters before the first step of the trace. Under adapters of peft these are the base model.
    device : where the models are evaluated.
    """

    base: str | None = None
    device: str = "cpu"
    base_digest: str = field(init=False, default="")  # scores are kept by what the attack is: other weights, another

    name: ClassVar[str] = "reference"

    def __post_init__(self) -> None:
        if self.base is not None:
            weights = read_weights(Path(self.base).expanduser())
            parts = (weights[name].detach().float().numpy() for name in sorted(weights))
            object.__setattr__(self, "base_digest", fingerprint(*parts))

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Progress) -> ScoreSet:
        tuned, count = released_model(task, target, device=self.device), len(who.candidates)
        after = self._losses(task, tuned, who.candidates)
        progress(count, 2 * count)
        before = self._losses(task, self._base(task, target, tuned), who.candidates)
        progress(2 * count, 2 * count)
        scores = np.array([self._gain(old - new) for old, new in zip(before, after, strict=True)])
        return ScoreSet(ids=who.ids, scores=scores, attack=self.name)

    def _losses(self, task: Task, model: nn.Module, examples: Examples) -> Sequence[NDArray[np.float64]]:
        """The loss of each record, or of each of its tokens."""
        return list(np.clip(losses(task, model, examples), -_LARGEST, _LARGEST)[:, None])

    def _gain(self, gains: NDArray[np.float64]) -> float:
        """The score of a record, from what training took off its losses."""
        return float(gains[0])

    def _base(self, task: Task, target: ModelRecord, tuned: nn.Module) -> nn.Module:
        if self.base is not None:
            path = Path(self.base).expanduser()
            model = initial_model(task, 0, checked=False)
            load_weights(model, read_weights(path), path)
            return model.to(next(tuned.parameters()).device)
        header = target.header
        whole = header.recorded_params == header.num_params
        if not isinstance(target, Trace) or not len(target) or target.recorded[0] != 0 or not whole:
            raise InvalidArgument(
                f"{target.path} does not hold the model that training began with",
                remedy="pass its weights as `base`, or record the first step and all parameters",
            )
        # What was not trained is as in the trained model, which is no longer needed.
        known = dict(unwrapped(tuned).named_parameters())
        with torch.no_grad():
            for name, values in target.named(target[0].parameters).items():
                known[name].copy_(torch.from_numpy(np.array(values)))
        return tuned


_WINDOWS: Final = np.unique(np.round(np.geomspace(2.0, 40.0, 10)).astype(int))  # tokens

_TIE: Final = 1.0e-6  # the weight of the mean beside votes, which come in larger steps


@dataclass(frozen=True, kw_only=True)
class Window(Reference):
    """Score = share of the windows of a text in which the fine-tuned model has a lower loss than the base model
    (WBC, Chen et al. 2026, arXiv 2601.02751), mean over windows of 2 to 40 tokens.

    Fine-tuning makes a few words of any text of that kind much likelier, which fill a mean over all tokens with noise.
    Votes of windows do not count how much; the mean over all tokens decides only between texts with the same votes. Of
    a text shorter than two tokens each token is a window; one without any has score 0.

    Parameters
    ----------
    base, device : as of `Reference`.
    """

    name: ClassVar[str] = "window"

    def _losses(self, task: Task, model: nn.Module, examples: Examples) -> Sequence[NDArray[np.float64]]:
        found: list[NDArray[np.float64]] = []
        for _, surprise, wanted in _tokens(self.name, task, model, examples):
            kept = (surprise.double().cpu().numpy(), wanted.cpu().numpy())
            found += [np.clip(one[chosen], -_LARGEST, _LARGEST) for one, chosen in zip(*kept, strict=True)]
        without_nan(task, np.array([one.sum() for one in found]))
        return found

    def _gain(self, gains: NDArray[np.float64]) -> float:
        """Mean over the sizes of windows of the share of windows with a positive sum; shape (tokens,)."""
        if not len(gains):
            return 0.0
        sums = np.concatenate([[0.0], np.cumsum(gains)])
        sizes = [size for size in _WINDOWS if size <= len(gains)] or [1]
        votes = np.mean([(sums[size:] > sums[:-size]).mean() for size in sizes])
        return float(votes + _TIE * np.tanh(gains.mean()))
