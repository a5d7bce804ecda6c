"""Summarises trials for the record: each tensor's worst report, its message lines, kink counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from harness.judge.compare.trial_result import TrialResult, badness
from harness.records.record import TensorReport


def summed_kinks(results: Sequence[TrialResult]) -> dict[str, int]:
    """Sum the kink counts over the trials; empty where the reference has no kinks."""
    total: dict[str, int] = {}
    for result in results:
        for name, count in result.kinks.items():
            total[name] = total.get(name, 0) + count
    return total


def worst_reports(reports: Iterable[TensorReport]) -> tuple[TensorReport, ...]:
    """Return each tensor's report with the largest share of its budget; failing reports come first."""
    by_name: dict[str, list[TensorReport]] = {}
    for report in reports:
        by_name.setdefault(report.name, []).append(report)
    return tuple(max(same, key=badness) for same in by_name.values())


def explained(report: TensorReport, result: TrialResult) -> str:
    """Write the lines of the message about a failing tensor."""
    where = f" under the {report.cotangent!r} cotangent" if report.cotangent else ""
    kind = "gradient of " if report.cotangent else ""
    lower = result.lower_class.get(report.name)
    more = ""
    if report.share is None:
        first = report.note
    else:
        first = (
            f"relative L2 error {report.l2_error:.2e} (budget {report.l2_budget:.2e}), "
            f"maximum error {report.max_error:.2e} (budget {report.max_budget:.2e})"
        )
        if lower:
            more = f"; its precision is of class {lower}, which this problem does not allow"
        elif report.rounding is not None:
            more = (
                "; rounding the operands of products to the problem's precision class changes the result by "
                f"only {report.rounding:.1e}: the error has another cause"
            )
    return "\n".join([f"{kind}{report.name}{where}: {first}{more}", *(f"  {line}" for line in _found(report))])


def _found(report: TensorReport) -> Iterator[str]:
    """Yield lines about the worst element and the wrong ones, if the report has them."""
    if report.received is None or report.expected is None:
        return
    at = f" at {list(report.worst_index)}" if report.worst_index else ""
    eager = "" if report.eager is None else f", eager {report.eager:.6g}"
    values = f"received {report.received:.6g}, expected {report.expected:.6g}{eager}"
    yield f"worst{at}: {values} (may be off by {report.allowed:.2g})"
    if report.eager is not None and math.isfinite(report.expected) and not math.isfinite(report.eager):
        yield "eager's is not finite there, so right answers may fail, too: `validate` of the problem says more"
    yield report.counted + (f": {report.pattern}" if report.pattern else "")
