"""Prints the table of ``evaluate``: a row for each solution, then what failed, then the totals."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

from rich.cells import cell_len
from rich.text import Text

from harness.project.cases import SMALL_CASE
from harness.records.baselines import EAGER
from harness.records.record import ERROR, NO_OWN_KERNEL_SUFFIX, EvaluationRecord, Status, TensorReport
from harness.records.rules import weakened
from harness.records.run_config import KERNELBENCH, RunConfig
from harness.report.compilation import compiled_lines
from harness.report.console import open_console
from harness.report.fitness import unfit_lines
from harness.report.notes import (
    baseline_lines,
    finding_lines,
    kernel_lines,
    layer_lines,
    scan_lines,
    speed_lines,
    told_in_full,
)
from harness.report.rules import rule_lines
from harness.report.scores import significant
from harness.report.speed_comparison import DIRECTIONS, WORDS
from harness.report.terminal import GAP, fitting
from harness.system.text import one_line, without_commands
from harness.timing.scores import geometric_mean, ratios

#: Minimum width of each column. The table prints a row before it knows the later ones.
_WIDTHS = {
    "solution": 8,
    "case": 4,
    "status": 14,
    "cases": 5,
    "error": 14,
    "output": 14,
    "gradients": 16,
    "forward": 20,
    "forward+backward": 20,
    "time": 6,
    KERNELBENCH: len(KERNELBENCH),
}
#: Columns in the order in which a narrow terminal does without them. The others always stay.
_DROPPED = ("time", "cases", KERNELBENCH, "output", "gradients", "error", "forward+backward", "case", "forward")
_LEFT = frozenset({"solution", "case", "status"})
#: Maximum width that the table reserves for an expected name, and the least that it leaves of one.
_MOST_ROOM, _LEAST_ROOM = 60, 12
#: What a name may be shortened to so that all columns stay.
_ENOUGH_ROOM = 24
_LINE = re.compile(r"line (\d+)\b")


class Verdict(NamedTuple):
    """A record, and whether it comes from the store."""

    record: EvaluationRecord
    stored: bool


class VerdictTable:
    """A table that prints each row immediately, and notes and totals at the end.

    It has a row for each solution, with the worst of its cases; verbose, a row for each case. A row
    never loses part of a status or of a number: on a narrow terminal, whole columns go first, then
    the middle of the solution's name. Output that is no terminal has all columns and is not
    wrapped.

    Args:
        stream: Stream to print to; stdout by default.
        verbose: Whether to print a row for each case, kernels, and the static scan.
    """

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False):
        self._console = open_console(stream)
        self._verbose = verbose
        self._open: dict[str, list[Verdict]] = {}
        self._verdicts: list[Verdict] = []
        self._widths = dict(_WIDTHS)
        self._columns: tuple[str, ...] = ()

    def expect(self, solutions: Iterable[str], cases: Iterable[str]) -> None:
        """Reserves width for the names of later rows, so that all rows are aligned."""
        for column, names in (("solution", solutions), ("case", cases)):
            widest = max((cell_len(one_line(name)) for name in names), default=0)
            self._widths[column] = max(self._widths[column], min(widest, _MOST_ROOM))

    def add(self, record: EvaluationRecord, stored: bool) -> None:
        """Adds a record; verbose, it prints the record's row.

        Args:
            record: The record.
            stored: Whether it comes from the store.
        """
        verdict = Verdict(record, stored)
        self._verdicts.append(verdict)
        if self._verbose:
            self._print_row([verdict])
        else:
            self._open.setdefault(record.solution, []).append(verdict)

    def complete(self, solution: str) -> None:
        """Prints the row of a solution of which all cases are judged."""
        if found := self._open.pop(solution, None):
            self._print_row(found)

    def finish(self) -> None:
        """Prints the remaining rows, what failed, the notes and the totals, if there are any."""
        for solution in list(self._open):
            self.complete(solution)
        if not self._verdicts:
            return
        for block in self._failures():
            self._console.print(block, soft_wrap=True)
        for line in self._notes():
            self._console.print(Text(line))
        self._console.print(Text(total_line([verdict.record for verdict in self._verdicts]), "bold"))
        self._console.file.flush()

    def _print_row(self, verdicts: Sequence[Verdict]) -> None:
        cells = self._cells(verdicts)
        is_first = not self._columns
        if is_first:
            self._columns = self._fitting(cells)
        for name in self._columns:
            self._widths[name] = max(self._widths[name], cells[name].cell_len)
        if is_first:
            self._print({name: Text(name, "bold") for name in self._columns})
        self._print({name: cells[name] for name in self._columns})

    def _fitting(self, cells: dict[str, Text]) -> tuple[str, ...]:
        """Returns the columns that fit the terminal's width."""
        widths = {name: max(self._widths[name], cells[name].cell_len) for name in cells}
        widths["solution"] = min(widths["solution"], _ENOUGH_ROOM)
        return tuple(fitting(widths, _DROPPED, self._console.width))

    def _cells(self, verdicts: Sequence[Verdict]) -> dict[str, Text]:
        records = [verdict.record for verdict in verdicts]
        worst = worst_of(records)
        colour = {Status.PASSED: "green", Status.INTERPRETED: "yellow"}.get(worst.status, "red")
        cells = {"solution": Text(one_line(worst.solution))}
        if self._verbose:
            cells["case"] = Text(worst.case)
        cells["status"] = Text.assemble(
            (str(worst.status), colour), _policy_text(worst, any(record.unfit for record in records))
        )
        if self._verbose:
            cells["output"] = Text(share_text(worst.outputs))
            cells["gradients"] = Text(share_text(worst.gradients))
        else:
            cells["cases"] = Text(f"{sum(one.status is Status.PASSED for one in records)}/{len(records)}")
            cells["error"] = Text(_worst_share(records))
        if worst.device != "cpu":
            for direction in DIRECTIONS if worst.gradients else DIRECTIONS[:1]:
                cells[WORDS[direction]] = Text(_speed_text(worst, direction))
        if RunConfig.of(worst).preset:
            cells[KERNELBENCH] = Text(_kernelbench_text(worst))
        spent = sum(verdict.record.total_s for verdict in verdicts if not verdict.stored)
        cells["time"] = Text("stored" if all(verdict.stored for verdict in verdicts) else f"{spent:.1f} s")
        if self._columns:  # later rows have the columns of the first
            cells = {name: cells.get(name, Text("-")) for name in self._columns}
        return cells

    def _print(self, cells: dict[str, Text]) -> None:
        padded = {name: cell.copy() for name, cell in cells.items()}
        excess = sum(max(self._widths[name], cell.cell_len) + GAP for name, cell in cells.items()) - GAP
        excess -= self._console.width
        room = {name: self._widths[name] for name in cells}
        if excess > 0:
            room["solution"] = max(min(self._widths["solution"], _LEAST_ROOM), self._widths["solution"] - excess)
            padded["solution"] = Text(_middle_cut(cells["solution"].plain, room["solution"]))
        for name, cell in padded.items():
            missing = max(0, room[name] - cell.cell_len)
            if name in _LEFT:
                cell.pad_right(missing)
            else:
                cell.pad_left(missing)
        line = Text(" " * GAP).join(padded.values())
        line.rstrip()
        self._console.print(line, soft_wrap=True)
        self._console.file.flush()

    def _failures(self) -> Iterator[Text]:
        """Yields a paragraph for each failure of a solution: where, why, and the next command.

        Cases that failed with the same status are explained once, by the first one; verbose, each
        case is explained.
        """
        groups: dict[tuple[str, ...], list[EvaluationRecord]] = {}
        for record, _ in self._verdicts:
            if record.status is not Status.PASSED and record.message:
                key = (record.solution, str(record.status), record.case if self._verbose else "")
                groups.setdefault(key, []).append(record)
        for found in groups.values():
            yield _failure(found)

    def _notes(self) -> Iterator[str]:
        records = [verdict.record for verdict in self._verdicts]
        passed = [record for record in records if record.status is Status.PASSED]
        yield ""
        if any(record.outputs for record in records):
            names = "output, gradients" if self._verbose else "error"
            yield f"{names}: largest error over its budget (above 1 fails), and the tensor that had it"
        if any(record.speedup for record in records):
            yield "forward, forward+backward: median latency, and the speedup over eager PyTorch with its 95 % interval"
        if any(record.kernelbench for record in records):
            yield (
                "kernelbench: what its evaluator says of outputs alone: torch.allclose with eager's (in brackets the "
                "tolerance that would do); mean of a forward, speedup by the mean of eager's"
            )
        if any(stored for _, stored in self._verdicts):
            yield 'time: "stored" is an answer from the store; --fresh judges again'
        yield from unfit_lines(records)
        yield from map(one_line, rule_lines(records))
        yield from layer_lines(records)
        if self._verbose:
            yield from kernel_lines(records)
        yield from compiled_lines(records)
        chosen = [record for record in records if RunConfig.of(record).baselines != (EAGER,)]
        yield from baseline_lines(records if self._verbose else chosen)
        yield from speed_lines(passed)
        yield from finding_lines(passed)
        if self._verbose:
            yield from scan_lines(records)


def print_table(verdicts: Sequence[tuple[EvaluationRecord, bool]], stream: TextIO | None = None) -> None:
    """Prints a verbose table of finished records; nothing without records.

    Args:
        verdicts: Each record, and whether it comes from the store.
        stream: Stream to print to; stdout by default.
    """
    table = VerdictTable(stream, verbose=True)
    records = [record for record, _ in verdicts]
    table.expect([record.solution for record in records], [record.case for record in records])
    for record, stored in verdicts:
        table.add(record, stored)
    table.finish()


def worst_of(records: Sequence[EvaluationRecord]) -> EvaluationRecord:
    """Returns the record that decides what a solution is worth.

    That is the first one that did not pass, else one without an own kernel, else the one with the
    smallest speedup, else the one with the largest error.
    """

    def rank(record: EvaluationRecord) -> tuple[bool, bool, float, float]:
        speedup = (record.speedup or {}).get("forward")
        return (
            record.status is Status.PASSED,
            not record.has_no_own_kernel,
            float("inf") if speedup is None else speedup,
            -_share(record),
        )

    return min(records, key=rank)


def total_line(records: Sequence[EvaluationRecord]) -> str:
    """Counts solutions by their worst case, and averages the speedups of the results that passed.

    For example ``12 passed, 1 failed (13 solutions, 40 cases); forward 2.37x [2.36, 2.38], geometric
    mean over eager of 12 results``.
    """
    by_solution: dict[tuple[str, str], list[EvaluationRecord]] = {}
    for record in records:
        by_solution.setdefault((record.problem, record.solution), []).append(record)
    worst = [worst_of(found) for found in by_solution.values()]
    ends = Counter(record.status for record in worst)
    passed = ends.pop(Status.PASSED, 0)
    words = f"{passed} passed, {ends.total()} failed"
    if ends:
        words += f": {', '.join(f'{count} {status}' for status, count in ends.most_common())}"
    if without := sum(record.has_no_own_kernel for record in worst):
        words += f", {without} without a kernel of {'its' if without == 1 else 'their'} own"
    words += f" ({_counted(len(worst), 'solution')}, {_counted(len(records), 'case')})"
    for direction in DIRECTIONS:
        series = [found for record in records if len(found := ratios(record, EAGER, direction)) > 1]
        if (mean := geometric_mean(series)) is not None:
            what = f"{significant(mean.ratio, 3)}x [{significant(mean.low, 3)}, {significant(mean.high, 3)}]"
            words += f"; {WORDS[direction]} {what}, geometric mean over eager of {_counted(len(series), 'result')}"
    return words


def share_text(reports: Sequence[TensorReport]) -> str:
    """Formats the largest share of a budget with its tensor, as ``0.12 (weight)``.

    The result is ``-`` if the judge compared nothing.
    """
    judged = [report for report in reports if report.share is not None]
    failed = [report for report in reports if not report.ok]
    if not judged:
        return f"differs ({one_line(failed[0].name)})" if failed else "-"
    worst = max(judged, key=lambda report: report.share or 0.0)
    share = worst.share or 0.0
    number = f"{share:.2f}" if share < 100 else f"{share:.1e}"
    return f"{number} ({one_line(worst.name)})"


def _worst_share(records: Sequence[EvaluationRecord]) -> str:
    """Formats the largest share of a budget over outputs and gradients, as ``0.06 (gradient of x)``."""
    worst = max(records, key=_share)
    largest = {"": worst.outputs, "gradient of ": worst.gradients}
    prefix, reports = max(
        largest.items(), key=lambda item: max((report.share or 0.0 for report in item[1]), default=-1)
    )
    return share_text(reports).replace("(", f"({prefix}", 1)


def _share(record: EvaluationRecord) -> float:
    return max((report.share or 0.0 for report in (*record.outputs, *record.gradients)), default=0.0)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _middle_cut(text: str, width: int) -> str:
    """Shortens a name to a width by leaving out its middle, as ``conv_tr…/fused``."""
    if cell_len(text) <= width:
        return text
    tail = text.rpartition("/")[2]
    tail = tail[-(width // 2) :] if len(tail) >= width // 2 else f"/{tail}"
    head = Text(text)
    head.truncate(width - cell_len(tail) - 1)
    return f"{head.plain}…{tail}"


def _failure(found: Sequence[EvaluationRecord]) -> Text:
    first = found[0]
    others = f" and {_counted(len(found) - 1, 'other case')}" if len(found) > 1 else ""
    text = Text.assemble("\n", (one_line(first.solution), "bold"), f" {first.case}{others}: {first.status}\n")
    if place := place_of(first):
        text.append(f"  at {place}\n")
    elif first.solution_path[:1] not in ("", "/"):  # words about a text that had no file of its own
        text.append(f"  from {one_line(first.solution_path)}\n")
    if first.case == SMALL_CASE and first.constants:
        sizes = ", ".join(f"{name}={value!r}" for name, value in first.constants.items())
        text.append(without_commands(f"  in a smaller case: {sizes}") + "\n")
    text.append(without_commands(first.message) + "\n")
    for finding in told_in_full(first):
        words = finding.words if finding.level == ERROR else f"{finding.kind}: {finding.message}"
        if not first.message.startswith(words):
            text.append(without_commands(f"  {words}") + "\n")
    text.append(f"next: python -m harness show {first.record}" if first.record else "")
    text.rstrip()
    return text


def place_of(record: EvaluationRecord) -> str:
    """Returns the file and line of a failure in the user's own words, as ``answer.py:30``; or nothing."""
    lines = [finding.line for finding in record.findings if finding.level == ERROR and finding.line]
    if not lines:
        lines = [int(line) for line in _LINE.findall(record.message.partition("\n")[0])]
    if not lines or not os.path.isfile(record.solution_path):  # noqa: PTH113 - False for any odd name
        return ""
    relative = os.path.relpath(record.solution_path)
    return one_line(f"{record.solution_path if relative.startswith('..') else relative}:{lines[0]}")


def _policy_text(record: EvaluationRecord, is_unfit: bool) -> str:
    """Returns the words after a status, such as `` relaxed``, `` checked`` or `` unfit``.

    They name the configuration of the run, and whether an own kernel did any work.
    """
    config = RunConfig.of(record)
    said = {"relaxed": config.is_relaxed, "checked": bool(config.check), "weakened": bool(weakened(config.rules))}
    said["replay"] = bool(record.replay)
    said["unfit"] = is_unfit
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


def _speed_text(record: EvaluationRecord, direction: str) -> str:
    """Formats a speed, as ``5.31 ms 1.68x [1.67, 1.69]``; ``-`` if it was not measured."""
    latency = record.forward_ms if direction == "forward" else record.forward_backward_ms
    ratio = (record.speedup or {}).get(direction)
    if latency is None or ratio is None:
        return "-"
    low, high = record.speedup_interval.get(direction, (ratio, ratio))
    bounds = f" [{significant(low, 3)}, {significant(high, 3)}]" if low < high else ""
    return f"{significant(latency, 3)} ms {significant(ratio, 3)}x{bounds}"
