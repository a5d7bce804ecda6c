"""The driver's handles for lanes: a lane's own process on this machine, and what every lane can do."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import HarnessError
from harness.executors.protocol import Failure, Opened, Opening, Overrun, Validation
from harness.judge.process.zygote import start_environment
from harness.project.paths import PYTHON_OPTIONS, import_path

if TYPE_CHECKING:
    from harness.executors.prebuild import PlannedWork
    from harness.judge.process.zygote import Process

#: Timeout in seconds for a lane to end its workers after the driver told it to end.
END_LIMIT_S = 30.0


class LaneDied(Exception):
    """Raised when a lane's process ends on its own; the message gives its exit code or signal."""


class LaneProcess:
    """The driver's handle for a lane's process on this machine.

    Args:
        opening: The first message to the lane.

    Attributes:
        device: The lane's device.
        work: The candidate that the lane judges; None while the lane is free.
    """

    def __init__(self, opening: Opening | Validation):
        self.device = opening.device
        self.work: PlannedWork | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._started(theirs)
        self._link = connection.Connection(ours.detach())
        with contextlib.suppress(BrokenPipeError):  # ``receive`` reports the lane's end
            self._link.send({**os.environ, "PYTHONPATH": import_path()})
            self._link.send(opening)

    def _started(self, theirs: socket.socket) -> Process:
        """Starts the lane's process with its end of the link."""
        return subprocess.Popen(
            [sys.executable, *PYTHON_OPTIONS, "-m", "harness.executors.lane_start", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env=start_environment(),
            pass_fds=[theirs.fileno()],
            process_group=0,  # only the driver gets Ctrl-C
        )

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the lane has sent a message or ended."""
        return self._link.fileno()

    def send(self, work: PlannedWork) -> None:
        """Gives the lane a candidate to judge."""
        self.work = work
        with contextlib.suppress(BrokenPipeError):  # ``receive`` reports the lane's end
            self._link.send(work)

    def answer(self) -> None:
        """Tells the lane that builds are paused and timing may start."""
        with contextlib.suppress(BrokenPipeError):
            self._link.send(None)

    def receive(self) -> Any:
        """Returns the lane's next message.

        Raises:
            LaneDied: The lane has ended without giving a reason.
            HarnessError: The lane has ended and gave this reason.
        """
        try:
            said = self._link.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            if code == -signal.SIGALRM:  # it could not say so itself
                return Overrun()
            raise LaneDied(f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}") from None
        if isinstance(said, Failure):
            raise said.error
        return said

    def end(self) -> None:
        """Tells the lane to end its workers and itself; ``close`` waits for that."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Ends the lane, waits for its process and closes the link."""
        self.end()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._link.close()


class LaneHandle(Protocol):
    """The driver's handle for a lane, on this machine or on a cluster.

    Attributes:
        device: The lane's device, or another name that identifies it.
        work: The candidate that the lane judges; None while the lane is free or not ready yet.
    """

    device: str
    work: PlannedWork | None

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the lane has sent a message or ended."""

    def send(self, work: PlannedWork) -> None:
        """Gives the lane a candidate to judge."""

    def answer(self) -> None:
        """Answers a ``TimingTurn``: the lane may time its candidate."""

    def receive(self) -> Any:
        """Returns the lane's next message.

        That is a message of ``protocol``, a ``Planned``, a record, or a problem's error.

        Raises:
            LaneDied: The lane has ended without giving a reason.
            HarnessError: The lane has ended and gave this reason.
        """

    def end(self) -> None:
        """Tells the lane to end its workers and itself; ``close`` waits for that."""

    def close(self) -> None:
        """Ends the lane, waits for its process and closes the link."""


def opening_of(lane: LaneHandle) -> Opened:
    """Waits until a lane is ready, and returns its first message.

    Raises:
        HarnessError: The lane does not start.
    """
    try:
        said = lane.receive()
    except LaneDied as death:
        raise HarnessError(f"a lane on {lane.device} did not start: {death}") from None
    assert isinstance(said, Opened)
    return said
