"""A classifier of transformers, trained by its Trainer, recorded and audited.

    python examples/transformers_trainer.py runs/text
    gmip audit examples/transformers_trainer.py:make_task --run runs/text

The model is a BERT made from a configuration, so that nothing is downloaded; `from_pretrained` works as well.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import Subset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from gmip import Examples, Recipe, Task
from gmip.integrations.transformers import GmipCallback, Records

VOCABULARY, LENGTH, MEMBERS, BATCH, EPOCHS, LEARNING_RATE = 40, 8, 40, 20, 5, 0.5


def make_model() -> BertForSequenceClassification:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # see docs/frameworks.md
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **sizes, **no_dropout)
    return BertForSequenceClassification(config)


def make_task() -> Task:
    """Sequences of random tokens (yours would come from a tokenizer), half of them padded; is the first one small?"""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, VOCABULARY, (1200, LENGTH), generator=generator)
    mask = torch.ones_like(tokens)
    mask[::2, 5:], tokens[::2, 5:] = 0, 0
    records = Examples({"input_ids": tokens, "attention_mask": mask}, (tokens[:, 0] < VOCABULARY // 2).long())
    return Task(
        name="text",
        make_model=make_model,
        pool=records[:1000],
        test=records[1000:],
        recipe=Recipe(
            dataset_size=MEMBERS,
            batch_size=BATCH,
            num_steps=EPOCHS * MEMBERS // BATCH,
            learning_rate=LEARNING_RATE,
            sampling="shuffled",
        ),
    )


def main(folder: str) -> None:
    task = make_task()
    order = torch.randperm(len(task.pool))
    members, others = order[:MEMBERS], order[MEMBERS : 2 * MEMBERS]
    recording = GmipCallback(folder, task=task, members=members, non_members=others)
    arguments = TrainingArguments(
        output_dir=f"{folder}-trainer",
        per_device_train_batch_size=BATCH // 2,
        gradient_accumulation_steps=2,
        num_train_epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        optim="sgd",
        max_grad_norm=1.0,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    data = Subset(Records(task.pool), members.tolist())
    Trainer(make_model(), arguments, train_dataset=data, callbacks=[recording]).train()
    print(f"Trained and recorded. Next: gmip audit {sys.argv[0]}:make_task --run {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
