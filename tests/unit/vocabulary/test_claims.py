"""Kinds: what is made of numbers of different kinds."""

from __future__ import annotations

from gmip.vocabulary import weakest


def test_one_forecast_makes_a_forecast() -> None:
    assert weakest(["bound", "bound"]) == "bound"
    assert weakest(["bound", "forecast", "bound"]) == "forecast"
