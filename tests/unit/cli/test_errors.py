"""Errors of the library in the words of the command line."""

from __future__ import annotations

import pytest

from gmip.cli import _options_of
from gmip.cli.errors import BadRequest, sentence
from gmip.errors import InvalidArgument


@pytest.mark.parametrize(
    ("argv", "known"),
    [
        (["account", "--steps", "3"], {"--steps", "--batch-size"}),
        (["--json", "calibrate"], {"--solve-for", "--target"}),
        (["nonsense"], set()),
        ([], set()),
    ],
)
def test_options_of_a_command(argv, known):
    found = _options_of(argv)
    assert found >= known and (known or not found)


def test_arguments_that_are_options_are_spelled_as_such():
    error = InvalidArgument(
        "exceeds `num_params` = 2, says `recipe`",
        argument="num_steps",
        value=3,
        remedy="lower the steps, or `num_steps`",
    )
    assert str(error) == "num_steps = 3 exceeds num_params = 2, says recipe: lower the steps, or num_steps."
    options = _options_of(["account"])
    assert sentence(error, options) == "--steps = 3 exceeds --params = 2, says recipe: lower the steps, or --steps."
    assert sentence(error) == str(error)


def test_prose_is_left_alone():
    options = _options_of(["account"])
    for text in ("batch_size.npy is missing.", "The rank = 3 of a bound; num_params must be.", "/tmp/noise_std: no."):
        assert sentence(InvalidArgument(text), options) == text


def test_an_error_of_the_command_line_names_its_option():
    error = BadRequest("must be a number,\n not 'x'", argument="--steps", remedy="pass one")
    assert sentence(error, _options_of(["account"])) == "--steps must be a number, not 'x': pass one."


def test_a_value_is_quoted_as_typed():
    error = InvalidArgument("is not known", argument="sampling", value="`rank`")
    assert sentence(error, _options_of(["account"])) == "--sampling = '`rank`' is not known."
