"""Attacks by name, and the table of what they need: the paper's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

from typer import Typer
from typer.testing import CliRunner

from gmip.attacks import LiRA, Shadows, attack_table
from gmip.attacks.attack import RunTraits
from gmip.attacks.attack_table import NEEDS, Need
from gmip.cli.attacks import attacks as command
from gmip.errors import InvalidArgument

DOCS = Path(__file__).parents[3] / "docs" / "attacks.md"

# Table 2 of the paper, without its row "Analytical": Loss, CFD, Loss LRT, CFD LRT, Gradient LRT.
PAPER: dict[Need, str] = {
    "query": "10100",
    "gradients": "00001",
    "recourse": "01010",
    "loss": "10100",
    "population": "00111",
    "labels": "10100",
    "shadows": "00110",
}
COLUMNS = ("loss", "cfd", "lira", "cfd-lrt", "glir")


def invoked(*arguments: str):
    app = Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "140"})


def test_names_and_classes():
    assert attack_table.names()[:3] == ("glir", "decode", "loss")  # as in the table, those on a trace first
    for name in attack_table.names():
        made = attack_table.make(name)
        assert type(made) is attack_table.kind(name) and made.name == name
        assert attack_table.titles()[name] == made.title
    assert set(attack_table.titles()) - set(attack_table.names()) == {"glir-no-noise", "glir-no-clip", "differences"}
    assert all(
        attack_table.kind(name).needs == attack_table.kind("glir").needs for name in ("glir-no-noise", "glir-no-clip")
    )


def test_every_attack_can_be_imported_from_the_package():
    import gmip.attacks

    public = {"Attack", "ShadowAttack", "Shadows"}
    assert {attack_table.kind(name).__name__ for name in attack_table.titles()} == set(gmip.attacks.__all__) - public
    assert dir(gmip.attacks) == sorted(gmip.attacks.__all__)
    for name in gmip.attacks.__all__:
        assert getattr(gmip.attacks, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'glir_scores'"):
        gmip.attacks.glir_scores  # noqa: B018


@pytest.mark.parametrize(
    ("run", "extra"),
    [
        (RunTraits(noisy=False, recorded=False, seeded=True), ()),
        (RunTraits(noisy=False, recorded=True, seeded=True), ("seed",)),
        (RunTraits(noisy=False, recorded=True, seeded=False), ()),
        (RunTraits(noisy=True, recorded=False, seeded=True), ("glir-no-noise", "glir-no-clip")),
        (RunTraits(noisy=True, recorded=True, seeded=True), ("seed", "glir-no-noise", "glir-no-clip", "differences")),
    ],
)
def test_attacks_that_run_unasked(run, extra):
    assert attack_table.default_names([run]) == ("glir", "decode", "loss", *extra)
    own = RunTraits(noisy=False, recorded=False, seeded=True)
    assert attack_table.default_names([run, own]) == (
        "glir",
        "decode",
        "loss",
        *(name for name in extra if name != "seed"),
    )


def test_options_are_those_of_the_class():
    made = attack_table.make("lira", online=False, shadows=Shadows(count=6))
    assert isinstance(made, LiRA) and not made.online and made.plan.count == 6


def test_unknown_names_and_options():
    with pytest.raises(InvalidArgument, match="attack = 'lyra' is not known, did you mean 'lira': pass one of 'glir'"):
        attack_table.make("lyra")
    with pytest.raises(InvalidArgument, match="attack = '' is not known: pass one of"):
        attack_table.make("")
    with pytest.raises(
        InvalidArgument, match="'onlin' is not an option of attack 'rmia', did you mean 'online': pass some of shadows"
    ):
        attack_table.make("rmia", onlin=True)
    with pytest.raises(InvalidArgument, match="'zzz' is not an option of attack 'loss': pass some of device"):
        attack_table.make("loss", zzz=1)


def test_table_is_the_papers():
    rows = {row.what: row.attacks for row in attack_table.table()}
    for need, marks in PAPER.items():
        theirs = {name: mark == "1" for name, mark in zip(COLUMNS, marks, strict=True)}
        if need in ("loss", "labels"):
            theirs["glir"] = True  # as the note says
        assert {name: rows[NEEDS[need]][name] for name in COLUMNS} == theirs
    analytical = attack_table.table()[-1].attacks
    assert [name for name, known in analytical.items() if known] == ["glir"]
    assert "glir_scores" in attack_table.NOTE


def test_the_documents_name_every_attack():
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in attack_table.names() if f"`{name}`" not in text] == []


def test_command_says_what_each_attack_needs():
    result = invoked()
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    rows = attack_table.table()
    for name in attack_table.names():
        needed = [row.what for row in rows[:-1] if row.attacks[name]]
        assert f"{name} {attack_table.kind(name).title} needs {needed[0]}" in words
        assert all(what in words for what in needed)
    assert words.count(f"; {rows[-1].what}") == 1 and attack_table.NOTE in words
    assert all(title in words for title in attack_table.titles().values())


def test_without_torch_a_sentence():
    code = "import sys; sys.modules['torch'] = None\nfrom gmip.cli import main\nsys.exit(main(['attacks']))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr == "gmip attacks needs torch, which is not installed: pip install 'gmip[train]'.\n"
