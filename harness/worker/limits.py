"""Resource limits that the worker sets on itself before it runs a candidate."""

from __future__ import annotations

import os
import resource
import sys

#: The largest file in bytes. Libraries and compilers' scratch files are far smaller.
MAX_FILE_BYTES = 2 << 30
MAX_OPEN_FILES = 4096
#: Limits for processes and threads. Each core needs a few pools of OpenMP threads and a compiler
#: with its passes; CUDA adds its own threads.
LEAST_PROCESSES, PROCESSES_PER_CORE = 1024, 16
#: The limit for queued signals and POSIX timers. The kernel counts them per user and allows some
#: ten thousand by default.
MAX_PENDING_SIGNALS = 1024


#: Address space that only ``release_reserve`` frees: Python's own code crashes where it finds none.
RESERVE_BYTES = 16 << 20


def limit_memory(allowance: int) -> None:
    """Limits the address space to what is mapped now plus ``allowance`` bytes.

    The hard limit is larger by ``RESERVE_BYTES``.

    The function also disables core dumps.

    If the harness was started under a tighter limit, that limit stays.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path object needed
        pages = int(file.read().split()[0])
    bound = pages * resource.getpagesize() + allowance
    _lower(resource.RLIMIT_AS, bound + RESERVE_BYTES)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (min(bound, most), most))


def release_reserve() -> None:
    """Frees the reserve, so that the worker can report that a candidate has used up its memory."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def limit_files() -> None:
    """Limits the size of files and the number of open files, and disables core dumps."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)


def limit_signals() -> None:
    """Limits queued signals and POSIX timers, so that the user's other programs keep some."""
    if sys.platform == "linux":
        _lower(resource.RLIMIT_SIGPENDING, MAX_PENDING_SIGNALS)


def limit_processes(alone: bool) -> None:
    """Limits the number of processes and threads of this user (Linux).

    The kernel counts by user and exempts root. If the user has other processes, the function adds
    the number of all processes on the machine to the limit. That is one number to read, and it
    includes processes that a container hides.

    Args:
        alone: Whether this user has no other process.

    Raises:
        OSError: The kernel does not report the number of processes.
    """
    allowance = LEAST_PROCESSES + PROCESSES_PER_CORE * (os.cpu_count() or 1)
    running = 0
    if not alone:
        with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123 - no path object needed
            running = int(file.read().split()[3].partition("/")[2])
    _lower(resource.RLIMIT_NPROC, running + allowance)


def _lower(kind: int, bound: int) -> None:
    """Sets a hard limit; a tighter one from before stays."""
    _, most = resource.getrlimit(kind)
    least = bound if most == resource.RLIM_INFINITY else min(bound, most)
    resource.setrlimit(kind, (least, least))
