from __future__ import annotations

import json
import math
import warnings

import pytest

from gmip.cli import show
from gmip.errors import GmipWarning


def test_no_number_is_no_answer():
    with pytest.raises(OverflowError):
        show.print_json({"mu": math.nan})


def test_infinity_is_a_string_that_programs_read(capsys):
    show.print_json({"mu": math.inf, "all": [{"low": -math.inf}], "one": 1.5})
    assert json.loads(capsys.readouterr().out) == {"mu": "Infinity", "all": [{"low": "-Infinity"}], "one": 1.5}


def test_a_warning_is_said_once(capsys):
    with show.warnings_in_one_line():
        for text in ("one\nline", "another", "one line"):
            warnings.warn(text, GmipWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: one line\nWarning: another\n"
