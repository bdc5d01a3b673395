"""Independent jobs in parallel: in this process, in local processes, on Dask or Ray, with the same results."""

from __future__ import annotations

from gmip.parallel.pools import BACKENDS, JobRunner, Workers, compute, job_runner
from gmip.parallel.worker import SharedWork, one_thread

__all__ = ["BACKENDS", "JobRunner", "SharedWork", "Workers", "compute", "job_runner", "one_thread"]
