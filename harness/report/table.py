"""Prints the table of ``evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from harness.records.baselines import EAGER
from harness.records.record import (
    ERROR,
    NO_OWN_KERNEL_SUFFIX,
    REPORT,
    EvaluationRecord,
    Finding,
    Status,
    TensorReport,
    own_share_text,
)
from harness.records.rules import NO_OWN_KERNEL, weakened
from harness.records.run_config import KERNELBENCH, RunConfig
from harness.report.comparison import HEADER, Group, columns, lead_text
from harness.report.compilation import compiled_lines
from harness.report.fitness import unfit_lines
from harness.report.rules import rule_lines
from harness.scanning.rules import RULES
from harness.system.text import one_line, printable

_PLAIN_WIDTH = 160
#: Columns of the table of verdicts, with their minimum widths. The table prints a row before it
#: knows the later ones.
_COLUMNS = {"solution": 8, "case": 4, "status": 14, "output": 14, "gradients": 16, "speed": 8, "time": 6}
_LEFT = frozenset({"solution", "case", "status"})
#: Maximum width that the table reserves for an expected name.
_MOST_ROOM = 60
_MOST_LINES = 5


class VerdictTable:
    """A table that prints each record's row immediately, and notes about all records at the end.

    It uses colour only on a terminal and respects ``NO_COLOR``.

    Args:
        stream: Stream to print to; stdout by default.
    """

    def __init__(self, stream: TextIO | None = None):
        file = stream or sys.stdout
        self._console = Console(file=file, highlight=False, width=None if file.isatty() else _PLAIN_WIDTH)
        self._verdicts: list[tuple[EvaluationRecord, bool]] = []
        self._widths = dict(_COLUMNS)
        self._has_kernelbench = False

    def expect(self, solutions: Iterable[str], cases: Iterable[str]) -> None:
        """Reserves width for the names of later rows, so that all rows are aligned."""
        for column, names in (("solution", solutions), ("case", cases)):
            widest = max((cell_len(one_line(name)) for name in names), default=0)
            self._widths[column] = max(self._widths[column], min(widest, _MOST_ROOM))

    def add(self, record: EvaluationRecord, stored: bool) -> None:
        """Prints a record's row.

        Args:
            record: The record.
            stored: Whether it comes from the store.
        """
        colour = {Status.PASSED: "green", Status.INTERPRETED: "yellow"}.get(record.status, "red")
        cells = {
            "solution": Text(one_line(record.solution)),
            "case": Text(record.case),
            "status": Text.assemble((str(record.status), colour), _policy_text(record)),
            "output": Text.from_markup(share_text(record.outputs)),
            "gradients": Text.from_markup(share_text(record.gradients)),
            "speed": Text(speed_text(record)),
            "time": Text("stored" if stored else f"{record.total_s:.1f} s"),
        }
        if not self._verdicts:
            self._has_kernelbench = bool(RunConfig.of(record).preset)
        if self._has_kernelbench:
            cells[KERNELBENCH] = Text(_kernelbench_text(record))
            self._widths.setdefault(KERNELBENCH, len(KERNELBENCH))
        for name, cell in cells.items():
            self._widths[name] = max(self._widths[name], cell.cell_len)
        if not self._verdicts:
            self._print({name: Text(name, "bold") for name in cells})
        self._verdicts.append((record, stored))
        self._print(cells)

    def finish(self) -> None:
        """Prints the notes and the messages of records that did not pass, if there are any."""
        if self._verdicts:
            _print_notes(self._console, self._verdicts)
            self._console.file.flush()

    def _print(self, cells: dict[str, Text]) -> None:
        for name, cell in cells.items():
            missing = max(0, self._widths[name] - cell.cell_len)
            if name in _LEFT:
                cell.pad_right(missing)
            else:
                cell.pad_left(missing)
        line = Text("  ").join(cells.values())
        line.rstrip()
        self._console.print(line, soft_wrap=True)
        self._console.file.flush()


def print_table(verdicts: Sequence[tuple[EvaluationRecord, bool]], stream: TextIO | None = None) -> None:
    """Prints a table of finished records; nothing without records.

    Args:
        verdicts: Each record, and whether it comes from the store.
        stream: Stream to print to; stdout by default.
    """
    table = VerdictTable(stream)
    records = [record for record, _ in verdicts]
    table.expect([record.solution for record in records], [record.case for record in records])
    for record, stored in verdicts:
        table.add(record, stored)
    table.finish()


def _print_notes(console: Console, verdicts: Sequence[tuple[EvaluationRecord, bool]]) -> None:
    records = [record for record, _ in verdicts]
    if without := sum(record.has_no_own_kernel for record in records):
        passed = sum(record.status is Status.PASSED for record in records)
        console.print(f"passed: {passed} of {len(records)}, {without} with no kernel of its own")
    console.print("output, gradients: largest error over its budget (above 1 fails), and the tensor that had it")
    if any(record.device == "cpu" for record in records):
        console.print("speed: not measured on the CPU emulator; it runs CUDA source for correctness only")
    if any(record.speedup for record in records):
        console.print("speed: median of forward, then of forward with backward, and the speedup over eager PyTorch")
    if any(record.kernelbench for record in records):
        console.print(
            "kernelbench: what its evaluator says of outputs alone: torch.allclose with eager's (in brackets the "
            "tolerance that would do); mean of a forward, speedup by the mean of eager's"
        )
    for line in baseline_lines(records):
        console.print(escape(line))
    if any(stored for _, stored in verdicts):
        console.print('time: "stored" is an answer from the store; --fresh judges again')
    for line in unfit_lines(records):
        console.print(escape(line))
    for line in rule_lines(records):
        console.print(escape(one_line(line)))
    for layer, whys in _missing_layers(records).items():
        console.print(escape(one_line(f"not confined by {layer}: {'; '.join(whys)}")))
    for line in (*kernel_lines(records), *compiled_lines(records)):
        console.print(escape(line))
    for record in records:
        if record.status is Status.PASSED:
            for line in record.message.splitlines():
                if "speed" in line:
                    console.print(escape(one_line(f"{record.solution} {record.case}: {line}")))
            for line in finding_lines(record):
                console.print(escape(one_line(line)))
        elif record.message:
            console.print(f"\n[bold]{escape(one_line(record.solution))}[/bold] {record.case}: {record.status}")
            console.print(escape(printable(record.message)))
            for finding in _told_in_full(record):
                words = finding.words if finding.level == ERROR else f"{finding.kind}: {finding.message}"
                if record.message.startswith(words):
                    continue
                console.print(escape(printable(f"  {words}")))
    for line in scan_lines(records):
        console.print(escape(line))


def _policy_text(record: EvaluationRecord) -> str:
    """Returns the words after a status, such as `` relaxed``, `` checked`` or `` unfit``.

    They name the configuration of the run, and whether an own kernel did any work.
    """
    config = RunConfig.of(record)
    said = {"relaxed": config.is_relaxed, "checked": bool(config.check), "weakened": bool(weakened(config.rules))}
    said["replay"] = bool(record.replay)
    said["unfit"] = bool(record.unfit)
    said["not timed"] = not config.timing
    words = "".join(f" {word}" for word, holds in said.items() if holds)
    return words + (NO_OWN_KERNEL_SUFFIX if record.has_no_own_kernel else "")


def _kernelbench_text(record: EvaluationRecord) -> str:
    """Describes KernelBench's verdict, as ``correct 3.83 ms 2.37x`` or ``incorrect (1.2e-03)``."""
    told = record.kernelbench
    if not told:
        return "-"
    if not told.get("correct"):
        error = told.get("error")
        return "incorrect" if error is None else f"incorrect ({error:.1e})"
    return f"correct {told['runtime_ms']:.3g} ms {told['speedup']:.2f}x" if "speedup" in told else "correct"


def _told_in_full(record: EvaluationRecord) -> list[Finding]:
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


def finding_lines(record: EvaluationRecord) -> list[str]:
    """Describes the findings on a candidate that passed.

    A missing own kernel is described in full, and the other findings by name in one line.
    """
    where = f"{record.solution} {record.case}"
    found = _told_in_full(record)
    told = [finding for finding in found if finding.kind == NO_OWN_KERNEL]
    lines = [f"{where}: {finding.kind}: {finding.message}; {finding.remedy}" for finding in told]
    others = dict.fromkeys(finding.kind for finding in found if finding.kind != NO_OWN_KERNEL)
    return [*lines, f"{where}: reported: {', '.join(others)} (see `show`)"] if others else lines


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


def _missing_layers(records: Sequence[EvaluationRecord]) -> dict[str, list[str]]:
    """Returns the confinement layers that some candidate ran without, with the reasons."""
    found: dict[str, list[str]] = {}
    for record in records:
        for layer, why in record.unconfined.items():
            if why not in found.setdefault(layer, []):
                found[layer].append(why)
    return found


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


def print_groups(groups: Sequence[Group]) -> None:
    """Prints comparisons on stdout: a table each, fastest first, and the sentences on winners."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    for number, one in enumerate(groups):
        if number:
            console.print()
        console.print(f"[bold]{escape(one_line(one.title))}[/bold]")
        table = Table(box=None, pad_edge=False, header_style="bold")
        for position, name in enumerate(HEADER):
            table.add_column(escape(name), overflow="fold", justify="left" if position < 2 else "right")
        for entry in one.entries:
            table.add_row(*(escape(one_line(cell)) for cell in columns(entry)))
        console.print(table)
        for direction in one.leads:
            console.print(escape(one_line(lead_text(one, direction))))
        if not one.leads:
            console.print("no winner: two that passed have no measured speed")
        for note in one.notes:
            console.print(escape(one_line(f"note: {note}")))


def speed_text(record: EvaluationRecord) -> str:
    """Formats the speed of forward, and of forward with backward.

    For example ``5.31 ms 1.68x, 14.6 ms 1.36x``; ``emulated`` on the CPU.
    """
    if record.device == "cpu":
        return "emulated"
    if not record.speedup:
        return "-"
    times = {"forward": record.forward_ms, "forward_backward": record.forward_backward_ms}
    known = {name: found for name, found in times.items() if found is not None}
    ratios = record.speedup.items()
    return ", ".join(f"{known[name]:.3g} ms {ratio:.2f}x" for name, ratio in ratios if name in known) or "-"


def share_text(reports: Sequence[TensorReport]) -> str:
    """Formats the largest share of a budget with its tensor, as ``0.12 (weight)``.

    The result is ``-`` if the judge compared nothing.
    """
    judged = [report for report in reports if report.share is not None]
    failed = [report for report in reports if not report.ok]
    if not judged:
        return f"differs ({escape(one_line(failed[0].name))})" if failed else "-"
    worst = max(judged, key=lambda report: report.share or 0.0)
    share = worst.share or 0.0
    number = f"{share:.2f}" if share < 100 else f"{share:.1e}"
    return f"{number} ({escape(one_line(worst.name))})"
