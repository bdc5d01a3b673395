"""What `import gmip` and `gmip account` load, and what is public."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gmip
from gmip import errors
from gmip.attacks import attack_table


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def loaded_by(code: str) -> set[str]:
    """Modules that a fresh Python has loaded after `code`, whose own output is dropped."""
    return set(
        run_python("-c", f"{code}\nimport sys; print('\\n#\\n' + '\\n'.join(sys.modules))").stdout.split("#")[1].split()
    )


def test_import_waits_for_what_is_used():
    own = {name for name in loaded_by("import gmip") if name.partition(".")[0] == "gmip"}
    assert own == {"gmip", "gmip._lazy"}
    assert not {"numpy", "scipy", "torch", "typer", "rich", "pydantic"} & loaded_by("import gmip")
    loaded = loaded_by("import gmip; gmip.account, gmip.calibrate, gmip.NoisySGD, gmip.GmipError")
    assert "numpy" in loaded
    assert not {"torch", "safetensors", "scipy.stats", "dp_accounting", "typer", "rich", "matplotlib"} & loaded


@pytest.mark.parametrize("module", ["gmip.cli", "gmip.__main__"])
def test_command_line_waits_for_its_command(module):
    assert not {"torch", "scipy", "gmip.accounting", "rich"} & loaded_by(f"import {module}")


def test_account_loads_no_framework():
    sizes = "'--dataset-size', '1000', '--batch-size', '100', '--steps', '10', '--params', '650'"
    loaded = loaded_by(f"from gmip.cli import main; assert main(['account', {sizes}]) == 0")
    assert "gmip.accounting.account" in loaded
    assert not {"torch", "opacus", "sklearn", "matplotlib", "scipy.stats", "dp_accounting", "gmip.auditing"} & loaded


def test_an_audit_of_scores_loads_no_framework(tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("member,score\n" + "".join(f"{i % 2},{i * 7 % 10}\n" for i in range(40)))
    audit = f"main(['audit', {str(scores)!r}, '--out', {str(tmp_path / 'out')!r}])"
    loaded = loaded_by(f"from gmip.cli import main; assert {audit} == 0")
    assert "gmip.auditing.sources.table_sources" in loaded and (tmp_path / "out" / "report.html").exists()
    extras = {"torch", "opacus", "sklearn", "safetensors", "xxhash", "joblib", "cloudpickle", "matplotlib", "pandas"}
    assert not (extras | {"gmip.auditing.attack_runs", "gmip.tasks"}) & loaded  # the base install is enough
    loaded = loaded_by("import gmip; gmip.audit(gmip.Predictions([1, 1, 0, 0], losses=[1.0, 2.0, 3.0, 4.0]))")
    assert not {"torch", "opacus", "sklearn", "typer"} & loaded


BASE = """
import sys
EXTRAS = "torch safetensors opacus sklearn xxhash joblib cloudpickle threadpoolctl pooch lightning transformers flwr"

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS.split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import gmip
from gmip.cli import main
"""


def test_scores_are_audited_where_no_framework_is_installed(tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("member,score\n" + "".join(f"{i % 2},{i * 7 % 10}\n" for i in range(40)))
    audit = f"main(['audit', {str(scores)!r}, '--out', {str(tmp_path / 'out')!r}])"
    run_python("-c", f"{BASE}\nassert {audit} == 0")
    assert (tmp_path / "out" / "report.html").exists()


def test_the_base_install_names_the_extra_in_one_sentence(tmp_path):
    code = """
MORE = ("opacus", "transformers", "lightning", "flower", "federated")
for command in ("train", "tune", "check", "audit", "init", "attacks"):
    more = {"train": ["--out", "a"], "tune": ["--target", "mu=1"], "check": ["a", "--task", "digits"]}
    more["init"] = ["t.py", "--data", "a.csv", "--model", "net.py:Net"]
    code = main([command, *more.get(command, [])])
    print(command, code, flush=True)
for name in ("record", "train", "tune", "Trace", "Task", "check_run"):
    try:
        getattr(gmip, name)
    except ImportError as error:
        print(error)
for name in ("training", "tasks", "trace", *(f"integrations.{one}" for one in MORE)):
    try:
        __import__(f"gmip.{name}")
    except ImportError as error:
        print(error)
for call in (lambda: gmip.tasks.load("digits"), lambda: gmip.audit("digits")):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", BASE + code], capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[:6] == [f"{name} 2" for name in ("train", "tune", "check", "audit", "init", "attacks")]
    said = done.stderr.splitlines()
    assert len(said) == 6 and all(" needs torch, which is not installed: pip install 'gmip[" in line for line in said)
    extras = [line.rsplit("which is not installed: pip install 'gmip[")[-1] for line in lines[6:]]
    assert extras == ["train]'."] * 10 + ["transformers]'.", "lightning]'.", "flower]'."] + ["train]'."] * 3


def test_the_base_install_writes_settings_and_audits_an_estimator(tmp_path):
    code = """
assert main(["init"]) == main(["audit", "--help"]) == main(["--help"]) == 0

class Model:
    def fit(self, X, y):
        self.seen = {row.tobytes() for row in X}
        return self

    def predict_proba(self, X):
        known = np.array([0.9 if row.tobytes() in self.seen else 0.6 for row in X])
        return np.stack([known, 1.0 - known], 1)

X = np.random.default_rng(0).random((60, 3))
result = gmip.audit(gmip.Estimator(Model, X, np.zeros(60, int) + (X[:, 0] > 0.5)))
assert result.runs[0].attacks
"""
    subprocess.run([sys.executable, "-c", BASE + code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "audit.yaml").read_text().startswith("# Settings of a membership audit")


def test_only_noisy_training_loads_opacus():
    pytest.importorskip("torch", reason="training needs the extra gmip[train]")
    code = "import gmip.training, gmip.auditing.attack_runs, sys; print('opacus' in sys.modules)"
    assert run_python("-c", code).stdout.split() == ["False"]


def test_all_is_sorted_and_true():
    assert sorted(set(gmip.__all__)) == gmip.__all__ == dir(gmip)
    assert set(gmip.__all__) == {
        *(
            "NoisySGD",
            "Rate",
            "account",
            "calibrate",
            "TradeOff",
            "Gaussian",
            "EpsilonDelta",
            "PiecewiseLinear",
        ),
        "check_run",
        "compose",
        *(
            "Task",
            "Recipe",
            "Examples",
            "Trace",
            "record",
            "train",
            "tune",
            "PrivacyTarget",
            "audit",
            "AuditResult",
        ),
        *("Checkpoints", "Deleted", "Estimator", "Predictions", "Recorded", "Released", "Scores", "ToTrain"),
        "write_report",
        *({*errors.__all__} - {"TraceMismatch"}),
        "__version__",
    }
    for name in gmip.__all__:
        assert getattr(gmip, name) is getattr(gmip, name), name


def test_every_attack_is_public():
    made = {attack_table.kind(name) for name in attack_table.titles()}
    assert made <= {getattr(gmip.attacks, name) for name in gmip.attacks.__all__}


def test_readers_and_mypy_see_the_same_names():
    """The imports under TYPE_CHECKING, which run never, against the table that serves them."""
    tree = ast.parse(Path(gmip.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen.items() <= gmip._HOMES.items()
    assert set(seen) == set(gmip._HOMES)


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="module 'gmip' has no attribute 'acount'"):
        gmip.acount  # noqa: B018
    assert gmip.tasks.names()[0] == "digits"


def test_version_is_a_string():
    assert isinstance(gmip.__version__, str)
    assert gmip.__version__[0].isdigit()
