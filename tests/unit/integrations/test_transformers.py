from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import Subset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from gmip.attacks import LiRA
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.shadow import Shadows
from gmip.errors import GmipWarning, UnsupportedModel
from gmip.integrations.transformers import GmipCallback, Records, next_token_loss
from gmip.tasks import Examples, Task, cross_entropy
from gmip.trace import Trace
from gmip.vocabulary import Recipe
from tests.unit.integrations.trainers import Noted, check_example, check_same_run, drawn_batches, joined_in, plain_run

# peft 0.21 asks transformers 5.23 for a name of before.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

VOCABULARY, LENGTH, MEMBERS = 20, 6, 20
BERT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "pad_token_id": 0}


def bert(**changes: Any) -> Any:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForSequenceClassification(
        BertConfig(vocab_size=VOCABULARY, max_position_embeddings=8, **{**sizes, **BERT, **changes})
    )


def gpt2(kind: Any) -> Any:
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "bos_token_id": 1, "eos_token_id": 2}
    return kind(GPT2Config(vocab_size=VOCABULARY, **sizes, **GPT2))


def lora() -> Any:
    torch.manual_seed(5)  # the same base each time, as a download would be
    return get_peft_model(bert(), LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]))


def make_task(make_model: Any, *, language: bool = False, padded: bool = True) -> Task:
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(3, VOCABULARY, (120, LENGTH)))
    mask = torch.ones_like(ids)
    if padded:
        mask[::3, 4:], ids[::3, 4:] = 0, 0
    labels = torch.from_numpy(rng.integers(0, 2, 120))
    targets = torch.where(mask > 0, ids, -100) if language else labels
    records = Examples({"input_ids": ids, "attention_mask": mask}, targets)
    return Task(
        name="text",
        make_model=make_model,
        pool=records[:100],
        test=records[100:],
        recipe=Recipe(dataset_size=MEMBERS, batch_size=8, num_steps=6, learning_rate=0.5, sampling="shuffled"),
        loss=next_token_loss if language else cross_entropy,
    )


def fresh(task: Task) -> Any:
    torch.manual_seed(0)
    return task.make_model()


def optimize(model: Any) -> tuple[Any, Any]:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3, momentum=0.5)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + step))


def trainer_of(task: Task, out: Path, *, own_loss: bool = False, callbacks: Any = (), **arguments: Any) -> Any:
    """(trainer, its recording, the rows that it will draw); members are the first 20 rows."""
    recording = GmipCallback(out, task=task, members=range(MEMBERS), non_members=range(MEMBERS, 2 * MEMBERS))
    settings = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "save_strategy": "no", "max_grad_norm": 0.0}
    settings |= {"use_cpu": True, "report_to": [], "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 3}
    args = TrainingArguments(output_dir=str(out.parent / "trainer"), **{**settings, **arguments})
    data, model = Noted(Records(task.pool)), fresh(task)
    trainer = Trainer(
        model,
        args,
        train_dataset=Subset(data, range(MEMBERS)),
        eval_dataset=Subset(Records(task.pool), range(60, 70)),
        callbacks=[recording, *callbacks],
        optimizers=optimize(model),
        compute_loss_func=recording.mean_loss if own_loss else None,
    )
    return trainer, recording, data.drawn


@pytest.mark.parametrize(
    ("kind", "accumulated", "max_grad_norm", "options"),
    [
        ("bert", 1, 0.05, {}),
        ("bert", 2, None, {}),
        ("gpt2", 2, 0.05, {}),
        ("language", 2, 0.05, {}),
        ("language", 2, None, {"own_loss": True, "padded": True}),
        ("lora", 1, 0.05, {}),
    ],
)
def test_the_trace_of_a_trainer_is_that_of_a_plain_loop(tmp_path, kind, accumulated, max_grad_norm, options):
    made = {
        "bert": bert,
        "gpt2": lambda: gpt2(GPT2ForSequenceClassification),
        "language": lambda: gpt2(GPT2LMHeadModel),
        "lora": lora,
    }[kind]
    language = kind == "language"
    own_loss = options.get("own_loss", False)
    task = make_task(made, language=language, padded=options.get("padded", not language))
    trainer, recording, drawn = trainer_of(
        task,
        tmp_path / "ours",
        own_loss=own_loss,
        gradient_accumulation_steps=accumulated,
        max_grad_norm=max_grad_norm or 0.0,
    )
    trainer.train()
    assert recording.recorder is None
    steps = joined_in(drawn_batches(drawn, 4, MEMBERS), accumulated, 5)
    # Trainer 5.23 divides the loss of a language model by all labels, of which the first predicts nothing; the others
    # add up the means of accumulated batches. The trace holds the mean over the examples of a step.
    divide_by = (lambda count: count * LENGTH / (LENGTH - 1)) if language and not own_loss else (lambda count: 1.0)
    plain_run(
        tmp_path / "plain",
        task,
        fresh(task),
        steps,
        optimize=optimize,
        max_grad_norm=max_grad_norm,
        divide_by=divide_by,
        dataset_size=MEMBERS,
        batch_size=4 * accumulated,
        sampling="shuffled",
        members=range(MEMBERS),
        non_members=range(MEMBERS, 2 * MEMBERS),
    )
    check_same_run(task, tmp_path / "ours", tmp_path / "plain")
    trace = Trace.open(tmp_path / "ours")
    for i, step in enumerate(steps):
        assert sorted(trace.batch_ids(i)) == sorted(row for batch in step for row in batch)
    assert [info.batch_size for info in trace.infos] == ([8, 8, 4] * 2 if accumulated == 2 else [4] * 10)
    if max_grad_norm is not None:
        assert all(info.clip_factor is not None and info.clip_factor <= 1.0 for info in trace.infos)
        assert any(info.clip_factor != 1.0 for info in trace.infos)
    if kind == "lora":
        assert all("lora" in spec.name or "classifier" in spec.name for spec in trace.header.parameters)
        assert trace.header.num_params == sum(p.numel() for p in lora().parameters() if p.requires_grad)


def test_the_trace_ends_with_the_best_model_and_early_stopping_ends_it(tmp_path):
    task = make_task(bert)
    stopping = EarlyStoppingCallback(early_stopping_patience=1)
    trainer, _, _ = trainer_of(
        task, tmp_path / "run", num_train_epochs=6, eval_strategy="epoch", save_strategy="epoch",
        load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=True, callbacks=[stopping],
    )  # fmt: skip
    trainer.train()
    trace = Trace.open(tmp_path / "run")
    final = trace.final_arrays()
    assert final is not None and trace.complete and trace.num_steps < 30
    for name, value in trainer.model.state_dict().items():
        np.testing.assert_array_equal(final[name], value.numpy())
    best = int(trainer.state.best_model_checkpoint.rpartition("-")[2])
    assert best < trace.num_steps  # so that the best is not the last
    released = np.concatenate([final[spec.name].ravel() for spec in trace.header.parameters])
    np.testing.assert_array_equal(released, trace[best].parameters)


def test_training_that_goes_on_from_a_checkpoint_goes_on_with_its_trace(tmp_path):
    task = make_task(bert)
    whole, _, _ = trainer_of(task, tmp_path / "whole")
    whole.train()
    first, _, _ = trainer_of(task, tmp_path / "parts", save_strategy="steps", save_steps=6, max_steps=7)
    first.train()
    second, _, _ = trainer_of(task, tmp_path / "parts")
    second.train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-6"))
    whole_trace, parts = Trace.open(tmp_path / "whole"), Trace.open(tmp_path / "parts")
    assert parts.num_steps == whole_trace.num_steps == 10 and parts.complete
    for one, other in zip(parts, whole_trace, strict=True):
        np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-6)


def test_lira_on_a_model_of_transformers(tmp_path):
    task = make_task(bert)
    task = replace(task, recipe=task.recipe.replace(batch_size=4, num_steps=10))
    trainer, _, _ = trainer_of(task, tmp_path / "run")
    trainer.train()
    shadows = Shadows(count=4, folder=tmp_path / "shadows", workers=1)
    scores = LiRA(shadows=shadows, online=False).run(task, Trace.open(tmp_path / "run"))
    assert len(scores.scores) == 2 * MEMBERS and np.isfinite(scores.scores).all()


def test_gradients_of_a_padded_batch_are_those_of_each_example_alone():
    for made, language in ((bert, False), (lambda: gpt2(GPT2LMHeadModel), True)):
        task = make_task(made, language=language)
        model, some = fresh(task).double(), task.pool[:5]
        rows = PerExampleGradients(model, task.loss).rows(some)
        for i in range(5):
            one = some[i : i + 1]
            loss = task.loss(model(**one.inputs).logits, one.targets).sum()
            found = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
            torch.testing.assert_close(rows[i], torch.cat([g.flatten() for g in found]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("made", "arguments", "says"),
    [
        ("bert", {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 2}, "batches of 6, 2 examples"),
        ("language", {}, "mean over tokens, and sequences differ in length"),
        ("bert", {"label_smoothing_factor": 0.1}, "computed outside the model"),
        ("other loss", {}, "where the mean of the task's loss"),
        ("dropout", {}, "drops units at random while it trains"),
    ],
)  # fmt: skip
def test_what_an_audit_could_not_repeat_is_said(tmp_path, made, arguments, says):
    if made == "language":
        task = make_task(lambda: gpt2(GPT2LMHeadModel), language=True)
    else:
        task = make_task((lambda: bert(hidden_dropout_prob=0.1)) if made == "dropout" else bert)
    if made == "other loss":
        task = replace(task, loss=lambda outputs, targets: 2.0 * cross_entropy(outputs, targets))
    trainer, _, _ = trainer_of(task, tmp_path / "run", num_train_epochs=1, **arguments)
    with pytest.warns(GmipWarning, match=says):
        trainer.train()
    assert Trace.open(tmp_path / "run").complete


def test_several_processes_are_refused(tmp_path):
    recording = GmipCallback(tmp_path / "run", task=make_task(bert))
    with pytest.raises(UnsupportedModel, match="records one process, and this Trainer uses 2"):
        recording.on_train_begin(SimpleNamespace(world_size=2, n_gpu=0), None, None)


@pytest.mark.parametrize("name", ["transformers_trainer.py", "lora_language_model.py"])
def test_examples(name, tmp_path):
    check_example(name, tmp_path / "run")
