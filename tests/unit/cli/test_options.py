"""Options made from settings; targets, the run, and the one line on what an answer is."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.main import get_command
from typer.testing import CliRunner

import gmip
from gmip.cli import _PANELS, show
from gmip.cli import app as commands
from gmip.cli.options import Count, Delta, Option, Seed, Settings, from_settings, names_of
from gmip.cli.shared_settings import RunSettings, TargetSettings, _workplace
from gmip.errors import InvalidArgument
from gmip.report.account_words import at_most, found, target_sentence, target_shown
from tests.e2e.cli import CLIPPED, PAPER


class Asked(Settings):
    where: Annotated[str, Option("FOLDER", argument=True), Field(description="A folder.")]
    num_steps: Annotated[Count, Option("K"), Field(description="How many.")] = 12
    seed: Annotated[Seed | None, Option("SEED"), Field(description="A seed.")] = None
    delta: Annotated[Delta | None, Option("D"), Field(description="A delta.")] = None
    rates: Annotated[tuple[Delta, ...], Option("R"), Field(description="Rates.")] = ()
    kind: Annotated[Literal["a", "b"], Option("a|b"), Field(description="One. Or another.")] = "a"
    loud: Annotated[bool, Option(), Field(description="Whether.")] = False
    own: Annotated[int | None, Option("X", None, lambda option, text: len(text))] = None
    hidden: float = 0.5


def asked(*argv: str) -> Asked:
    seen: list[Asked] = []
    app = typer.Typer()
    app.command()(from_settings(Asked)(seen.append))
    done = CliRunner().invoke(app, list(argv), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return seen[0]


def test_fields_become_options_and_text_their_values():
    assert asked("here") == Asked(where="here")
    typed = ["here", "--steps", "1e3", "--seed", "0", "--delta", "0.1", "--rates", "0.1", "--rates", "0.2"]
    got = asked(*typed, "--kind", "b", "--loud", "--own", "four")
    assert got == Asked(
        where="here",
        num_steps=1000,
        seed=0,
        delta=0.1,
        rates=(0.1, 0.2),
        kind="b",
        loud=True,
        own=4,
    )
    assert got.model_fields_set == {*names_of(Asked), "where", "typed"}
    assert "hidden" not in names_of(Asked)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--steps", "0"], "--steps must be a whole number from 1"),
        (["--seed", "-1"], "--seed must be a whole number from 0"),
        (["--delta", "1"], "--delta must be a number between 0 and 1"),
        (["--kind", "c"], "--kind must be one of a, b"),
        (["--rates", "1"], "--rates must be a number between 0 and 1"),
    ],
)
def test_what_cannot_be_read_names_its_option(argv, words):
    with pytest.raises(InvalidArgument, match=words):
        asked("here", *argv)


def test_the_help_has_descriptions_and_defaults():
    made = get_command(_one(Asked))
    told = {parameter.name: getattr(parameter, "help", None) for parameter in made.params}
    assert told["num_steps"] == "How many (default 12)."
    assert told["kind"] == "One. Or another. Default: a."
    assert told["seed"] == "A seed."


def _one(settings: type[Settings]) -> typer.Typer:
    app = typer.Typer()
    app.command()(from_settings(settings)(lambda asked: None))
    return app


def test_every_option_is_described():
    group: Any = get_command(commands)
    for name in _PANELS:
        for parameter in group.get_command(None, name).params:
            assert parameter.help and parameter.help.endswith((".", "?")), (name, parameter.name)


def test_settings_have_the_names_of_what_they_make():
    sizes = {field.name for field in dataclasses.fields(gmip.NoisySGD)} - {
        "rank",
        "drop_last",
        "noise_std",
        "max_batch_size",
        "shaped_noise",
    }
    assert sizes <= set(RunSettings.model_fields)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4", {"workers": 4}),
        ("dask://10.0.0.1:8786", {"backend": "dask", "scheduler_address": "tcp://10.0.0.1:8786"}),
        ("ray://auto", {"backend": "ray"}),
        ("ray://head:10001", {"backend": "ray", "scheduler_address": "ray://head:10001"}),
    ],
)
def test_workers_are_a_number_or_an_address(text, found):
    assert _workplace("--workers", text) == found


@pytest.mark.parametrize("text", ["0", "many", "spark://a", "dask://"])
def test_other_workers_are_refused(text):
    with pytest.raises(InvalidArgument, match="--workers must be"):
        _workplace("--workers", text)


GIVEN = ["mu=0.4", "tpr=0.05@0.01", "advantage=0.1", "epsilon=3@1e-06"]


def made(given: str) -> gmip.PrivacyTarget:
    return TargetSettings(target=gmip.PrivacyTarget.parse("--target", given)).wanted()


@pytest.mark.parametrize(
    ("given", "answer", "shown"),
    [
        (GIVEN[0], {"mu": 0.4}, "0.201"),
        (GIVEN[1], {"tpr": 0.05, "fpr": 0.01}, "20.1%"),
        (GIVEN[2], {"advantage": 0.1}, "20.1%"),
        (GIVEN[3], {"epsilon": 3.0, "delta": 1e-6}, "0.201"),
    ],
)
def test_a_target_says_its_measure_rounded_up(given, answer, shown):
    assert show.target_as_json(made(given)) == answer
    assert target_shown(made(given), 0.20001) == shown


def test_a_target_measures_the_curve():
    curve = gmip.account(PAPER)
    measured = [curve.exposure(made(given)) for given in GIVEN]
    assert measured == [curve.equivalent_mu(), curve.tpr_at(0.01), curve.advantage(), curve.epsilon(1e-6)]


@pytest.mark.parametrize("given", GIVEN)
def test_a_target_says_at_most_only_of_a_bound(given):
    assert "at most" in target_sentence(made(given), gmip.account(PAPER, susceptibility=900.0))
    assert "at most" not in target_sentence(made(given), gmip.account(PAPER))


def test_what_is_wrong_is_data():
    with pytest.raises(InvalidArgument) as caught:
        TargetSettings().wanted()
    assert caught.value.problem == "No privacy target was given"
    assert caught.value.remedy == "add one, as in --target tpr=0.05@0.01"


@pytest.mark.parametrize("given", GIVEN)
def test_a_target_is_written_as_it_is_read(given):
    assert made(given).text == given


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({}, "A forecast, not a bound."),
        ({"susceptibility": 30.0}, "A bound."),
        ({"susceptibility": [30.0, 40.0]}, "A bound."),
        ({"attacker_knows": 1.0}, "A bound."),
        ({"notion": "gdp"}, "A bound."),
        ({"notion": "gdp", "composition": "clt"}, "A forecast, not a bound."),
    ],
)
def test_one_line_says_what_the_numbers_are(how, kind):
    curve = gmip.account(CLIPPED.replace(noise_std=2.0), **how)
    game = "" if how.get("notion") == "gdp" else f" Compared with: {curve.claim.not_a_member}."
    caveat = "" if curve.claim.caveat is None else f" {curve.claim.caveat}"
    assert (caveat == "") == (how.get("notion") == "gdp" or how.get("attacker_knows") == 1.0)
    assert show.one_line(curve) == f"{kind}{game}{caveat} --explain lists what it assumes."
    assert show.one_line(curve, explained=True) == f"{kind}{game}{caveat} It assumes:"
    assert ("at most" in found(curve, "0.01")) == (at_most(curve) == "at most") == (kind == "A bound.")


def test_the_caveat_is_always_shown():
    curve = gmip.account(PAPER.replace(num_params=100_000))
    assert curve.claim.caveat is not None
    assert curve.claim.caveat in show.one_line(curve)


@pytest.mark.parametrize("name", _PANELS)
def test_the_help_of_a_command_has_an_example_and_no_type_of_ours(name: str) -> None:
    shown = CliRunner().invoke(commands, [name, "--help"], env={"COLUMNS": "100"}).output
    assert "Example" in shown and f"gmip {name}" in shown
    assert "<str>" not in shown and "<bool>" not in shown
