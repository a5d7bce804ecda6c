"""The result of a case, gathered stage by stage, and written into its record once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.records.record import EvaluationRecord, Finding, Status


@dataclass
class CaseResult:
    """A case's result as far as it is known.

    Attributes:
        status: How the case has ended by now.
        message: What is said of that.
        findings: What the stages found.
        measured: What the trials, the timing and the trace measured, by names of the record's fields.
        shared_draws: On how many draws the reference's errors were known before.
        further_draws: How each further draw ended, by name.
        robustness: How each check of robustness ended, by name.
        replay: How far results on the same inputs lie apart, where an evaluation is repeated.
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
        """Makes a result of the fields that the first stage found."""
        result = cls(fields["status"], fields["message"])
        result.add(fields)
        return result

    @property
    def has_passed(self) -> bool:
        """True if the case has passed so far."""
        return self.status is Status.PASSED

    def add(self, fields: Mapping[str, Any]) -> None:
        """Takes in the fields that a stage found; they replace those of earlier stages."""
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
