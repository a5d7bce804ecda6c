"""Defines the exception that ends a candidate's run."""

from __future__ import annotations

from harness.records.record import Finding, Status


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
