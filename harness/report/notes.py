"""Writes the notes under the table of ``evaluate``: what holds for whole solutions, and for the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.records.baselines import EAGER
from harness.records.record import ORDER_KINDS, REPORT, EvaluationRecord, Finding, own_share_text
from harness.records.rules import NO_OWN_KERNEL
from harness.scanning.rules import RULES
from harness.system.text import one_line

_MOST_LINES = 5
_MOST_NAMES = 3


def told_in_full(record: EvaluationRecord) -> list[Finding]:
    """Returns a record's findings without those of the static scan, which are many and weak."""
    return [finding for finding in record.findings if not _is_scanned(finding)]


def _is_scanned(finding: Finding) -> bool:
    return finding.level == REPORT and finding.kind in RULES


def scan_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Lists, for each solution over all of its cases, the rules and lines of the static scan."""
    lines: dict[str, str] = {}
    for record in records:
        places: dict[str, list[int]] = {}
        for finding in record.findings:
            if _is_scanned(finding):
                places.setdefault(finding.kind, []).extend([finding.line] if finding.line else [])
        words = [kind + _places_text(found) for kind, found in places.items()]
        if words:
            shown = f"show {record.record}" if record.record else "show"
            told = f"scan of {record.solution}: {', '.join(words)}"
            lines.setdefault(one_line(told), shown)
    return [f"{told}: see `{shown}`" for told, shown in lines.items()]


def _places_text(lines: Sequence[int]) -> str:
    """Formats the first few lines in brackets: `` (lines 3, 8, 12 ...)``."""
    if not lines:
        return ""
    more = " ..." if len(lines) > _MOST_LINES else ""
    return f" (line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:_MOST_LINES]))}{more})"


def finding_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Describes the findings on solutions that passed, one line for those that the same solutions have.

    A missing own kernel and the orders that have run are described in full, and the other findings by name.
    """
    orders: dict[str, None] = {}
    found: dict[str, dict[str, tuple[EvaluationRecord, Finding]]] = {}
    for record in records:
        for finding in told_in_full(record):
            if finding.kind in ORDER_KINDS:
                orders.setdefault(one_line(f"{record.solution}: {finding.kind}: {finding.message}"))
                continue
            found.setdefault(finding.kind, {}).setdefault(record.solution, (record, finding))
    lines: list[str] = []
    others: dict[tuple[str, ...], list[str]] = {}
    for kind, by_solution in found.items():
        solutions = tuple(by_solution)
        if kind == NO_OWN_KERNEL:
            _, finding = by_solution[solutions[0]]
            message = finding.message if len(solutions) == 1 else "kernels of their own do none or little of the work"
            lines.append(one_line(f"{_listed(solutions)}: {kind}: {message}; {finding.remedy}"))
        else:
            others.setdefault(solutions, []).append(kind)
    for solutions, kinds in others.items():
        record, _ = found[kinds[0]][solutions[0]]
        lines.append(one_line(f"{_listed(solutions)}: reported: {', '.join(kinds)} (see `show {record.record}`)"))
    return [*lines, *orders]


def _listed(names: Sequence[str]) -> str:
    """Lists the first few names and counts the others: ``a, b, c and 4 more``."""
    if len(names) <= _MOST_NAMES + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def baseline_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Describes the baselines besides eager for each record: speedups, kept times or failures."""
    lines = []
    for record in records:
        words = []
        for name, told in record.baselines.items():
            times = [told[key] for key in ("forward_ms", "forward_backward_ms") if key in told]
            shown = ", ".join(f"{time:.3g} ms" for time in times)
            if told.get("failure"):
                words.append(f"{name} failed: {told['failure']}")
            elif told.get("kept_from"):
                words.append(f"{name} {shown} (kept from an earlier run; --baseline {name} times it in pairs)")
            elif name != EAGER:
                ratios = ", ".join(f"{ratio:.2f}x" for ratio, _, _ in told.get("speedup", {}).values())
                words.append(f"{name} {shown} {ratios}".rstrip())
        if words:
            lines.append(one_line(f"{record.solution} {record.case} compared with {'; '.join(words)}"))
    return lines


def speed_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Returns what passed records say of their speed, such as why it does not count, each once."""
    said = ((record.solution, line) for record in records for line in record.message.splitlines() if "speed" in line)
    return list(dict.fromkeys(one_line(f"{solution}: {line}") for solution, line in said))


def layer_lines(records: Sequence[EvaluationRecord]) -> Iterator[str]:
    """Yields a line for each confinement layer that some candidate ran without, with the reasons."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for layer, why in record.unconfined.items():
            found.setdefault(layer, {})[why] = None
    for layer, whys in found.items():
        yield one_line(f"not confined by {layer}: {'; '.join(whys)}")


def kernel_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Lists, for each solution over all of its cases, its kernels and its own kernels' share.

    The share is the lowest of all cases.
    """
    by_solution: dict[str, dict[str, dict[str, bool]]] = {}
    shares: dict[str, tuple[float, str]] = {}
    for record in records:
        if record.own_share is not None:
            lowest = shares.get(record.solution, (record.own_share, record.device))
            shares[record.solution] = min(lowest, (record.own_share, record.device))
        for direction, uses in record.kernels.items():
            found = by_solution.setdefault(record.solution, {}).setdefault(direction, {})
            found.update({use.name.rpartition("::")[2] if use.own else use.name: use.own for use in uses})
    lines = []
    for solution, directions in by_solution.items():
        words = [own_share_text(*shares[solution])] if solution in shares else []
        for direction, found in directions.items():
            own = [name for name, is_own in found.items() if is_own]
            others = len(found) - len(own)
            words.append(f"{direction} {', '.join([*own, *([f'{others} of torch'] if others else [])]) or 'none'}")
        lines.append(one_line(f"kernels of {solution}: {'; '.join(words)}"))
    return lines
