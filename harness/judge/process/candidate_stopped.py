"""Defines the exception that ends a candidate's run."""

from __future__ import annotations

import signal

from harness.records.record import Finding, Status

#: What is said of a process that SIGKILL ended.
OUT_OF_MEMORY_KILLS = "perhaps the system ran out of memory"


class CandidateStopped(Exception):
    """The candidate's run is over, and it did not pass.

    Attributes:
        status: The status of the end.
        message: The message for the user.
        rule: The integrity rule, for ``CHEATED``.
        findings: Faults with their places.
        build_log: The compiler's full output.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        *,
        rule: str | None = None,
        findings: tuple[Finding, ...] = (),
        build_log: str = "",
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.rule = rule
        self.findings = findings
        self.build_log = build_log


class UnmatchedState(CandidateStopped):
    """The candidate's parameters or buffers do not match the reference's, so that no trial can set them."""


def ended_by_signal(number: int, has_no_memory_left: bool) -> CandidateStopped:
    """Return the end of a candidate whose process a signal ended.

    Python's own code may crash where a candidate has used up its memory, and torch's aborts.
    """
    known = {one.value: one.name for one in signal.Signals}
    words = f"signal {known.get(number, str(number))} ended the process"
    if number == signal.SIGKILL:
        return CandidateStopped(Status.CRASHED, f"{words} ({OUT_OF_MEMORY_KILLS})")
    if has_no_memory_left:
        return CandidateStopped(Status.OUT_OF_MEMORY, f"{words}, which had used up the memory that it may allocate")
    return CandidateStopped(Status.CRASHED, words)
