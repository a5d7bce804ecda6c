"""``python -m harness.executors.lane_process DESCRIPTOR``: a lane in a process of its own, started by a driver."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from harness.errors import EXIT_INTERRUPTED, HarnessError
from harness.executors.lane import Lane
from harness.executors.own_time import OwnTime
from harness.executors.plan import Planned, fitting
from harness.executors.prebuild import PlannedWork
from harness.executors.protocol import CandidateFinished, Failure, Opened, Opening, Overrun, TimingTurn, Words
from harness.executors.session import calibrated, opened
from harness.judge.process.handle import WorkerHandle
from harness.system import interrupts
from harness.system.processes import die_with_parent

#: Longest that a lane may take to end its workers once its driver has gone.
END_LIMIT_S = 30.0


class Link:
    """The lane's end of its link to the driver; several threads may send."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor."""
        return self._connection.fileno()

    def receive(self) -> Any:
        """What the driver says next.

        Raises:
            EOFError: Nothing more.
        """
        return self._connection.recv()

    def send(self, message: Any) -> None:
        """Tell the driver something.

        Raises:
            BrokenPipeError: It has gone.
        """
        with WorkerHandle.waited, self._lock:  # the driver may be held up, too
            self._connection.send(message)

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """A block in which the driver's builds stand still."""
        self.send(TimingTurn(begins=True))
        with WorkerHandle.waited:
            self.receive()
        try:
            yield
        finally:
            self.send(TimingTurn(begins=False))


def serve(link: Link) -> None:
    """Judge what comes, until the driver closes its end."""
    opening: Opening = link.receive()
    die_with_parent(opening.driver, signal.SIGTERM)
    threading.Thread(target=_end_with, args=(link.fileno(),), daemon=True).start()
    with opened(opening.device, opening.home, opening.starts_ahead, opening.is_timed) as session:
        if opening.calibrates:
            session = calibrated(session, opening.home)
        lane = Lane(session, link.timing) if opening.is_alone else Lane(session)
        link.send(Opened(session.device, session.environment, session.builders.builds_for))
        own_time = OwnTime(lambda error: _overrun(link, Overrun(error)))
        while True:
            try:
                work: PlannedWork = link.receive()
            except EOFError:
                return
            last_word: Planned | CandidateFinished = CandidateFinished()
            with own_time.of(work):
                if not work.is_planned:
                    last_word = fitting(work.job.candidate.problem, work.job.is_main)
                for outcome in lane.judge(work, lambda words: link.send(Words(words))):
                    own_time.next_case()
                    link.send(outcome)
            link.send(last_word)


def _overrun(link: Link, overrun: Overrun) -> None:
    """End this process, whatever its main thread does: a problem takes too long in it."""
    link.send(overrun)
    os._exit(0)


def _end_with(descriptor: int) -> None:
    """Wait until the driver has gone; end this process where its main thread does not."""
    poll = select.poll()
    poll.register(descriptor, 0)  # tells of the other end's closing alone
    poll.poll()
    time.sleep(END_LIMIT_S)
    os._exit(1)


def main() -> int:
    """Serve on the descriptor that the command line names; the exit code."""
    interrupts.reset_inherited()
    interrupts.install()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the driver's, who ends its lanes
    with Connection(int(sys.argv[1])) as connection:
        link = Link(connection)
        try:
            try:
                serve(link)
            except HarnessError as error:
                link.send(Failure(error))
                return error.exit_code
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:  # the driver has ended
            return 0
    return 0


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)  # whatever a problem's code has left running in this process has no say
