"""Reports a run to continuous integration: as a JUnit file, and as a summary on GitHub Actions."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.record import EvaluationRecord, Status
from harness.report.markdown_tables import table
from harness.report.table import place_of
from harness.system.text import one_line, printable

#: The most annotations that GitHub shows of one step.
MOST_ANNOTATIONS = 10
_FIRST_LINES = 20


@dataclass(frozen=True)
class CaseResult:
    """The result of one case in a report: a record's, or that of a request without a verdict.

    Attributes:
        problem: Name of the problem; empty if it is unknown.
        solution: Name of the solution.
        case: Name of the case; ``all cases`` for a request without a record.
        status: The status; None if there is no verdict.
        message: Why it did not pass.
        seconds: Seconds that the evaluation took; 0 if the store answered.
        place: File and line of a failure, as ``answer.py:30``; empty if unknown.
    """

    problem: str
    solution: str
    case: str
    status: Status | None
    message: str
    seconds: float = 0.0
    place: str = ""

    @classmethod
    def of(cls, record: EvaluationRecord, stored: bool) -> CaseResult:
        """Makes the result of a record."""
        failed = record.status is not Status.PASSED
        return cls(
            problem=record.problem,
            solution=record.solution,
            case=record.case,
            status=record.status,
            message=record.message if failed else "",
            seconds=0.0 if stored else record.total_s,
            place=place_of(record) if failed else "",
        )


def junit_xml(results: Sequence[CaseResult]) -> bytes:
    """Returns a JUnit file: a suite for each problem, and in it a test for each solution and case.

    A candidate that did not pass is a ``failure``. A fault of the harness or the machine, and a
    request without a verdict, is an ``error``.
    """
    root = ElementTree.Element("testsuites", name="kernel-harness")
    by_problem: dict[str, list[CaseResult]] = {}
    for result in results:
        by_problem.setdefault(result.problem, []).append(result)
    for problem, found in by_problem.items():
        kinds = [_kind(result) for result in found]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=one_line(problem or "no problem"),
            tests=str(len(found)),
            failures=str(kinds.count("failure")),
            errors=str(kinds.count("error")),
            time=f"{sum(result.seconds for result in found):.3f}",
        )
        for result, kind in zip(found, kinds, strict=True):
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=one_line(result.solution),
                name=one_line(result.case),
                time=f"{result.seconds:.3f}",
            )
            if kind:
                words = printable(result.message)
                failure = ElementTree.SubElement(
                    case, kind, type=result.status or "NO_VERDICT", message=words.partition("\n")[0]
                )
                failure.text = "\n".join(filter(None, (one_line(result.place), words)))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def github_summary(results: Sequence[CaseResult], totals: str) -> str:
    """Returns the Markdown of a step's summary: the totals, and a table of what did not pass."""
    failed = [result for result in results if _kind(result)]
    lines = [f"### {one_line(totals)}", ""]
    if failed:
        rows = [
            (result.solution, result.case, result.status or "no verdict", result.message.partition("\n")[0])
            for result in failed
        ]
        lines += [*table(("solution", "case", "status", "why"), rows), ""]
    return "\n".join(lines)


def github_annotations(results: Sequence[CaseResult]) -> list[str]:
    """Returns workflow commands that annotate the files of the first failures, one for each solution."""
    failed: dict[str, CaseResult] = {}
    for result in results:
        if _kind(result):
            failed.setdefault(result.solution, result)
    return [_annotation(result) for result in list(failed.values())[:MOST_ANNOTATIONS]]


def _kind(result: CaseResult) -> str:
    """Returns the JUnit element of a result that did not pass; empty if it passed."""
    if result.status is Status.PASSED:
        return ""
    return "error" if result.status in (None, Status.HARNESS_ERROR) else "failure"


def _annotation(result: CaseResult) -> str:
    file, _, line = result.place.rpartition(":")
    places = {"file": file, "line": line} if file else {}
    properties = {**places, "title": f"{result.solution} {result.case}: {result.status or 'no verdict'}"}
    words = ",".join(f"{name}={_escaped(one_line(value), ':,')}" for name, value in properties.items())
    message = "\n".join(printable(result.message).splitlines()[:_FIRST_LINES])
    return f"::error {words}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """Escapes what ends a part of a workflow command."""
    return "".join(f"%{ord(one):02X}" if one in "%\r\n" + more else one for one in text)
