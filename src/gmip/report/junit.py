"""Verdict and gate as JUnit XML, which build servers show."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from gmip._io import make_folder, write
from gmip.auditing.schema import AuditResult
from gmip.report import check_words, sentences, verdict_words

__all__ = ["write_junit"]


def write_junit(result: AuditResult, path: Path) -> None:
    """One test for each run's verdict (inconclusive, nothing claimed, or a leak to an attacker with a list: skipped,
    not passed), one for the check of its record (what could not be checked: skipped), one for each gate (that could not
    fail: skipped; that passed: with what it would have noticed). The folder is made if it is not there."""
    suite = ElementTree.Element("testsuite", name=_clean(result.title))
    counts = {"tests": 0, "failures": 0, "skipped": 0}
    for run in result.runs:
        case = ElementTree.SubElement(suite, "testcase", classname="gmip.audit", name=_clean(f"{run.name}: verdict"))
        counts["tests"] += 1
        if run.verdict.kind == "exposed":
            ElementTree.SubElement(case, "failure", message=_clean(verdict_words.headline(run)))
            counts["failures"] += 1
        elif run.verdict.kind in ("inconclusive", "measured") or run.verdict.list_leak is not None:
            ElementTree.SubElement(case, "skipped", message=_clean(verdict_words.headline(run)))
            counts["skipped"] += 1
        if run.check is not None:
            case = ElementTree.SubElement(suite, "testcase", classname="gmip.audit", name=_clean(f"{run.name}: record"))
            counts["tests"] += 1
            if not run.check.passed:
                ElementTree.SubElement(case, "failure", message=_clean(check_words.headline(run.check)))
                counts["failures"] += 1
            elif run.check.unchecked:
                ElementTree.SubElement(case, "skipped", message=_clean(" ".join(check_words.unchecked(run.check))))
                counts["skipped"] += 1
        if run.gate is None:
            continue
        case = ElementTree.SubElement(suite, "testcase", classname="gmip.audit", name=_clean(f"{run.name}: gate"))
        counts["tests"] += 1
        if not run.gate.passed:
            ElementTree.SubElement(case, "failure", message=_clean(sentences.gate(run, run.gate)))
            counts["failures"] += 1
        elif run.gate.blind:
            ElementTree.SubElement(case, "skipped", message=_clean(sentences.gate(run, run.gate)))
            counts["skipped"] += 1
        else:
            ElementTree.SubElement(case, "system-out").text = _clean(sentences.gate(run, run.gate))
    for name, count in counts.items():
        suite.set(name, str(count))
    make_folder(path.parent, shared=True)
    write(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True), shared=True)


def _clean(text: str) -> str:
    """Without the control characters that XML does not know."""
    return "".join(c for c in text if c in "\t\n" or (c.isprintable() or c == " "))
