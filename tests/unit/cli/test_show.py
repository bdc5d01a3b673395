from __future__ import annotations

import json
import math

import pytest

from gmip.cli import show


def test_no_number_is_no_answer():
    with pytest.raises(OverflowError):
        show.print_json({"mu": math.nan})


def test_infinity_is_a_string_that_programs_read(capsys):
    show.print_json({"mu": math.inf, "all": [{"low": -math.inf}], "one": 1.5})
    assert json.loads(capsys.readouterr().out) == {"mu": "Infinity", "all": [{"low": "-Infinity"}], "one": 1.5}
