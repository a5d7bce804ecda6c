"""Runs compiler processes that end with the process that started them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# A compiler driver starts children, which a death signal to the driver would not reach. So a shell
# reads a pipe that only this process holds. When this process ends, the shell kills its whole
# process group with the compiler's children.
_WATCHED = """
exec 3<&0
{ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &
watcher=$!
"$@" </dev/null 3<&-
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""


@dataclass(frozen=True)
class FinishedProcess:
    """A process that has ended.

    Attributes:
        status: The exit status; negative for a signal.
        output: The output of both streams.
    """

    status: int
    output: str

    @property
    def was_killed(self) -> bool:
        """True if SIGKILL ended the process itself, not only one of its children."""
        return self.status in (-signal.SIGKILL, 128 + signal.SIGKILL)


def run_together(commands: Sequence[Sequence[str]], scratch: Path) -> list[FinishedProcess]:
    """Runs commands side by side and waits for all of them.

    Args:
        commands: The programs with their arguments.
        scratch: A private folder for their output and temporary files.

    Returns:
        The result of each command, in the same order.

    Raises:
        OSError: A process cannot be started.
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
        FinishedProcess(status, log.read_text(encoding="utf-8", errors="replace"))
        for status, log in zip(statuses, logs, strict=True)
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the rest of a process group. Nothing is left if the process ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
