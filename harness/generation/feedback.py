"""Selects what a model is told about its verdict: enough to repair it, and nothing of the judge's secrets.

Feedback never holds seeds, further draws or robustness checks, and no path of the machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.records.record import ERROR, EvaluationRecord, Finding, Status, TensorReport
from harness.report.single import kernel_use_lines
from harness.report.speed import speed_lines
from harness.system.text import shortened

MAX_MESSAGE_CHARACTERS = 6000
_MOST_FINDINGS, _MOST_ACCESSES, _MOST_TENSORS = 8, 4, 12
_MAX_LINE, _MOST_LINES = 500, 60
_LOG_LINE = "full log: "


@dataclass(frozen=True)
class Feedback:
    """The parts of an attempt's verdict that a prompt shows.

    Attributes:
        status: The status, or the outcome of an answer with nothing to judge.
        case: Name of the judged case; empty without a verdict.
        message: The judge's message, in lines.
        findings: Each finding in lines: kind, kernel, line, threads, remedy.
        tensors: A line for each tensor that failed.
        speed: Lines about latencies, speedups, kernels and the speed of light.
        passed: Whether it passed.
    """

    status: str
    case: str = ""
    message: str = ""
    findings: str = ""
    tensors: str = ""
    speed: str = ""
    passed: bool = False


def feedback_on(records: Sequence[EvaluationRecord], source: str) -> Feedback:
    """Returns the feedback on a candidate: on its first case that failed, else on its first case.

    Args:
        records: Its records, at least one.
        source: Its text, whose lines the findings quote.
    """
    record = next((one for one in records if one.status is not Status.PASSED), records[0])
    passed = record.status is Status.PASSED
    tensors = [_tensor(report, name) for report, name in _tensors(record) if not report.ok]
    errors = [one for one in record.findings if one.level == ERROR]
    return Feedback(
        status=record.verdict if record.rule is None else f"{record.verdict}, rule {record.rule}",
        case=record.case,
        message="" if passed else shortened(_message(record), MAX_MESSAGE_CHARACTERS),
        findings=_lines(line for one in errors[:_MOST_FINDINGS] for line in _finding(one, source.splitlines())),
        tensors=_lines(tensors[:_MOST_TENSORS]),
        speed=_lines([*speed_lines(record), *kernel_use_lines(record)]) if passed else "",
        passed=passed,
    )


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(shortened(line, _MAX_LINE) for line in itertools.islice(lines, _MOST_LINES))


def _message(record: EvaluationRecord) -> str:
    return "\n".join(line for line in record.message.splitlines() if not line.startswith(_LOG_LINE))


def _finding(finding: Finding, lines: Sequence[str]) -> Iterator[str]:
    where = f" in kernel {finding.kernel}" if finding.kernel else ""
    at = f", line {finding.line}" if finding.line else ""
    yield f"{finding.kind}{where}{at}: {finding.message}"
    if finding.line is not None and 0 < finding.line <= len(lines):
        yield f"  line {finding.line}: {lines[finding.line - 1].strip()}"
    for access in finding.accesses[:_MOST_ACCESSES]:
        places = ", ".join(f"{name} {access[name]}" for name in ("thread", "block", "line", "what") if name in access)
        yield f"  access: {places}"
    if finding.remedy:
        yield f"  remedy: {finding.remedy}"


def _tensors(record: EvaluationRecord) -> Iterator[tuple[TensorReport, str]]:
    for report in record.outputs:
        yield report, report.name
    for report in record.gradients:
        yield report, f"gradient of {report.name}"


def _tensor(report: TensorReport, name: str) -> str:
    words = f"{name} {list(report.shape)} {report.dtype}"
    if report.l2_error is not None and report.l2_budget is not None:
        words += f": relative L2 error {report.l2_error:.2e}, budget {report.l2_budget:.2e}"
    if report.worst_index is not None:
        words += f"; worst at {list(report.worst_index)}: received {report.received}, expected {report.expected}"
    details = (report.counted, report.pattern, report.note)
    return "; ".join([words, *(one for one in details if one)])
