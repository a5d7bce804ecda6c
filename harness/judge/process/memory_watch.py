"""The memory that a candidate's processes hold together (Linux).

``RLIMIT_AS`` bounds each process alone, and CUDA's processes not at all. This watch adds up what all of them hold.
"""

from __future__ import annotations

import contextlib
import os
import resource

from harness.judge.process.leftovers import children_of
from harness.judge.process.pacing import Paced
from harness.system.memory import available_memory, size_text

#: What any candidate may hold: torch, and two compilers that read torch's headers.
LEAST_BOUND_BYTES = 4 << 30
#: Memory that must stay free on the machine; less where less than four times as much was free at the start.
MIN_AVAILABLE_BYTES = 256 << 20
#: Seconds between two looks.
INTERVAL_S = 0.25
_REMEDY = "use less at a time, or give it a machine with more memory"


class MemoryWatch:
    """Adds up the memory of a worker and of everything that it has started.

    The bound counts from what the worker holds at the first look. Memory on a GPU does not count. Pages that several
    processes share count once where the kernel lets the judge see that, else once for each process.

    Args:
        process: The worker's process.
        bound_bytes: What all may hold together; ``LEAST_BOUND_BYTES`` where that is more.
    """

    def __init__(self, process: int, bound_bytes: int):
        self._process = process
        self._bound_bytes = max(bound_bytes, LEAST_BOUND_BYTES) + _resident_bytes(process)
        self._floor_bytes = min(MIN_AVAILABLE_BYTES, available_memory() // 4)
        self._was_beyond = False
        self._paced = Paced(self._look, INTERVAL_S)

    def fault(self) -> str:
        """Returns what is wrong, and what to do; empty where nothing is, or where the last look was a moment ago."""
        return self._paced.fault()

    def _look(self) -> str:
        if available_memory() < self._floor_bytes:
            floor = size_text(self._floor_bytes)
            return f"the machine had less than {floor} of memory left while the candidate ran; {_REMEDY}"
        processes = [self._process, *children_of(self._process)]
        was_beyond = self._was_beyond
        self._was_beyond = sum(map(_resident_bytes, processes)) > self._bound_bytes
        if not (was_beyond and self._was_beyond):  # a child shares its parent's memory until it starts a program
            return ""
        held_bytes = sum(map(_own_share_bytes, processes))
        if held_bytes <= self._bound_bytes:
            return ""
        held, bound = size_text(held_bytes), size_text(self._bound_bytes)
        return f"its processes hold {held} of memory together, more than {bound}; {_REMEDY}"


def _resident_bytes(process: int) -> int:
    """Bytes of memory that a process has mapped and touched; 0 where it has ended."""
    fields = _read(process, "statm").split()
    return int(fields[1]) * resource.getpagesize() if fields else 0


def _own_share_bytes(process: int) -> int:
    """As ``_resident_bytes``, a page that several processes share counted in parts; takes milliseconds for each GB."""
    for line in _read(process, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return _resident_bytes(process)


def _read(process: int, name: str) -> str:
    """A file that the kernel has of a process; empty where it has ended, or the judge may not look."""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"/proc/{process}/{name}", os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 14).decode(errors="replace")
        finally:
            os.close(descriptor)
    return ""
