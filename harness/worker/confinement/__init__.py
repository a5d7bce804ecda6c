"""Confines the worker before it runs a candidate (Linux): rights, files, sockets, other processes.

Each layer works on its own. If a machine lacks one, the worker reports that, and the others hold.
The calls go through libc by ctypes. Their numbers come from the kernel's own headers. The kernel's
documentation describes Landlock and seccomp (``userspace-api/landlock``,
``userspace-api/seccomp_filter``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.worker.confinement.kernel import Missing
from harness.worker.confinement.landlock import TRUNCATION_VERSION, landlock_version, restrict_files
from harness.worker.confinement.rights import become_nobody, drop_capabilities, is_root, no_new_privileges
from harness.worker.confinement.seccomp import filter_calls
from harness.worker.limits import limit_files, limit_processes, limit_signals


class Confined(NamedTuple):
    """A layer of confinement; ``why`` says why it is missing, and is empty if it holds."""

    layer: str
    why: str


def confine(folder: Path, readable: Sequence[str], trusted: Sequence[int], on_gpu: bool) -> list[Confined]:
    """Confines this process and every process that it will start.

    Args:
        folder: The worker's own folder, the only place where it may write.
        readable: Further files and folders that it may read and execute.
        trusted: The processes that it may not signal: the judge's and the zygote's.
        on_gpu: Whether the GPU's driver must start here.

    Returns:
        Every layer, in the order in which the function applied them.
    """
    found: list[Confined] = []
    of_root: list[tuple[str, Callable[[], None]]] = [
        ("user", lambda: become_nobody(folder, readable)),
        ("capabilities", lambda: drop_capabilities(folder, readable)),
    ]
    layers: list[tuple[str, Callable[[], None]]] = [
        ("no_new_privs", no_new_privileges),
        *(of_root if is_root() else []),
        # The limit on processes counts those of the current user, so it follows the change of user.
        ("limits", lambda: _limit_resources(_is_alone(found))),
        ("files", lambda: restrict_files(folder, readable, on_gpu)),
        (
            "system_calls",
            lambda: filter_calls(
                trusted,
                on_gpu,
                owns_files=not _is_alone(found),
                keeps_lengths=Confined("files", "") in found and landlock_version() >= TRUNCATION_VERSION,
            ),
        ),
    ]
    for name, put_on in layers:
        try:
            if sys.platform != "linux":
                raise Missing("needs Linux")
            put_on()
        except Missing as missing:
            found.append(Confined(name, str(missing)))
        else:
            found.append(Confined(name, ""))
    return found


def _is_alone(found: Sequence[Confined]) -> bool:
    """Tells whether the worker's user owns only the worker's folder and has no other process."""
    return Confined("user", "") in found


def _limit_resources(alone: bool) -> None:
    """Limits file sizes, open files, pending signals and processes, and disables core dumps."""
    limit_files()
    limit_signals()
    try:
        limit_processes(alone)
    except OSError as error:
        raise Missing(f"cannot count the machine's threads: {error.strerror}") from None
