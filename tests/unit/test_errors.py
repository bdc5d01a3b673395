"""Errors are data; sentences are made of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gmip import errors
from gmip.errors import FileError, GmipError, InvalidArgument, TraceError


def shout(name: str) -> str:
    return f"--{name.upper()}"


def test_a_sentence_is_made_of_the_parts():
    error = InvalidArgument("must be positive", argument="noise_std", value=-1.0, remedy="pass a number above 0")
    assert str(error) == "noise_std = -1.0 must be positive: pass a number above 0."
    assert (error.problem, error.argument, error.value, error.remedy) == (
        "must be positive",
        "noise_std",
        -1.0,
        "pass a number above 0",
    )


@pytest.mark.parametrize(
    ("error", "plain", "spelled"),
    [
        (GmipError("It broke"), "It broke.", "It broke."),
        (GmipError("It broke.", remedy="fix `that`."), "It broke: fix that.", "It broke: fix --THAT."),
        (GmipError("is NaN", argument="a_b"), "a_b is NaN.", "--A_B is NaN."),
        (GmipError("is", argument="x", value=None), "x = None is.", "--X = None is."),
        (GmipError("exceeds `n` = 3", argument="m", value=4), "m = 4 exceeds n = 3.", "--M = 4 exceeds --N = 3."),
        (GmipError("is odd", argument="text", value="`n`"), "text = '`n`' is odd.", "--TEXT = '`n`' is odd."),
        (GmipError("run `gmip audit --out x`"), "run `gmip audit --out x`.", "run `gmip audit --out x`."),
    ],
)
def test_each_interface_spells_names_in_its_own_way(error, plain, spelled):
    assert (str(error), error.sentence(shout)) == (plain, spelled)


def test_a_large_value_does_not_drown_the_sentence():
    error = InvalidArgument("must be a name", argument="attack", value=np.zeros((50, 50)))
    assert len(str(error)) < 250 and "\n" not in str(error) and str(error).endswith("... must be a name.")
    assert error.value is not None


def test_a_file_error_is_an_os_error_and_no_error_of_traces():
    assert issubclass(FileError, OSError) and issubclass(TraceError, FileError)
    assert not isinstance(FileError("x"), TraceError)


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "GmipWarning"])
def test_errors_cross_processes_with_their_data(name):
    error = getattr(errors, name)("is wrong", argument="a", value=1, remedy="fix `b`")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.sentence(shout)) == (str(error), error.sentence(shout))
    assert (again.argument, again.value, again.remedy) == ("a", 1, "fix `b`")
