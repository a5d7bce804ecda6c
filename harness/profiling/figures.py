"""Parses the counters of each kernel from the output of Nsight Compute."""

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
#: Reasons why a warp waits, by their names in Nsight Compute's "warp state", with their meaning.
STALLS = {
    "long_scoreboard": "data from global or local memory",
    "barrier": "__syncthreads() or another barrier",
    "lg_throttle": "space in the queue of memory instructions",
    "math_pipe_throttle": "a busy arithmetic unit",
    "wait": "an instruction's fixed latency",
}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS = (
    *(DURATION, DRAM, DRAM_READ, DRAM_WRITTEN, OCCUPANCY, REGISTERS, L2_HITS),
    *map(_STALL.format, STALLS),
)
#: Number of stall reasons to report for a kernel.
TOLD_STALLS = 2
_KERNEL = "Kernel Name"
#: Nsight Compute's units, including those of older versions: factors to milliseconds and to bytes.
_UNITS = {
    **dict.fromkeys(("ns", "nsecond"), 1e-6),
    **dict.fromkeys(("us", "usecond"), 1e-3),
    **dict.fromkeys(("ms", "msecond"), 1.0),
    **dict.fromkeys(("s", "second"), 1e3),
    **{"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
}
_SCALED = (DURATION, DRAM_READ, DRAM_WRITTEN)


class Stall(NamedTuple):
    """A reason why warps wait, from ``STALLS``, with its cycles for each issued instruction."""

    reason: str
    cycles: float


@dataclass(frozen=True)
class KernelFigures:
    """The counters of one kernel, as means over its launches weighted by duration.

    Attributes:
        name: Demangled name from Nsight Compute, or its short form.
        launches: Number of launches.
        own: Whether a library that the candidate built contains the kernel.
        duration_ms: Duration of one launch under the profiler, with cold caches and unlocked
            clocks.
        dram_percent: Throughput of device memory, as a percentage of its peak.
        dram_read_bytes: Bytes that one launch read from device memory.
        dram_written_bytes: Bytes that one launch wrote to device memory.
        occupancy_percent: Active warps on a multiprocessor, as a percentage of its maximum.
        registers: Registers of a thread.
        l2_hit_percent: Sectors that the L2 cache served, as a percentage.
        stalls: Most frequent reasons why warps waited, the worst first.
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
        """The duration of all launches."""
        return None if self.duration_ms is None else self.duration_ms * self.launches


def parsed(text: str, name_of: Callable[[str], str] = str) -> list[KernelFigures]:
    """Parses the kernels from the output of ``ncu --csv --page raw --metrics ...``.

    Args:
        text: The output: lines that begin with ``==``, lines of the program, a header, a row of
            units, and a row for each launch.
        name_of: Function that shortens a kernel's name; the result merges launches of the same
            name.

    Returns:
        The kernels in the order of their first launch, or an empty list without a header or a row.
        A metric is None if it is missing or the device does not have it (``n/a``).
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
    """Returns the kernels with the candidate's own ones marked."""
    return [replace(kernel, own=is_own(kernel.name)) for kernel in kernels]


def _values(cells: dict[str, str], units: dict[str, str]) -> dict[str, float]:
    """Returns the numeric metrics of a launch, with times in milliseconds and sizes in bytes."""
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
    """Returns the mean over launches weighted by duration, or the plain mean without durations."""
    known = [launch for launch in launches if metric in launch]
    total = sum(launch.get(DURATION, 0.0) for launch in known)
    if not total:
        return _mean(known, metric)
    return sum(launch[metric] * launch.get(DURATION, 0.0) for launch in known) / total
