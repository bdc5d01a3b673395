"""The calculator's form: what it reads, and which field a complaint is about."""

from __future__ import annotations

import pytest

from gmip.app.calculator import FIELDS, PRESETS, BadField, Question

FORM = PRESETS["cifar10"] | {"tpr": "0.03"}


def test_a_preset_is_the_papers_run():
    question = Question.read(FORM)
    run = question.run
    assert (run.dataset_size, run.batch_size, run.num_steps, run.num_params) == (48_000, 400, 1_200, 650)
    assert (question.tpr, question.fpr, question.record, question.follow) == (0.03, 0.01, None, "noise")


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_reads_and_names_every_field(preset):
    assert set(PRESETS[preset]) == set(FIELDS)
    Question.read(PRESETS[preset])


def test_numbers_as_people_write_them():
    run = Question.read(FORM | {"dataset_size": "48,000", "num_params": "1e6", "batch_size": " 400 "}).run
    assert (run.dataset_size, run.num_params, run.batch_size) == (48_000, 1_000_000, 400)


def test_what_is_kept_sets_the_steps():
    half = FORM | {"batch_size": "800"}
    assert Question.read(half).run.num_steps == 600
    assert Question.read(half | {"keep": "steps", "num_steps": "1200"}).run.num_steps == 1_200


def test_an_empty_clipping_norm_is_none():
    assert Question.read(FORM | {"clip_norm": ""}).run.clip_norm is None


@pytest.mark.parametrize(("text", "record"), [("any", "any"), ("any-constant", "any-constant"), ("900", 900.0)])
def test_records(text, record):
    assert Question.read(FORM | {"record": text}).record == record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset_size", ""),
        ("dataset_size", "1.5"),
        ("dataset_size", "nan"),
        ("dataset_size", "1e308"),
        ("batch_size", "-1"),
        ("batch_size", "50000"),
        ("num_params", "1" * 41),
        ("epochs", "1e300"),
        ("epochs", "inf"),
        ("clip_norm", "0"),
        ("clip_norm", "5e-324"),
        ("noise_std", "-1"),
        ("sampling", "random"),
        ("record", "nobody"),
        ("record", "-3"),
        ("attacker_knows", "1.2"),
        ("tpr", "0"),
        ("fpr", "1"),
        ("keep", "time"),
        ("follow", ""),
    ],
)
def test_a_mistake_is_a_sentence_at_its_field(field, value):
    with pytest.raises(BadField) as caught:
        Question.read(FORM | {field: value})
    assert caught.value.field == field
    assert caught.value.sentence.endswith(".")
    assert FIELDS[field] in caught.value.sentence


def test_what_is_no_text_is_refused():
    with pytest.raises(BadField) as caught:
        Question.read(FORM | {"dataset_size": 48_000})
    assert caught.value.field == "dataset_size"
    with pytest.raises(BadField, match="no field 'colour'"):
        Question.read(FORM | {"colour": "blue"})


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_a_task_of_the_command_line(name: str):
    """Loaded where that is cheap; else by what the tests of tasks know."""
    from tests.unit.tasks.test_catalog_builtin import EXPECTED

    question = Question.read(PRESETS[name])
    assert question.run.num_params == EXPECTED[name][2] and set(PRESETS) == set(EXPECTED)
    if name in ("digits", "breast-cancer"):
        from gmip.tasks.catalog import load

        recipe = load(name).recipe
        for field in ("dataset_size", "batch_size", "num_steps", "clip_norm", "sampling"):
            assert getattr(question.run, field) == getattr(recipe, field), field
