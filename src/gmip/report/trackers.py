"""Audits in trackers of experiments: metrics, the verdict as a tag, and a report without records, files and seeds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from gmip.auditing.schema import AuditResult
from gmip.report.evidence import to_metrics, write_for


def log_mlflow(result: AuditResult) -> None:
    """Logs an audit to the active run of MLflow: gmip/<run>/<metric>, a tag with the verdict, and the folder release.

    What is logged names no record, no file and no seed (`gmip.report.share.shareable`).
    """
    import mlflow

    for one in to_metrics(result):
        mlflow.log_metrics({f"gmip/{_plain(one.run)}/{name}": value for name, value in one.numbers.items()})
        mlflow.set_tag(f"gmip.{_plain(one.run)}.verdict", one.verdict)
    with tempfile.TemporaryDirectory() as folder:
        write_for(result, "release", folder)
        mlflow.log_artifacts(str(Path(folder) / "release"), artifact_path="gmip")


def log_wandb(result: AuditResult, run: Any) -> None:
    """Logs an audit to a run of Weights & Biases: the same into its summary, and the folder release as an artifact."""
    import wandb

    for one in to_metrics(result):
        numbers: dict[str, Any] = dict(one.numbers)
        for name, value in (numbers | {"verdict": one.verdict}).items():
            run.summary[f"gmip/{_plain(one.run)}/{name}"] = value
    with tempfile.TemporaryDirectory() as folder:
        write_for(result, "release", folder)
        artifact = wandb.Artifact("gmip-audit", type="report")
        artifact.add_dir(str(Path(folder) / "release"))
        run.log_artifact(artifact)


def _plain(name: str) -> str:
    """A name of characters that both trackers take."""
    return "".join(c if c.isalnum() or c in "-_. " else "_" for c in name) or "run"
