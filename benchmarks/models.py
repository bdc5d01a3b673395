"""Gradients of single examples for many kinds of models: are they right, how are they computed, what do they cost?

    python benchmarks/models.py [--examples 128] [MODEL ...]

For each model: the largest error against one backward pass for each example (relative to the norm), and the time for
all examples as a multiple of one plain backward pass over them as a batch, beside that of one backward pass for each.
Everything in float64, as attacks compute. docs/evidence/cost.md shows what it printed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gmip.attacks.gradients import PerExampleGradients
from gmip.errors import GmipWarning
from gmip.tasks.inputs import answer, next_token_loss
from gmip.tasks.task import Examples, cross_entropy

CLASSES = 4
Model = tuple[Callable[[], nn.Module], Callable[[int], Examples]]


class Recurrent(nn.Module):
    """A recurrent layer over a sequence, its last state, a linear layer."""

    def __init__(self, kind: type[nn.RNNBase], *, batch_first: bool = True) -> None:
        super().__init__()
        self.cell, self.head, self.batch_first = (
            kind(8, 16, batch_first=batch_first),
            nn.Linear(16, CLASSES),
            batch_first,
        )

    def forward(self, x: Tensor) -> Tensor:
        states = self.cell(x if self.batch_first else x.transpose(0, 1))[0]
        return self.head(states[:, -1] if self.batch_first else states[-1])


class Packed(nn.Module):
    """A GRU over packed sequences: lengths are read from the data."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x[..., 0] < 1.0).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.cell(packed)[1][0])


class Attention(nn.Module):
    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.norm, self.head, self.batch_first = nn.LayerNorm(8), nn.Linear(8, CLASSES), batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.head(x.mean(1 if self.batch_first else 0))


class Branching(nn.Module):
    """Which layer is used depends on the values of an example."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = [self.one(row) if row[0] > 0 else self.other(torch.tanh(row)) for row in x]
        return self.head(torch.tanh(torch.stack(rows)))


class TiedLanguage(nn.Module):
    """The embedding is the last layer's weight, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(20, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(self.table(ids))).mean(1))[:, :CLASSES]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.Conv2d(8, 8, 3, padding=1),
        )
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return self.head((x + self.second(x)).mean((2, 3)))


def floats(*shape: int) -> Callable[[int], Examples]:
    return lambda n: Examples(torch.randn(n, *shape), torch.randint(0, CLASSES, (n,)))


def tokens(length: int) -> Callable[[int], Examples]:
    return lambda n: Examples(torch.randint(0, 20, (n, length)), torch.randint(0, CLASSES, (n,)))


def on_tokens(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(CLASSES))


def _frozen_norm() -> nn.Module:
    norm = nn.BatchNorm1d(16).eval()
    norm.running_mean, norm.running_var = torch.randn(16), torch.rand(16) + 0.5
    return nn.Sequential(nn.Linear(16, 16), norm, nn.ReLU(), nn.Linear(16, CLASSES))


# name -> model, examples. LazyLinear layers get their size from the first example.
MODELS: dict[str, Model] = {
    "Linear, tanh": (lambda: nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, CLASSES)), floats(16)),
    "Conv1d": (lambda: on_tokens(nn.Conv1d(3, 8, 3), nn.ReLU()), floats(3, 12)),
    "Conv2d, MaxPool2d": (lambda: on_tokens(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2)), floats(3, 10, 10)),
    "Conv3d": (lambda: on_tokens(nn.Conv3d(1, 4, 2), nn.ReLU()), floats(1, 4, 4, 4)),
    "ConvTranspose2d": (lambda: on_tokens(nn.ConvTranspose2d(3, 4, 2), nn.ReLU()), floats(3, 5, 5)),
    "residual block, GroupNorm": (Residual, floats(3, 8, 8)),
    "LayerNorm": (lambda: on_tokens(nn.Linear(8, 8), nn.LayerNorm(8)), floats(6, 8)),
    "RMSNorm": (lambda: on_tokens(nn.Linear(8, 8), nn.RMSNorm(8)), floats(6, 8)),
    "InstanceNorm2d": (lambda: on_tokens(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True)), floats(3, 8, 8)),
    "BatchNorm1d in eval mode": (_frozen_norm, floats(16)),
    "weight norm": (lambda: on_tokens(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.Tanh()), floats(6, 8)),
    "PReLU": (lambda: on_tokens(nn.Linear(8, 8), nn.PReLU()), floats(6, 8)),
    "Embedding": (lambda: on_tokens(nn.Embedding(20, 8)), tokens(6)),
    "Embedding with padding_idx": (lambda: on_tokens(nn.Embedding(20, 8, padding_idx=0)), tokens(6)),
    "EmbeddingBag": (lambda: nn.Sequential(nn.EmbeddingBag(20, 8), nn.Linear(8, CLASSES)), tokens(6)),
    "tied embedding and head": (TiedLanguage, tokens(6)),
    "MultiheadAttention": (Attention, floats(6, 8)),
    "MultiheadAttention, time first": (lambda: Attention(batch_first=False), floats(6, 8)),
    "TransformerEncoderLayer": (
        lambda: on_tokens(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)),
        floats(6, 8),
    ),
    "RNN": (lambda: Recurrent(nn.RNN), floats(6, 8)),
    "LSTM": (lambda: Recurrent(nn.LSTM), floats(6, 8)),
    "GRU": (lambda: Recurrent(nn.GRU), floats(6, 8)),
    "LSTM, time first": (lambda: Recurrent(nn.LSTM, batch_first=False), floats(6, 8)),
    "GRU, packed sequences": (Packed, floats(6, 8)),
    "branches on the data": (Branching, floats(16)),
}


def make(name: str, n: int, models: dict[str, Model] | None = None) -> tuple[nn.Module, Examples]:
    """The model, with the same weights each time, and n examples."""
    build, draw = (models or MODELS)[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, examples = build(), draw(n)
        with torch.no_grad():
            answer(model, examples[:2].inputs)  # lazy layers
    return model, examples


def one_by_one(model: nn.Module, examples: Examples, loss: Any = cross_entropy) -> Tensor:
    """Gradients in float64 by one backward pass for each example, shape (n, d)."""
    model = model.double().eval()
    wide = Examples(_double(examples.inputs), examples.targets)
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(examples)):
        one = wide[i : i + 1]
        found = torch.autograd.grad(
            loss(answer(model, one.inputs), one.targets).sum(), parameters, materialize_grads=True
        )
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows)


def _double(inputs: Any) -> Any:
    return inputs.double() if isinstance(inputs, Tensor) and inputs.is_floating_point() else inputs


def of_transformers() -> dict[str, tuple[Callable[[], nn.Module], Callable[[int], Examples], Any]]:
    """Models of transformers and peft, made from configurations."""
    from peft import LoraConfig, get_peft_model
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        GPT2Config,
        GPT2ForSequenceClassification,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        ViTConfig,
        ViTForImageClassification,
    )

    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    bert = BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=CLASSES, **sizes)
    ends: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    gpt2 = GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=16, num_labels=CLASSES, **ends)
    llama = LlamaConfig(vocab_size=50, max_position_embeddings=16, **sizes, **ends)
    vit = ViTConfig(image_size=8, patch_size=4, num_labels=CLASSES, **sizes)

    def texts(n: int, *, language: bool = False) -> Examples:
        ids, mask = torch.randint(3, 50, (n, 12)), torch.ones(n, 12, dtype=torch.long)
        mask[::2, 8:], ids[::2, 8:] = 0, 0
        targets = torch.where(mask > 0, ids, -100) if language else torch.randint(0, CLASSES, (n,))
        return Examples({"input_ids": ids, "attention_mask": mask}, targets)

    def sequences(n: int) -> Examples:
        return texts(n, language=True)

    def lora() -> nn.Module:
        made: nn.Module = get_peft_model(
            BertForSequenceClassification(bert), LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
        )
        return made

    return {
        "BERT, classifier": (lambda: BertForSequenceClassification(bert), texts, cross_entropy),
        "BERT with LoRA": (lora, texts, cross_entropy),
        "GPT-2, classifier": (lambda: GPT2ForSequenceClassification(gpt2), texts, cross_entropy),
        "GPT-2, language model": (lambda: GPT2LMHeadModel(gpt2), sequences, next_token_loss),
        "Llama, language model": (lambda: LlamaForCausalLM(llama), sequences, next_token_loss),
        "ViT, classifier": (lambda: ViTForImageClassification(vit), floats(3, 8, 8), cross_entropy),
    }


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least of some processor times: these machines are shared."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def measured(name: str, model: nn.Module, examples: Examples, loss: Any) -> str:
    """A line of the table."""
    model = model.double().eval()
    wide = Examples(_double(examples.inputs), examples.targets)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = PerExampleGradients(model, loss)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        rows, way = gradients.rows(examples), gradients.plan(examples).alone
        ours = seconds(lambda: gradients.rows(examples))
    exact = one_by_one(model, examples, loss)
    error = float(((rows - exact).norm(dim=1) / exact.norm(dim=1).clamp(min=1e-12)).max())
    plain = seconds(
        lambda: torch.autograd.grad(loss(answer(model, wide.inputs), wide.targets).sum(), parameters, allow_unused=True)
    )
    loop = seconds(lambda: one_by_one(model, examples, loss), repeats=1)
    how = "together" if way is None else "one by one"
    return f"| {name} | {rows.shape[1]:,} | {how} | {ours / plain:.0f} | {loop / plain:.0f} | {error:.0e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=128)
    parser.add_argument("models", nargs="*", help="all, unless some are named")
    wanted = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(1)
    print("| model | parameters | examples | gmip | a pass for each | error |")
    print("|---|---|---|---|---|---|")
    theirs = of_transformers()
    rows: dict[str, tuple[Model, Any]] = {name: (model, cross_entropy) for name, model in MODELS.items()}
    rows |= {name: ((build, draw), loss) for name, (build, draw, loss) in theirs.items()}
    for name, (model, loss) in rows.items():
        if not wanted.models or name in wanted.models:
            print(measured(name, *make(name, wanted.examples, {name: model}), loss), flush=True)


if __name__ == "__main__":
    main()
