"""Collects the result of a case stage by stage, and writes it into the record once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.records.record import EvaluationRecord, Finding, Status


@dataclass
class CaseResult:
    """A case's result so far.

    Attributes:
        status: The status so far.
        message: The message to the status.
        findings: The findings of all stages.
        measured: Results of the trials, the timing and the trace, by the record's field names.
        shared_draws: Number of draws on which the reference's errors were already known.
        further_draws: The outcome of each further draw, by name.
        robustness: The outcome of each robustness check, by name.
        replay: How much results on the same inputs vary; filled only for a replay.
    """

    status: Status
    message: str
    findings: tuple[Finding, ...] = ()
    measured: dict[str, Any] = field(default_factory=dict)
    shared_draws: int = 0
    further_draws: dict[str, str] = field(default_factory=dict)
    robustness: dict[str, str] = field(default_factory=dict)
    replay: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> CaseResult:
        """Makes a result from the first stage's fields."""
        result = cls(fields["status"], fields["message"])
        result.add(fields)
        return result

    @property
    def has_passed(self) -> bool:
        """True if the case has passed so far."""
        return self.status is Status.PASSED

    def add(self, fields: Mapping[str, Any]) -> None:
        """Adds a stage's fields, which replace those of earlier stages."""
        measured = dict(fields)
        self.status = measured.pop("status", self.status)
        self.message = measured.pop("message", self.message)
        self.findings = measured.pop("findings", self.findings)
        self.measured |= measured

    def written(self, blank: EvaluationRecord) -> EvaluationRecord:
        """Writes the result into a record."""
        return replace(
            blank,
            **self.measured,
            status=self.status,
            message=self.message,
            findings=self.findings,
            shared_draws=self.shared_draws,
            further_draws=self.further_draws,
            robustness=self.robustness,
            replay=self.replay,
        )
