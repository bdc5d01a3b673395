"""Min-K% and the ratio to the base model, on models of transformers made from a configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="models of transformers need the extra gmip[transformers]")

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from gmip.attacks import Decode, Loss, MinK, Reference, Window, loss
from gmip.errors import GmipError, InvalidArgument
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task, cross_entropy
from gmip.tasks.inputs import answer, masked_token_loss, next_token_loss
from gmip.trace import Trace
from gmip.training import record
from gmip.vocabulary import Recipe

# peft 0.21 asks transformers 5.23 for a name of before.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

VOCABULARY, LENGTH, MEMBERS, MASK = 30, 8, 24, 1
GPT2: dict[str, Any] = {"n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
BERT: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def gpt2() -> Any:
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, pad_token_id=0, **GPT2, **dropout))


def lora() -> Any:
    torch.manual_seed(5)  # the same base each time, as a download would be
    adapters = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    return get_peft_model(gpt2(), adapters)


def bert(kind: Any) -> Any:
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return kind(BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **BERT, **dropout))


def text_task(kind: str) -> Task:
    """Random tokens, a third of the sequences padded: what is known about members is learnt by heart."""
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(3, VOCABULARY, (220, LENGTH)))
    mask = torch.ones_like(tokens)
    mask[::3, 5:], tokens[::3, 5:] = 0, 0
    inputs, targets = tokens, torch.where(mask > 0, tokens, -100)
    if kind == "masked":  # two tokens are hidden, the same ones each time
        hidden = torch.zeros_like(mask, dtype=torch.bool)
        hidden[:, 1:5:3] = True
        inputs, targets = torch.where(hidden, MASK, tokens), torch.where(hidden, tokens, -100)
    if kind == "classes":
        targets = torch.from_numpy(rng.integers(0, 2, 220))
    made = {
        "causal": (gpt2, next_token_loss),
        "lora": (lora, next_token_loss),
        "masked": (lambda: bert(BertForMaskedLM), masked_token_loss),
        "classes": (lambda: bert(BertForSequenceClassification), cross_entropy),
    }
    records = Examples({"input_ids": inputs, "attention_mask": mask}, targets)
    return Task(
        name=kind,
        make_model=made[kind][0],
        pool=records[:200],
        test=records[200:],
        recipe=Recipe(dataset_size=MEMBERS, batch_size=MEMBERS, num_steps=40, learning_rate=0.01, sampling="full"),
        loss=made[kind][1],
    )


def fine_tuned(task: Task, folder: Path, *, steps: int = 40, **options: Any) -> tuple[Trace, Any, Any]:
    """(a run on the first records, the model before it, and after)"""
    torch.manual_seed(0)
    model, before = task.make_model().train(), task.make_model()
    before.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=task.recipe.learning_rate)
    who = {"members": range(MEMBERS), "non_members": range(MEMBERS, 2 * MEMBERS)}
    sizes = {"dataset_size": MEMBERS, "batch_size": MEMBERS, "sampling": "full"}
    inside = task.pool[range(MEMBERS)]
    with record(model, optimizer, folder, data=task, **who, **sizes, **options):
        for _ in range(steps):
            optimizer.zero_grad()
            task.loss(answer(model, inside.inputs), inside.targets).mean().backward()
            optimizer.step()
    return Trace.open(folder), before.eval(), model.eval()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    tasks = {kind: text_task(kind) for kind in ("causal", "lora", "masked", "classes")}
    return {kind: (task, *fine_tuned(task, folder / kind)) for kind, task in tasks.items()}


def by_hand(task: Task, model: Any, row: int, percent: float, shift: int) -> float:
    """The mean of the smallest log-probabilities, token by token."""
    one = task.pool[[row]]
    with torch.no_grad():
        logs = answer(model, one.inputs)[0].double().log_softmax(1)
    labels = one.targets[0].tolist()
    known = sorted(float(logs[t - shift, y]) for t, y in enumerate(labels) if y != -100 and t >= shift)
    return float(np.mean(known[: max(1, int(len(known) * percent / 100 + 1e-9))]))


@pytest.mark.parametrize(("kind", "shift"), [("causal", 1), ("lora", 1), ("masked", 0)])
@pytest.mark.parametrize("percent", [20.0, 50.0])
def test_min_k_is_the_mean_of_the_least_likely_tokens(runs, kind, shift, percent):
    task, trace, _, model = runs[kind]
    found = MinK(percent=percent).run(task, trace)
    expected = [by_hand(task, model, row, percent, shift) for row in found.ids]
    np.testing.assert_allclose(found.scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_all_tokens_are_the_loss(runs, kind):
    task, trace, *_ = runs[kind]
    everything, loss = MinK(percent=100).run(task, trace), Loss().run(task, trace)
    np.testing.assert_allclose(everything.scores, loss.scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["causal", "lora", "masked", "classes"])
def test_the_ratio_is_the_loss_before_minus_the_loss_after(runs, kind):
    task, trace, before, after = runs[kind]
    found = Reference().run(task, trace)
    one = task.pool[found.ids]
    with torch.no_grad():
        old, new = (task.loss(answer(model, one.inputs), one.targets).double().numpy() for model in (before, after))
    np.testing.assert_allclose(found.scores, old - new, rtol=1e-4, atol=1e-5)
    assert np.abs(old - new).max() > 0.01


def token_gains(task: Task, before: Any, after: Any, row: int, shift: int) -> list[float]:
    """By how much training made each token likelier."""
    one = task.pool[[row]]
    with torch.no_grad():
        old, new = (answer(model, one.inputs)[0].double().log_softmax(1) for model in (before, after))
    labels = one.targets[0].tolist()
    return [float(new[t - shift, y] - old[t - shift, y]) for t, y in enumerate(labels) if y != -100 and t >= shift]


@pytest.mark.parametrize(("kind", "shift"), [("causal", 1), ("lora", 1), ("masked", 0)])
def test_windows_vote(runs, kind, shift):
    task, trace, before, after = runs[kind]
    found = Window().run(task, trace)
    for row, score in zip(found.ids, found.scores, strict=True):
        gains = token_gains(task, before, after, row, shift)
        shares = []
        for size in (2, 3, 4, 5, 8, 11):  # the texts are shorter than the larger windows
            votes = [sum(gains[first : first + size]) > 0 for first in range(len(gains) - size + 1)]
            shares += [np.mean(votes)] if votes else []
        assert score == pytest.approx(np.mean(shares), abs=0.02)


@pytest.mark.parametrize("kind", ["causal", "masked", "classes"])
def test_members_are_found_and_strangers_are_not(runs, kind):
    task, trace, *_ = runs[kind]
    attacks = [Reference()] if kind == "classes" else [Reference(), MinK(), Window()]
    strangers = np.arange(2 * MEMBERS, 200)
    first = np.random.default_rng(1).random(len(strangers)) < 0.5
    error = np.sqrt((1.0 / first.sum() + 1.0 / (~first).sum()) / 12.0)
    for attack in attacks:
        found = attack.run(task, trace)
        assert auc(found.scores[found.ids < MEMBERS], found.scores[found.ids >= MEMBERS]) > 0.75
        null = attack.run(task, trace, strangers).scores
        assert abs(auc(null[first], null[~first]) - 0.5) < 4.0 * error


@pytest.mark.parametrize("kind", ["causal", "lora", "masked", "classes"])
def test_a_list_decodes_their_gradients(runs, kind):
    task, trace, *_ = runs[kind]
    found = Decode(steps=(0, 1)).run(task, trace)
    assert auc(found.scores[found.ids < MEMBERS], found.scores[found.ids >= MEMBERS]) > 0.95


def test_the_base_model_from_a_file(runs, tmp_path):
    task, trace, before, after = runs["causal"]
    before.save_pretrained(tmp_path / "base")
    expected = Reference().run(task, trace).scores
    given = Reference(base=str(tmp_path / "base"))
    np.testing.assert_allclose(given.run(task, trace).scores, expected, rtol=1e-5, atol=1e-6)
    after.save_pretrained(tmp_path / "base")
    other = Reference(base=str(tmp_path / "base"))
    assert repr(other) != repr(given)  # an audit that kept the scores of the one does not take them for the other's
    np.testing.assert_allclose(other.run(task, trace).scores, 0.0, atol=1e-6)
    save_file({"wrong": torch.zeros(2)}, tmp_path / "wrong.safetensors")
    with pytest.raises(InvalidArgument, match="is of another model than the task makes: it has 'wrong'"):
        Reference(base=str(tmp_path / "wrong.safetensors")).run(task, trace)
    with pytest.raises(GmipError, match=r"nowhere\.safetensors"):
        Reference(base=str(tmp_path / "nowhere.safetensors"))


def test_a_trace_without_the_base_model(runs, tmp_path):
    """Only some parameters are recorded."""
    task = runs["causal"][0]
    trace, *_ = fine_tuned(task, tmp_path / "a", steps=2, parameters=["transformer.wpe.weight"])
    with pytest.raises(InvalidArgument, match="does not hold the model that training began with: pass its weights as"):
        Reference().run(task, trace)


def test_what_min_k_is_not_for(runs):
    task, trace, *_ = runs["classes"]
    with pytest.raises(InvalidArgument, match=r"single tokens, and task 'classes' has answers of shape \(2,\)"):
        MinK().run(task, trace)
    task, trace, *_ = runs["causal"]
    doubled = replace(task, loss=lambda logits, labels: 2.0 * next_token_loss(logits, labels))
    with pytest.raises(InvalidArgument, match="neither the mean over next tokens nor"):
        MinK().run(doubled, trace)
    with pytest.raises(InvalidArgument, match="percent = 101"):
        MinK(percent=101)
    with pytest.raises(InvalidArgument, match="percent = 0"):
        MinK(percent=0)


def test_sequences_in_which_nothing_is_asked_for(runs):
    task, _, _, model = runs["causal"]
    some = task.pool[range(3)]
    some.targets[1] = -100
    scores = MinK()._least_likely(task, model, some)
    assert scores[1] == 0.0 and (scores[[0, 2]] < 0.0).all()


def test_numbers_that_are_none(runs, monkeypatch):
    task, trace, *_ = runs["causal"]
    found = iter([np.array([1.0, np.inf, 2.0]), np.array([np.inf, np.inf, 5.0])])
    monkeypatch.setattr(loss, "losses", lambda *_: next(found))
    scores = Reference().run(task, trace, candidates=[5, 6, 7]).scores
    assert np.isfinite(scores).all() and scores[1] == 0.0 and scores.argmax() == 0
