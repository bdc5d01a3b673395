"""Attacks on a fine-tuned language model (a part of attacks.py): a tiny GPT-2 and sequences of a made-up language."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from _games import Book, Page, both, errors, markdown
from torch import nn

from gmip.attacks import Attack, Loss, MinK, Reference
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import next_token_loss
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe

NAME, SEEDS, NULL_SEEDS = "texts", range(5), range(10)
VOCABULARY, LENGTH, MEMBERS = 30, 12, 100
SETTINGS = {"a GPT-2 of 3,984 parameters, N = 100, 20 steps": 20}
ATTACKS: dict[str, Attack] = {"loss": Loss(), "min-k": MinK(), "reference": Reference()}


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2}
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LENGTH, "vocab_size": VOCABULARY}
    model: nn.Module = GPT2LMHeadModel(GPT2Config(**sizes, pad_token_id=0, **quiet))
    return model


def texts(steps: int) -> Task:
    """Each token is followed by one of five, with chances of its own."""
    rng = np.random.default_rng(0)
    chances = np.zeros((VOCABULARY, VOCABULARY))
    for row in chances:
        row[rng.choice(np.arange(3, VOCABULARY), 5, replace=False)] = rng.dirichlet(np.ones(5))
    tokens = np.full((700, LENGTH), 3)
    tokens[:, 0] = rng.integers(3, VOCABULARY, len(tokens))
    for place in range(1, LENGTH):
        reached = chances[tokens[:, place - 1]].cumsum(1)
        tokens[:, place] = (reached < rng.random((len(tokens), 1)) * reached[:, -1:]).sum(1)
    ids = torch.from_numpy(tokens)
    records = Examples({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids)
    recipe = Recipe(dataset_size=MEMBERS, batch_size=MEMBERS, num_steps=steps, learning_rate=1.0e-2, sampling="full")
    return Task(
        name="texts",
        make_model=gpt2,
        pool=records[:600],
        test=records[600:],
        recipe=recipe.replace(optimizer="Adam", clip_norm=None),
        loss=next_token_loss,
    )


def play(page: Page, folder: Path) -> None:
    """All attacks on the run of a seed."""
    if not page.wants(*ATTACKS):
        return
    task = texts(SETTINGS[page.setting])
    run = folder / f"{NAME}, {page.seed}"
    found = train(task, seed=page.seed, out=run, every=1000, resume=True).split
    members = np.random.default_rng(page.seed).permutation(found.unused)[:MEMBERS] if page.null else found.members
    for name, attack in ATTACKS.items():
        page.attack(name, attack, task, Trace.open(run), members, found.non_members, None)


def tables(book: Book) -> dict[str, str]:
    """A table of docs/evidence/attacks.md."""
    found = {name: book.found(part=NAME, attack=name, null=False) for name in ATTACKS}
    lines = [[name, both(rows)] for name, rows in found.items() if rows]
    return {"texts": markdown(["attack", "AUC, TPR"], lines) + errors(found.values())} if lines else {}
