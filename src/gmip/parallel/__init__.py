"""Independent jobs in parallel: in this process, in local processes, on Dask or Ray, with the same results."""

from __future__ import annotations

from gmip.parallel.run import compute
from gmip.parallel.settings import BACKENDS, Backend, Workers
from gmip.parallel.worker import Work, one_thread

__all__ = ["BACKENDS", "Backend", "Work", "Workers", "compute", "one_thread"]
