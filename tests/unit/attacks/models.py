"""Small models of many kinds, and the gradients of their examples by the plainest way: one backward pass each."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gmip.tasks.task import Examples, cross_entropy

CLASSES = 3


class Tokens(nn.Module):
    """Embedding, a linear layer on each token, the mean over tokens, a linear layer."""

    def __init__(self, tokens: int, width: int, hidden: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.table = nn.Embedding(11, width)
        self.each = nn.Linear(width, hidden)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.each(self.table(x))).mean(1))


class TimeFirst(nn.Module):
    """Moves the examples to the second dimension: the linear layer does not see them in the first."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Linear(6, 40)
        self.head = nn.Linear(40, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.sigmoid(self.each(x.transpose(0, 1))).sum(0))


class Twice(nn.Module):
    """The same layer in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(input=torch.tanh(self.layer(x)))))


class Tied(nn.Module):
    """A weight that is used outside its layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 5)
        self.head = nn.Linear(8, CLASSES)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(x)) @ self.layer.weight)


class Images(nn.Module):
    """A convolution of many channels on few positions, called twice, on images of two sizes, and one with holes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.twice = nn.Conv2d(24, 24, 3, padding=1)
        self.holes = nn.Conv2d(24, 24, (2, 1), dilation=(1, 2), bias=False)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.twice(torch.tanh(self.first(x))))
        return self.head(torch.tanh(self.holes(torch.tanh(self.twice(x[:, :, :2, :3])))).mean((2, 3)))


class Signals(nn.Module):
    """Convolutions along one dimension; the frames of an example are many small batches to the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 20, 3), nn.Conv1d(20, 20, 2, stride=2)
        self.head = nn.Linear(20, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = self.second(x.unfold(2, 2, 2).movedim(2, 1).flatten(0, 1))
        return self.head(torch.tanh(x).mean(2).view(-1, 2, 20).mean(1))


class Language(nn.Module):
    """An embedding that is the head's weight too, and one that is its own, with a number that does not count."""

    def __init__(self, *, elsewhere: bool = False) -> None:
        super().__init__()
        self.elsewhere = elsewhere
        self.table, self.places = nn.Embedding(60, 40), nn.Embedding(70, 40, padding_idx=2)
        self.inner = nn.Linear(40, 40)
        self.head = nn.Linear(40, 60)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        seen = self.table(x) + self.places(x) + self.places(torch.arange(x.shape[1]))
        answer = self.head(torch.tanh(self.inner(seen))).mean(1)[:, :CLASSES]
        return answer * self.head.bias[:CLASSES] if self.elsewhere else answer


class Attention(nn.Module):
    """Its output projection is a subclass of nn.Linear whose forward is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


class Transformer(nn.Module):
    """In eval mode, where no gradient is wanted, PyTorch computes the whole layer in one fused operation."""

    def __init__(self, trainable: str) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        self.head = nn.Linear(8, CLASSES)
        for name, p in self.named_parameters():
            p.requires_grad_(name.startswith(trainable))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).mean(1))


def _frozen_norm() -> nn.Module:
    norm = nn.BatchNorm1d(6)
    for statistic in norm.buffers():
        if statistic.is_floating_point():
            statistic.uniform_(0.5, 2.0)
    return nn.Sequential(nn.Linear(8, 6), norm, nn.ReLU(inplace=True), nn.Linear(6, CLASSES))


def _part_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, CLASSES), (8,)),
    "no bias": (lambda: nn.Linear(8, CLASSES, bias=False), (8,)),
    "three layers": (
        lambda: nn.Sequential(
            nn.Linear(8, 7), nn.ReLU(inplace=True), nn.Linear(7, 6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, CLASSES)
        ),
        (8,),
    ),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 25, CLASSES)
        ),
        (2, 5, 5),
    ),
    "frozen norm": (_frozen_norm, (8,)),
    "part frozen": (_part_frozen, (8,)),
    "few wide tokens": (lambda: Tokens(2, 12, 14), (2,)),
    "many tokens": (lambda: Tokens(9, 4, 5), (9,)),
    "images": (Images, (3, 5, 6)),
    "signals": (Signals, (2, 6)),
    "language": (Language, (3,)),
    "language, a bias used elsewhere": (lambda: Language(elsewhere=True), (3,)),
    "time first": (TimeFirst, (4, 6)),
    "twice": (Twice, (8,)),
    "tied": (Tied, (8,)),
    "attention": (Attention, (4, 8)),
    "transformer": (lambda: Transformer(""), (3, 8)),
    "transformer's middle": (lambda: Transformer("layer.linear1"), (3, 8)),
    "transformer's head": (lambda: Transformer("head"), (3, 8)),
}


def make(kind: str, n: int = 7, *, seed: int = 0) -> tuple[nn.Module, Examples]:
    """A model in train mode and n examples for it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        build, shape = MODELS[kind]
        model = build()
        inputs = torch.randint(0, 11, (n, *shape)) if hasattr(model, "table") else torch.randn(n, *shape)
        return model, Examples(inputs, torch.randint(0, CLASSES, (n,)))


def looped(model: nn.Module, examples: Examples, *, loss=cross_entropy) -> dict[str, Tensor]:
    """name -> gradients of each example in float64, shape (n, size), by one backward pass each."""
    twin = copy.deepcopy(model).double().eval()
    chosen = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in chosen}
    for x, y in zip(examples.inputs, examples.targets, strict=True):
        x = x.double() if x.is_floating_point() else x
        grads = torch.autograd.grad(loss(twin(x[None]), y[None]).sum(), list(chosen.values()), allow_unused=True)
        for (name, p), g in zip(chosen.items(), list[Tensor | None](grads), strict=True):
            rows[name].append((torch.zeros_like(p) if g is None else g).flatten())
    return {name: torch.stack(parts) for name, parts in rows.items()}


def looped_flat(model: nn.Module, examples: Examples) -> Tensor:
    return torch.cat(list(looped(model, examples).values()), 1)
