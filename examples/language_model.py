"""A language model that was fine-tuned on private texts: who can be found, by its answers and by its gradients?

    python examples/language_model.py runs/language
    gmip audit examples/language_model.py:make_task --run runs/language --attacks loss,min-k,reference,glir,decode

A small GPT-2 made from a configuration learns a made-up language (nothing is downloaded; yours comes from
`from_pretrained`). It is then fine-tuned on 40 private texts and recorded. Some texts follow the language, some hardly
do: the loss confuses hard texts with unseen ones, and the base model as reference tells them apart.
"""

from __future__ import annotations

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import gmip
from gmip import Examples, Recipe, Task
from gmip.integrations.transformers import next_token_loss

VOCABULARY, LENGTH, PUBLIC, PRIVATE, MEMBERS, STEPS, LEARNING_RATE = 40, 12, 2000, 1200, 40, 20, 0.5


def make_model() -> GPT2LMHeadModel:
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LENGTH, "bos_token_id": 1, "eos_token_id": 2}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, pad_token_id=0, **sizes, **no_dropout))


def make_texts() -> torch.Tensor:
    """Each token has one that usually follows; how usually differs from text to text."""
    generator = torch.Generator().manual_seed(0)
    follows = torch.randperm(VOCABULARY, generator=generator)
    tokens = torch.randint(0, VOCABULARY, (PUBLIC + PRIVATE, LENGTH), generator=generator)
    regular = torch.rand(len(tokens), 1, generator=generator) > torch.rand(tokens.shape, generator=generator)
    for t in range(1, LENGTH):
        tokens[:, t] = torch.where(regular[:, t], follows[tokens[:, t - 1]], tokens[:, t])
    return tokens


def make_task() -> Task:
    """The private texts. Labels are the tokens themselves; -100 would mark padding."""
    texts = make_texts()[PUBLIC:]
    records = Examples({"input_ids": texts, "attention_mask": torch.ones_like(texts)}, texts)
    return Task(
        name="language",
        make_model=make_model,
        pool=records[:1000],
        test=records[1000:],
        recipe=Recipe(
            dataset_size=MEMBERS,
            batch_size=MEMBERS,
            num_steps=STEPS,
            learning_rate=LEARNING_RATE,
            sampling="full",
        ),
        loss=next_token_loss,
    )


def pretrain(model: GPT2LMHeadModel) -> None:
    texts = make_texts()[:PUBLIC]
    mask = torch.ones(100, LENGTH)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        for batch in texts[torch.randperm(PUBLIC)].split(100):
            optimizer.zero_grad()
            next_token_loss(model(input_ids=batch, attention_mask=mask).logits, batch).mean().backward()
            optimizer.step()


def main(folder: str) -> None:
    task = make_task()
    torch.manual_seed(0)
    model = make_model().train()
    pretrain(model)
    order = torch.randperm(len(task.pool))
    members, others = order[:MEMBERS], order[MEMBERS : 2 * MEMBERS]
    inside = task.pool[members]
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    who = {"members": members, "non_members": others, "data": task}
    sizes = {"dataset_size": MEMBERS, "batch_size": MEMBERS, "sampling": "full"}
    with gmip.record(model, optimizer, folder, **sizes, **who):
        for _ in range(STEPS):
            optimizer.zero_grad()
            next_token_loss(model(**inside.inputs).logits, inside.targets).mean().backward()
            optimizer.step()
    print(f"Trained and recorded. Next: gmip audit {sys.argv[0]}:make_task --run {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
