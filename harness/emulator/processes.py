"""Runs compiler processes that end with the process that started them, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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
        was_ended: True if this program ended it, since another one had failed.
    """

    status: int
    output: str
    was_ended: bool = False

    @property
    def was_killed(self) -> bool:
        """True if somebody else's SIGKILL ended the process itself, not only one of its children."""
        return not self.was_ended and self.status in (-signal.SIGKILL, 128 + signal.SIGKILL)


def run_together(
    commands: Sequence[Sequence[str]],
    scratch: Path,
    is_over: Callable[[int, FinishedProcess], bool] = lambda index, failed: False,
    descriptors: Collection[int] = (),
) -> list[FinishedProcess]:
    """Runs commands side by side and waits for all of them.

    Args:
        commands: The programs with their arguments.
        scratch: A private folder for their output and temporary files.
        is_over: Called with the index and the result of each one that fails; returns whether to end
            the others.
        descriptors: Descriptors that the programs inherit.

    Returns:
        The result of each command, in the same order.

    Raises:
        OSError: A process cannot be started.
    """
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(scratch)}
    running: list[subprocess.Popen[bytes]] = []
    logs = [scratch / f"output-{index}.txt" for index in range(len(commands))]
    found: dict[int, FinishedProcess] = {}
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
                        pass_fds=descriptors,
                    )
                )
        with ThreadPoolExecutor(len(running) or 1) as pool, contextlib.ExitStack() as at_end:
            for process in running:
                at_end.callback(_end, process)  # before the pool waits for its threads
            waiting = {pool.submit(_wait_for_end, process.pid): index for index, process in enumerate(running)}
            ended = False
            for waited in as_completed(waiting):
                waited.result()
                index = waiting[waited]
                said = logs[index].read_text(encoding="utf-8", errors="replace")
                found[index] = FinishedProcess(running[index].wait(), said, was_ended=ended)
                if found[index].status != 0 and not ended and is_over(index, found[index]):
                    ended = True
                    at_end.close()
    finally:
        for process in running:
            _end(process)
    return [found[index] for index in range(len(commands))]


def _wait_for_end(pid: int) -> None:
    """Waits until a process has ended, and leaves its exit status to be read by ``Popen``.

    Until it is read, the process keeps its number. So ``_end``, in another thread, cannot signal a
    number that is free again.
    """
    with contextlib.suppress(ChildProcessError):  # ``_end`` was first, and has read it
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the rest of a process group. Nothing is left if the process ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
