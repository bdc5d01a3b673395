"""Audits in MLflow and Weights & Biases, read back by the libraries themselves, where they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gmip.report import evidence
from tests.unit.report import sample


def test_mlflow_reads_back_numbers_verdict_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with mlflow.start_run() as active:
        evidence.log_mlflow(sample.exposed())
    found = mlflow.get_run(active.info.run_id).data
    (one,) = evidence.to_metrics(sample.exposed())
    assert {f"gmip/{one.run}/{name}": value for name, value in one.numbers.items()} == found.metrics
    assert found.tags[f"gmip.{one.run}.verdict"] == one.verdict
    assert {path.name for path in tmp_path.rglob("artifacts/gmip/*")} == {"report.html", "summary.html", "report.md"}


def test_wandb_gets_numbers_verdict_and_report_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    run = wandb.init(project="gmip", mode="offline")
    evidence.log_wandb(sample.exposed(), run)
    (one,) = evidence.to_metrics(sample.exposed())
    assert {name: run.summary[f"gmip/{one.run}/{name}"] for name in one.numbers} == one.numbers
    assert run.summary[f"gmip/{one.run}/verdict"] == one.verdict
    run.finish()
    assert list(tmp_path.rglob("*.wandb"))
