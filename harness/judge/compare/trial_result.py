"""Holds the findings of one trial, and ranks the reports on a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.errors import ProblemError
from harness.judge.inputs.situations import Usage
from harness.records.record import PrecisionClass, TensorReport


class ProvesNothing(ProblemError):
    """The error for a draw under which an output is zero everywhere, or not finite: another draw may tell more."""


@dataclass
class TrialResult:
    """The findings of one trial.

    Attributes:
        pieces: Number of pieces of the batch in which the reference was evaluated.
        kinks: Counts of samples ``redrawn`` and of elements ``remaining`` near a kink. Empty where
            the reference has no kinks.
        outputs: One report per output.
        gradients: One report per leaf that the reference differentiates.
        lower_class: For a failing tensor, the lower precision class that accounts for its error.
        usage: How the judge called the candidate.
        is_unsteady: Whether the trial failed but passed when repeated, whatever the order of
            threads.
        digests: Digests of the candidate's inputs and results, by name (see ``exchange.digests``).
    """

    pieces: int = 1
    kinks: dict[str, int] = field(default_factory=dict)
    outputs: list[TensorReport] = field(default_factory=list)
    gradients: list[TensorReport] = field(default_factory=list)
    lower_class: dict[str, PrecisionClass] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    is_unsteady: bool = False
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> list[TensorReport]:
        """The failing reports, outputs first."""
        return [report for report in (*self.outputs, *self.gradients) if not report.ok]


def badness(report: TensorReport) -> tuple[bool, float]:
    """Order reports by how bad they are: failing ones first, then by their share of the budget."""
    return not report.ok, report.share or 0.0
