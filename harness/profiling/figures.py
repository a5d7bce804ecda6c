"""What Nsight Compute counts for each kernel, out of the text that it prints."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

DURATION = "gpu__time_duration.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_READ, DRAM_WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
REGISTERS = "launch__registers_per_thread"
L2_HITS = "lts__t_sector_hit_rate.pct"
#: Reasons for which a warp waits, as Nsight Compute's "warp state" names them, and what they mean.
STALLS = {
    "long_scoreboard": "data of the global or local memory",
    "barrier": "__syncthreads() or another barrier",
    "lg_throttle": "room in the queue of memory instructions",
    "math_pipe_throttle": "a busy arithmetic unit",
    "wait": "an instruction's fixed latency",
}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS = (
    *(DURATION, DRAM, DRAM_READ, DRAM_WRITTEN, OCCUPANCY, REGISTERS, L2_HITS),
    *map(_STALL.format, STALLS),
)
#: How many of a kernel's stall reasons are told.
TOLD_STALLS = 2
_KERNEL = "Kernel Name"
#: Nsight Compute's units, also those of older versions: to milliseconds, and to bytes.
_UNITS = {
    **dict.fromkeys(("ns", "nsecond"), 1e-6),
    **dict.fromkeys(("us", "usecond"), 1e-3),
    **dict.fromkeys(("ms", "msecond"), 1.0),
    **dict.fromkeys(("s", "second"), 1e3),
    **{"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
}
_SCALED = (DURATION, DRAM_READ, DRAM_WRITTEN)


class Stall(NamedTuple):
    """Why warps wait, a word of ``STALLS``, and for how many cycles an issued instruction."""

    reason: str
    cycles: float


@dataclass(frozen=True)
class KernelFigures:
    """The counters of one kernel; where it was launched several times, means over its launches weighted by duration.

    Attributes:
        name: Demangled, as Nsight Compute prints it, or shortened.
        launches: How often it was launched.
        own: Whether a library that the candidate built has it.
        duration_ms: How long one launch took, under the profiler: caches cold, clocks as they were.
        dram_percent: Throughput of the device's memory, of its peak.
        dram_read_bytes: What one launch read from the device's memory.
        dram_written_bytes: What one launch wrote to it.
        occupancy_percent: Warps that were active on a multiprocessor, of the most that it holds.
        registers: Registers of a thread.
        l2_hit_percent: Sectors that the L2 cache had.
        stalls: Why warps waited most, the worst first.
    """

    name: str
    launches: int
    own: bool = False
    duration_ms: float | None = None
    dram_percent: float | None = None
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None
    occupancy_percent: float | None = None
    registers: int | None = None
    l2_hit_percent: float | None = None
    stalls: tuple[Stall, ...] = ()

    @property
    def total_ms(self) -> float | None:
        """How long all launches took."""
        return None if self.duration_ms is None else self.duration_ms * self.launches


def parsed(text: str, name_of: Callable[[str], str] = str) -> list[KernelFigures]:
    """The kernels in what ``ncu --csv --page raw --metrics ...`` prints.

    Args:
        text: Its output: lines that begin with ``==`` and lines of the program, a header, a row of units, and a row for
            each launch.
        name_of: What makes a kernel's name short; launches of one name are taken together.

    Returns:
        In the order of their first launch; empty where there is no header or no row. A metric that is missing, or that
        the device does not have (``n/a``), is None.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    header = next((number for number, row in enumerate(rows) if _KERNEL in row), None)
    if header is None:
        return []
    columns = rows[header]
    units: dict[str, str] = {}
    by_kernel: dict[str, list[dict[str, float]]] = {}
    for row in rows[header + 1 :]:
        cells = dict(zip(columns, row, strict=False))
        if not cells.get(_KERNEL):  # the row of units belongs to no kernel
            units = cells
        else:
            by_kernel.setdefault(name_of(cells[_KERNEL]), []).append(_values(cells, units))
    return [_merged(name, launches) for name, launches in by_kernel.items()]


def marked(kernels: Iterable[KernelFigures], is_own: Callable[[str], bool]) -> list[KernelFigures]:
    """The same, with what is the candidate's own marked."""
    return [replace(kernel, own=is_own(kernel.name)) for kernel in kernels]


def _values(cells: dict[str, str], units: dict[str, str]) -> dict[str, float]:
    """The metrics of a launch that are numbers; times in milliseconds, sizes in bytes."""
    found = {}
    for metric in METRICS:
        try:
            value = float(cells.get(metric, "").replace(",", ""))  # 1,234.5
        except ValueError:
            continue
        if metric in _SCALED:
            value *= _UNITS.get(units.get(metric, ""), math.nan)
        if math.isfinite(value):
            found[metric] = value
    return found


def _merged(name: str, launches: Sequence[dict[str, float]]) -> KernelFigures:
    stalls = [Stall(reason, value) for reason in STALLS if (value := _weighted(launches, _STALL.format(reason)))]
    registers = [launch[REGISTERS] for launch in launches if REGISTERS in launch]
    return KernelFigures(
        name=name,
        launches=len(launches),
        duration_ms=_mean(launches, DURATION),
        dram_percent=_weighted(launches, DRAM),
        dram_read_bytes=_mean(launches, DRAM_READ),
        dram_written_bytes=_mean(launches, DRAM_WRITTEN),
        occupancy_percent=_weighted(launches, OCCUPANCY),
        registers=round(max(registers)) if registers else None,
        l2_hit_percent=_weighted(launches, L2_HITS),
        stalls=tuple(sorted(stalls, key=lambda stall: stall.cycles, reverse=True)[:TOLD_STALLS]),
    )


def _mean(launches: Sequence[dict[str, float]], metric: str) -> float | None:
    values = [launch[metric] for launch in launches if metric in launch]
    return sum(values) / len(values) if values else None


def _weighted(launches: Sequence[dict[str, float]], metric: str) -> float | None:
    """The mean over launches, each counted as long as it took; the plain mean where durations are unknown."""
    known = [launch for launch in launches if metric in launch]
    total = sum(launch.get(DURATION, 0.0) for launch in known)
    if not total:
        return _mean(known, metric)
    return sum(launch[metric] * launch.get(DURATION, 0.0) for launch in known) / total
