"""A language model, fine-tuned with LoRA (peft) by transformers' Trainer, recorded and audited.

    python examples/lora_language_model.py runs/lora
    gmip audit examples/lora_language_model.py:make_task --run runs/lora

Only the adapters are trained, published and recorded. The base model is drawn with a fixed seed here; yours comes
from `from_pretrained`, which gives the same weights each time, too.
"""

from __future__ import annotations

import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import Subset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gmip import Examples, Recipe, Task
from gmip.integrations.transformers import GmipCallback, Records, next_token_loss

VOCABULARY, LENGTH, MEMBERS, BATCH, EPOCHS, LEARNING_RATE = 40, 10, 40, 20, 5, 5.0


def make_model() -> PeftModel:
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LENGTH, "bos_token_id": 1, "eos_token_id": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        base = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, pad_token_id=0, **sizes, **no_dropout))
    adapters = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    return get_peft_model(base, adapters)


def make_task() -> Task:
    """Sequences of different lengths: labels are the tokens themselves, -100 where padded."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, VOCABULARY, (1200, LENGTH), generator=generator)
    mask = torch.ones_like(tokens)
    mask[::2, 6:], tokens[::2, 6:] = 0, 0
    records = Examples({"input_ids": tokens, "attention_mask": mask}, torch.where(mask > 0, tokens, -100))
    return Task(
        name="lora",
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
        loss=next_token_loss,
    )


def main(folder: str) -> None:
    task = make_task()
    order = torch.randperm(len(task.pool))
    members, others = order[:MEMBERS], order[MEMBERS : 2 * MEMBERS]
    recording = GmipCallback(folder, task=task, members=members, non_members=others)
    arguments = TrainingArguments(
        output_dir=f"{folder}-trainer",
        per_device_train_batch_size=BATCH,
        num_train_epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        optim="sgd",
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    data = Subset(Records(task.pool), members.tolist())
    # Trainer's own loss is a mean over tokens, in which long sequences count more: take the mean over sequences.
    how = {"compute_loss_func": recording.mean_loss, "callbacks": [recording]}
    Trainer(make_model(), arguments, train_dataset=data, **how).train()
    print(f"Trained and recorded. Next: gmip audit {sys.argv[0]}:make_task --run {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
