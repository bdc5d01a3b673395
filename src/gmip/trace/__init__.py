"""The trace of a training run: what an attacker in federated learning sees of it, on disk. NumPy and safetensors only.

`TraceWriter` records a run step by step, `Trace` reads it back without loading it. The format is described in
docs/trace-format.md.
"""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.trace", "safetensors")

from gmip.trace._manifest import check_indices, check_membership
from gmip.trace.reader import Step, Trace
from gmip.trace.schema import (
    FORMAT_VERSION,
    Header,
    LocalTraining,
    ModelOptions,
    ModelRecord,
    ParameterSpec,
    Provenance,
    ReleasedModel,
    StepInfo,
    fingerprint,
)
from gmip.trace.writer import TraceWriter

__all__ = [
    "FORMAT_VERSION",
    "Header",
    "LocalTraining",
    "ModelOptions",
    "ModelRecord",
    "ParameterSpec",
    "Provenance",
    "ReleasedModel",
    "Step",
    "StepInfo",
    "Trace",
    "TraceWriter",
    "check_indices",
    "check_membership",
    "fingerprint",
]
