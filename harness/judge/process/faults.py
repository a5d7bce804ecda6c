"""Collects the faults that the emulator reports, and turns replies into verdicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.judge.process.candidate_stopped import CandidateStopped
from harness.records.record import ORDER_KINDS, REPORT, Finding, Status
from harness.records.rules import PROTOCOL
from harness.system.text import shortened
from harness.wire.replies import Failed, Reply, Report

#: The judge cuts a worker's messages again: a candidate may speak in the worker's place.
MAX_MESSAGE_CHARACTERS = 10_000
#: The most faults kept of a candidate, and the most characters of each part of one.
MAX_REPORTS, MAX_REPORT_CHARACTERS = 100, 10_000
#: Reports of these kinds are CUDA errors that the candidate caused. All others are faults that a GPU
#: may hide.
_ERROR_KINDS = frozenset({"launch", "assert", "trap"})
#: After these faults a checked launch goes on, so that the judge also compares the outputs.
_LASTING_KINDS = frozenset({"race", "out-of-bounds", "uninitialised", "overflow"})
#: A report that the checking mode could not check a launch to its end.
_UNCHECKED_KIND = "unchecked"
_FAILED_STATUS = {
    "build": Status.BUILD_ERROR,
    "unsupported": Status.UNSUPPORTED,
    "load": Status.LOAD_ERROR,
    "runtime": Status.RUNTIME_ERROR,
    "memory": Status.OUT_OF_MEMORY,
    "no_gradient": Status.NO_GRADIENT,
}


@dataclass
class Faults:
    """The faults that were reported while a case is judged.

    In the fast mode the first fault ends the candidate. In the checking mode some faults let a
    launch go on. These are kept while the judge compares the outputs, and decide at the end.

    Attributes:
        is_checked: Whether this is the checking mode.
        kept: The faults found.
        suspicions: Reports that are faults only if the result depends on them.
        unchecked: Reports of what was not checked.
        notes: Reports that say no more than what was checked.
    """

    is_checked: bool = False
    kept: list[Finding] = field(default_factory=list)
    suspicions: list[Finding] = field(default_factory=list)
    unchecked: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything for the record."""
        return (*self.kept, *self.unchecked, *self.notes)

    def take(self, reports: Sequence[Report]) -> None:
        """Add the reports of a reply.

        Raises:
            CandidateStopped: ``UNSAFE`` for a fault, ``RUNTIME_ERROR`` for a CUDA error that the
                candidate ignored.
        """
        reports = reports[:MAX_REPORTS]
        if self.is_checked:
            self._keep(self.suspicions, [report for report in reports if report.is_suspicion])
            reports = [report for report in reports if not report.is_suspicion]
            self._keep(self.kept, [report for report in reports if report.kind in _LASTING_KINDS])
            self._keep(self.unchecked, [report for report in reports if report.kind == _UNCHECKED_KIND])
            notes = findings([report for report in reports if report.kind in ORDER_KINDS])
            self._add(self.notes, [replace(note, level=REPORT) for note in notes])
            known = {*_LASTING_KINDS, _UNCHECKED_KIND, *ORDER_KINDS}
            reports = [report for report in reports if report.kind not in known]
        if not reports:
            return
        faults = [report for report in reports if self.is_checked or report.kind not in _ERROR_KINDS]
        first = findings((faults or reports)[:1])[0]
        status = Status.UNSAFE if faults else Status.RUNTIME_ERROR
        message = first.words if faults else first.words.removeprefix(f"{first.kind}: ")
        raise CandidateStopped(status, message, findings=findings(reports))

    def confirm(self) -> None:
        """Count suspicions as faults, as the result depends on them; not after a known fault."""
        if not self.kept:
            self._add(self.kept, self.suspicions)
        self.suspicions.clear()

    def verdict(self, status: Status, message: str) -> tuple[Status, str]:
        """Combine the status and message of an evaluation with the faults that were kept.

        A pass that was not checked to its end is ``UNSUPPORTED``.

        Args:
            status: The status by outputs and gradients.
            message: The message about them.
        """
        if not self.kept:
            if self.unchecked and status is Status.PASSED:
                words = (self.unchecked[0].words, "outputs and gradients are right", message)
                return Status.UNSUPPORTED, "\n".join(filter(None, words))
            return status, message
        first, more = self.kept[0], len(self.kept) - 1
        told = [first.words + (f" (and {more} more, see the findings)" if more else "")]
        told.append("outputs and gradients are right nevertheless" if status is Status.PASSED else f"also {status}:")
        return Status.UNSAFE, "\n".join(filter(None, (*told, message)))

    def _keep(self, where: list[Finding], reports: Sequence[Report]) -> None:
        self._add(where, findings(reports))

    @staticmethod
    def _add(where: list[Finding], found: Sequence[Finding]) -> None:
        known = {_place(finding) for finding in where}
        for finding in found:
            if len(where) < MAX_REPORTS and _place(finding) not in known:
                known.add(_place(finding))
                where.append(finding)


def _place(finding: Finding) -> tuple[Any, ...]:
    """Identify a fault by what does not depend on a trial's values."""
    lines = sorted(str(access.get("line")) for access in finding.accesses)
    return (finding.kind, finding.kernel, finding.line, *lines) if finding.line else (finding.kind, finding.message)


def stop_for(reply: Reply, faults: Faults) -> CandidateStopped:
    """Return the end that an unexpected reply means.

    Raises:
        CandidateStopped: The reply reports a fault that ends the candidate.
    """
    if isinstance(reply, Failed):
        faults.take(reply.reports)
        status = _FAILED_STATUS.get(reply.kind, Status.RUNTIME_ERROR)
        told = shortened(reply.message, MAX_MESSAGE_CHARACTERS)
        message = told if reply.kind in ("build", "unsupported") else f"{shortened(reply.stage, 100)}: {told}"
        return CandidateStopped(status, message, build_log=reply.log)
    return CandidateStopped(Status.CHEATED, f"the worker sent an unexpected {type(reply).__name__}", rule=PROTOCOL)


def findings(reports: Sequence[Report]) -> tuple[Finding, ...]:
    """Convert the worker's reports to findings, cut where no honest one would be longer."""
    result = []
    for report in reports[:MAX_REPORTS]:
        try:
            accesses = json.loads(report.accesses) if len(report.accesses) <= MAX_REPORT_CHARACTERS else []
        except (ValueError, RecursionError):
            accesses = []
        kept = tuple(item for item in accesses if _is_access(item)) if isinstance(accesses, list) else ()
        kind, kernel, remedy, message = (
            shortened(text, MAX_REPORT_CHARACTERS) if text is not None else None
            for text in (report.kind, report.kernel, report.remedy, report.message)
        )
        result.append(
            Finding(
                kind or "", kernel=kernel, line=report.line, accesses=kept, remedy=remedy or "", message=message or ""
            )
        )
    return tuple(result)


def _is_access(item: Any) -> bool:
    """Return whether an item has the form of an access: an object of plain values and flat lists."""
    if not isinstance(item, dict):
        return False
    inner = [one for value in item.values() for one in (value if isinstance(value, list) else [value])]
    return not any(isinstance(one, list | dict) for one in inner)
