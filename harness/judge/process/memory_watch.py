"""Watches the memory that a candidate's processes hold together (Linux).

``RLIMIT_AS`` bounds each process alone, and CUDA's processes not at all. This watch adds up what
all of them hold.
"""

from __future__ import annotations

import contextlib
import os
import resource

from harness.judge.process.leftovers import children_of
from harness.judge.process.pacing import Paced
from harness.system.memory import available_memory, size_text

#: Any candidate may hold this much: torch, and two compilers that read torch's headers.
LEAST_BOUND_BYTES = 4 << 30
#: Memory that must stay free on the machine. If less than four times this was free at the start, a
#: quarter of that.
MIN_AVAILABLE_BYTES = 256 << 20
#: Seconds between two checks.
INTERVAL_S = 0.25
#: A process that held more than this part of what it may allocate has used up its memory: the rest is
#: reserved, and not touched.
_NEARLY_ALL = 0.8
_REMEDY = "use less memory at a time, or run it on a machine with more memory"


class MemoryWatch:
    """Adds up the memory of a worker and of everything that it has started.

    The bound counts from what the worker holds at the first check. Memory on a GPU does not count.
    Pages shared by several processes count once if the kernel lets the judge see that, else once
    for each process.

    Args:
        process: The worker's process id.
        memory_bytes: Memory that the worker may allocate. All may hold this much together, or
            ``LEAST_BOUND_BYTES`` if that is more.
    """

    def __init__(self, process: int, memory_bytes: int):
        self._process = process
        resident_bytes = _resident_bytes(process)
        self._bound_bytes = max(memory_bytes, LEAST_BOUND_BYTES) + resident_bytes
        self._nearly_all_bytes = _NEARLY_ALL * memory_bytes + resident_bytes
        self._floor_bytes = min(MIN_AVAILABLE_BYTES, available_memory() // 4)
        self._was_beyond = False
        self._paced = Paced(self._look, INTERVAL_S)

    def fault(self) -> str:
        """Return what is wrong, and what to do; empty if nothing is, or right after a check."""
        return self._paced.fault()

    def is_used_up(self, peak_bytes: int) -> bool:
        """Return whether a worker that held so much at its peak had no memory left."""
        return peak_bytes > self._nearly_all_bytes

    def _look(self) -> str:
        if available_memory() < self._floor_bytes:
            floor = size_text(self._floor_bytes)
            return f"the machine had less than {floor} of free memory while the candidate ran; {_REMEDY}"
        processes = [self._process, *children_of(self._process)]
        was_beyond = self._was_beyond
        self._was_beyond = sum(map(_resident_bytes, processes)) > self._bound_bytes
        # A child shares its parent's memory until it starts a program, so one excess proves
        # nothing.
        if not (was_beyond and self._was_beyond):
            return ""
        held_bytes = sum(map(_own_share_bytes, processes))
        if held_bytes <= self._bound_bytes:
            return ""
        held, bound = size_text(held_bytes), size_text(self._bound_bytes)
        return f"its processes use {held} of memory together, more than {bound}; {_REMEDY}"


def _resident_bytes(process: int) -> int:
    """Return the bytes that a process has mapped and touched; 0 if it has ended."""
    fields = _read(process, "statm").split()
    return int(fields[1]) * resource.getpagesize() if fields else 0


def _own_share_bytes(process: int) -> int:
    """Return resident bytes with shared pages counted in parts; takes milliseconds for each GB."""
    for line in _read(process, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return _resident_bytes(process)


def _read(process: int, name: str) -> str:
    """Read a kernel file about a process; empty if it has ended, or the judge may not read it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"/proc/{process}/{name}", os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 14).decode(errors="replace")
        finally:
            os.close(descriptor)
    return ""
