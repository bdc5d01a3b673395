from __future__ import annotations

import pytest

from gmip.auditing import merged
from tests.unit.report import sample


def test_merging_needs_equal_confidence() -> None:
    audit = sample.consistent()
    (name,) = (run.name for run in audit.runs)
    assert [run.name for run in merged(audit, audit).runs] == [name, f"{name} (2)"]
    with pytest.raises(ValueError, match=r"differ in confidence, 0\.95 and 0\.9"):
        merged(audit, audit.model_copy(update={"confidence": 0.9}))
