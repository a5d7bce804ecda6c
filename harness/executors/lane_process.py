"""A lane's own process, from the moment it has its zygote (see ``lane_start``)."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from harness.executors import child_main
from harness.executors.lane import Lane
from harness.executors.own_time import OwnTime, share_s
from harness.executors.plan import Planned, fitting
from harness.executors.prebuild import PlannedWork
from harness.executors.protocol import (
    CandidateFinished,
    CaseBegun,
    Failure,
    Opened,
    Opening,
    Overrun,
    TimingTurn,
    Validation,
    ValidationFinished,
    Words,
)
from harness.executors.session import calibrated, opened
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.zygote import Zygote
from harness.system.processes import die_with_parent

if TYPE_CHECKING:
    import torch

#: Timeout in seconds for a lane to end its workers after its driver has gone.
END_LIMIT_S = 30.0


class Link:
    """The lane's end of the link to its driver. Several threads may send at once."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """Returns the link's descriptor."""
        return self._connection.fileno()

    def receive(self) -> Any:
        """Returns the driver's next message.

        Raises:
            EOFError: The driver has closed its end.
        """
        return self._connection.recv()

    def send(self, message: Any) -> None:
        """Sends the driver a message.

        Raises:
            BrokenPipeError: The driver has gone.
        """
        with WorkerHandle.waited, self._lock:  # the driver may be slow to read
            self._connection.send(message)

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """Pauses the driver's builds for the block."""
        self.send(TimingTurn(begins=True))
        with WorkerHandle.waited:
            self.receive()
        try:
            yield
        finally:
            self.send(TimingTurn(begins=False))


def serve(link: Link, zygote: Zygote) -> None:
    """Does what the driver's first message asks for."""
    opening: Opening | Validation = link.receive()
    die_with_parent(opening.driver, signal.SIGTERM)
    threading.Thread(target=_end_with, args=(link.fileno(),), daemon=True).start()
    from harness.device.devices import choose
    from harness.emulator import autocast

    device = choose(opening.device)
    if device.type == "cpu":
        autocast.emulate()
    if isinstance(opening, Validation):
        _validate(link, opening, device)
    else:
        _judge(link, opening, zygote)


def _validate(link: Link, order: Validation, device: torch.device) -> None:
    """Checks a problem."""
    from harness.judge.validation.validation import validate

    own_time = OwnTime(lambda: _overrun(link))
    with own_time.of(order.limit_s):
        for check in validate(order.problem, device, order.cases, lambda case: link.send(CaseBegun(case))):
            own_time.next_case()
            link.send(check)
    link.send(ValidationFinished())


def _judge(link: Link, opening: Opening, zygote: Zygote) -> None:
    """Judges the candidates that the driver sends until the driver closes its end."""
    with opened(opening.device, opening.home, zygote, opening.is_timed) as session:
        if opening.is_timed:
            session = calibrated(session, opening.home)
        lane = Lane(session, link.timing) if opening.is_alone else Lane(session)
        link.send(Opened(session.device, session.environment, session.builders.builds_for))
        own_time = OwnTime(lambda: _overrun(link))
        while True:
            try:
                work: PlannedWork = link.receive()
            except EOFError:
                return
            last_word: Planned | CandidateFinished = CandidateFinished()
            with own_time.of(share_s(work.policy)):
                if not work.is_planned:
                    is_round = bool(work.policy.preset)
                    last_word = fitting(work.job.candidate.problem, session.device, work.job.is_main, is_round)
                for outcome in lane.judge(work, lambda words: link.send(Words(words))):
                    own_time.next_case()
                    link.send(outcome)
            link.send(last_word)


def _overrun(link: Link) -> None:
    """Reports a problem that takes too long, then ends this process at once."""
    link.send(Overrun())
    os._exit(0)


def _end_with(descriptor: int) -> None:
    """Waits until the driver has gone, then ends this process if its main thread does not."""
    poll = select.poll()
    poll.register(descriptor, 0)  # reports only that the other end has closed
    poll.poll()
    time.sleep(END_LIMIT_S)
    os._exit(1)


def run(connection: Connection, zygote: Zygote) -> int:
    """Serves on the connection, forks workers from the zygote, and returns the exit code."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends this process, see OwnTime
    link = Link(connection)
    return child_main.run(lambda: serve(link, zygote), lambda error: link.send(Failure(error)))
