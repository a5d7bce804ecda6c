"""Compiler processes that end with the process that started them, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# A compiler driver starts children of its own, which a death signal sent to the driver would not reach. The shell
# reads a pipe that only we hold: when we are gone it kills its whole process group, the compiler's children included.
_WATCHED = """
exec 3<&0
{ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &
watcher=$!
"$@" </dev/null 3<&-
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""

_ABANDONED_AFTER_S = 60.0
_SCRATCH_PREFIX = ".build-"


@dataclass(frozen=True)
class Finished:
    """A process that has ended.

    Attributes:
        status: Its exit status; negative for a signal.
        output: What it printed, both streams together.
    """

    status: int
    output: str


def run_together(commands: Sequence[Sequence[str]], scratch: Path) -> list[Finished]:
    """Runs commands side by side and waits for all of them.

    Args:
        commands: Programs with their arguments.
        scratch: A private folder for their output and temporary files.

    Returns:
        How each ended, in the order given.

    Raises:
        OSError: If a process cannot be started.
    """
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(scratch)}
    running: list[subprocess.Popen[bytes]] = []
    logs = [scratch / f"output-{index}.txt" for index in range(len(commands))]
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("wb") as output:
                running.append(
                    subprocess.Popen(
                        ["/bin/sh", "-c", _WATCHED, "sh", *command],
                        stdin=subprocess.PIPE,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=environment,
                        process_group=0,
                    )
                )
        statuses = [process.wait() for process in running]
    finally:
        for process in running:
            _end(process)
    return [
        Finished(status, log.read_text(encoding="utf-8", errors="replace"))
        for status, log in zip(statuses, logs, strict=True)
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of a process group; nothing is where the process has ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A private folder beside what will be built, removed at the end.

    Folders whose owner was killed are removed too: an owner holds a lock on its folder, which the system releases
    with the process.

    Args:
        parent: Where the folder is made; created when missing.

    Yields:
        The folder.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_SCRATCH_PREFIX}*"):
        try:
            # A folder is locked a moment after it is made, so a new one is never taken for an abandoned one.
            if time.time() - folder.stat().st_mtime < _ABANDONED_AFTER_S:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # removed by someone else, or not ours to open
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
