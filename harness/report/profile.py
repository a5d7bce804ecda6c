"""Prints the tables of ``profile`` and converts them to plain objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.markup import escape
from rich.table import Table

from harness.profiling.figures import STALLS, KernelFigures
from harness.project.solutions import Candidate
from harness.records.record import EvaluationRecord
from harness.report.console import open_console
from harness.system.text import one_line

_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
OWN, TORCHS, DRIVERS = "own", "torch", "driver"


@dataclass(frozen=True)
class ProfileRow:
    """A row of a direction's table.

    Attributes:
        name: Name of the kernel, or kind of the copy.
        whose: ``own``, ``torch`` for kernels of torch and its libraries, ``driver`` for copies and
            fills.
        launches: Number of launches in one call.
        device_ms: Total time on the device; None if it is unknown.
        share: Share of the direction's time on the device; None if it is unknown.
        bytes: Bytes that a copy moved; None for kernels, and if it is unknown.
    """

    name: str
    whose: str
    launches: int
    device_ms: float | None
    share: float | None = None
    bytes: int | None = None


def rows_of(record: EvaluationRecord) -> dict[str, list[ProfileRow]]:
    """Returns the rows of each direction: kernels in the order of first launch, then copies."""
    found = {}
    for direction, kernels in record.kernels.items():
        copies = record.copies.get(direction, ())
        rows = [ProfileRow(use.name, OWN if use.own else TORCHS, use.calls, use.device_ms) for use in kernels]
        rows += [ProfileRow(copy.name, DRIVERS, copy.calls, copy.device_ms, bytes=copy.bytes) for copy in copies]
        total = sum(row.device_ms or 0.0 for row in rows)
        found[direction] = [
            replace(row, share=row.device_ms / total) if row.device_ms is not None and total else row for row in rows
        ]
    return found


def print_profile(record: EvaluationRecord) -> None:
    """Prints the launches of a candidate that passed.

    The output on stdout is a table for each direction, and remarks about it.
    """
    console = open_console()
    for number, (direction, rows) in enumerate(rows_of(record).items()):
        if number:
            console.print()
        console.print(_head(f"{direction} of", record.solution, record.case, record.device))
        has_bytes = any(row.bytes is not None for row in rows)
        table = _table("kernel", "whose", *("launches", "total ms", "share"), *(["bytes"] if has_bytes else []))
        for row in rows:
            cells = [escape(one_line(row.name)), row.whose, str(row.launches), _time(row.device_ms), _share(row.share)]
            table.add_row(*cells, *([size_text(row.bytes)] if has_bytes else []))
        times = [row.device_ms for row in rows if row.device_ms is not None]
        total = _time(sum(times)) if times else "-"
        table.add_row("total", "", str(sum(row.launches for row in rows)), total, _share(1.0) if times else "-")
        console.print(table)
    if record.device == "cpu":
        console.print("launches of the solution's own kernels only; times on the CPU emulator mean nothing")
        return
    console.print("total ms, share: device time of one call under torch's profiler, without the gaps between kernels")
    if record.copies:
        console.print("whose: driver is a copy or a fill; bytes is how much it moved")


def print_figures(kernels: Sequence[KernelFigures], solution: str, case: str, device: str) -> None:
    """Prints the counters of Nsight Compute as a table on stdout, and explains its columns."""
    console = open_console()
    console.print(_head("kernels of", solution, case, device))
    table = _table(
        *("kernel", "whose", "launches", "ms", "share", "DRAM", "read", "written", "L2 hits", "occupancy", "registers"),
        *("waits for",),
    )
    total = sum(kernel.total_ms or 0.0 for kernel in kernels)
    for kernel in kernels:
        share = kernel.total_ms / total if kernel.total_ms is not None and total else None
        table.add_row(
            escape(one_line(kernel.name)),
            OWN if kernel.own else TORCHS,
            str(kernel.launches),
            _time(kernel.duration_ms),
            _share(share),
            _percent(kernel.dram_percent),
            size_text(kernel.dram_read_bytes),
            size_text(kernel.dram_written_bytes),
            _percent(kernel.l2_hit_percent),
            _percent(kernel.occupancy_percent),
            "-" if kernel.registers is None else str(kernel.registers),
            ", ".join(f"{stall.reason} {stall.cycles:.1f}" for stall in kernel.stalls) or "-",
        )
    console.print(table)
    console.print("one forward without gradients, and one forward with its backward, summed by kernel")
    console.print("ms, read, written: per launch, with cold caches; share: of all launches' time")
    console.print("DRAM, occupancy: share of the peak; registers: per thread")
    told = dict.fromkeys(stall.reason for kernel in kernels for stall in kernel.stalls)
    if told:
        meanings = "; ".join(f"{reason} is {STALLS[reason]}" for reason in told)
        console.print(f"waits for: cycles that warps wait per issued instruction; {meanings}")


def size_text(size: float | None) -> str:
    """Formats a number of bytes as ``7.52 GB``, or ``-`` if it is unknown."""
    if size is None:
        return "-"
    unit, name = next((unit, name) for unit, name in _SIZES if size >= unit or unit == 1.0)
    return f"{size / unit:.3g} {name}"


def profile_object(record: EvaluationRecord) -> dict[str, Any]:
    """Returns the profile as one JSON object."""
    rows = rows_of(record)
    return {
        "problem": record.problem,
        "solution": record.solution,
        "case": record.case,
        "constants": record.constants,
        "device": record.device,
        "status": record.status,
        "message": record.message,
        "directions": {direction: [asdict(row) for row in found] for direction, found in rows.items()},
    }


def figures_object(
    kernels: Sequence[KernelFigures], candidate: Candidate, case: str, constants: dict[str, Any], device: str
) -> dict[str, Any]:
    """Returns the counters of Nsight Compute as one JSON object."""
    return {
        "problem": candidate.problem.name,
        "solution": candidate.solution.name,
        "case": case,
        "constants": constants,
        "device": device,
        "kernels": [{**asdict(kernel), "stalls": [stall._asdict() for stall in kernel.stalls]} for kernel in kernels],
    }


def _head(what: str, solution: str, case: str, device: str) -> str:
    return f"[bold]{what} {escape(one_line(solution))}[/bold], case {case}, on {device}"


def _table(*columns: str) -> Table:
    """Creates a table whose first column is a kernel's name; columns of figures align right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_word = column in ("kernel", "whose", "waits for")
        table.add_column(column, overflow="fold", justify="left" if is_word else "right", no_wrap=not is_word)
    return table


def _time(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.4g}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _percent(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.0f} %"
