"""Lanes: processes that judge, each on a device; whichever is free takes what comes next."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import DeviceError, HarnessError, ProblemError
from harness.executors.link import QUIET, Failure, Finished, Opened, Opening, Words
from harness.executors.tools import tools_for
from harness.interrupts import shielded, unwinding
from harness.paths import import_path
from harness.processes import adopt_orphans
from harness.records import Status

if TYPE_CHECKING:
    from harness.build.cache import BuildCache
    from harness.executors.ahead import Builders, Work
    from harness.executors.feed import Fault, Feed, Judged, Source, Verdict

#: Longest that a lane may take to end its workers when it is told to end.
END_LIMIT_S = 30.0
#: A candidate that ends so many lanes is not given to another.
MOST_DEATHS = 3
#: A device is out whose lanes end over so many candidates, none of its being finished in between.
MOST_LOST = 3


class LaneDied(Exception):
    """A lane's process has ended without being told to; the message says how."""


class LaneProcess:
    """The driver's hold on a lane.

    Args:
        opening: What it is told first.

    Attributes:
        device: Its device.
        work: What it judges; None while it is free.
    """

    def __init__(self, opening: Opening):
        self.device = opening.device
        self.work: Work | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *QUIET, "-m", "harness.executors.lane_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                env={**os.environ, "PYTHONPATH": import_path()},
                pass_fds=[theirs.fileno()],
            )
        self._link = connection.Connection(ours.detach())
        self._link.send(opening)

    def fileno(self) -> int:
        """Can be read when the lane has said something, or has ended."""
        return self._link.fileno()

    def send(self, work: Work) -> None:
        """Have it judge a candidate."""
        self.work = work
        with contextlib.suppress(BrokenPipeError):  # that shows when it is listened to
            self._link.send(work)

    def receive(self) -> Any:
        """What it says next.

        Raises:
            LaneDied: Nothing more.
            HarnessError: It said why it ends.
        """
        try:
            said = self._link.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            raise LaneDied(f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}") from None
        if isinstance(said, Failure):
            raise said.error
        return said

    def end(self) -> None:
        """Tell it to end its workers and itself; ``close`` waits for that."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End it, and what is left of it."""
        self.end()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._link.close()


class LaneHandle(Protocol):
    """A driver's hold on a lane, on this machine or elsewhere.

    Attributes:
        device: Its device, or what else tells it from others.
        work: What it judges; None while it is free, or not ready yet.
    """

    device: str
    work: Work | None

    def fileno(self) -> int:
        """Can be read when the lane has said something, or has ended."""

    def send(self, work: Work) -> None:
        """Have it judge a candidate."""

    def receive(self) -> Any:
        """What it says next: ``Opened``, ``Words``, a record, a problem's error, ``Finished``.

        Raises:
            LaneDied: Nothing more.
            HarnessError: It said why it ends.
        """

    def end(self) -> None:
        """Tell it to end its workers and itself; ``close`` waits for that."""

    def close(self) -> None:
        """End it, and what is left of it."""


def opening_of(lane: LaneHandle) -> Opened:
    """Wait until a lane is ready; what it says then.

    Raises:
        HarnessError: It does not come to that.
    """
    try:
        said = lane.receive()
    except LaneDied as death:
        raise HarnessError(f"a lane on {lane.device} did not start: {death}") from None
    assert isinstance(said, Opened)
    return said


@dataclass
class Lanes:
    """Lanes that are open, and what else the driver needs; the driver itself is on no GPU.

    Attributes:
        device: ``cpu`` or ``cuda``.
        environment: What records say of the machine.
        cache: Where builds are kept.
        building: Opens what builds ahead; the most builders that are of use.
        start: Starts a lane on a device.
        free: Lanes that judge nothing.
        busy: Lanes that do.
        opening: Lanes that have been started in place of lost ones, and are not ready yet.
    """

    device: str
    environment: dict[str, str]
    cache: BuildCache
    building: Callable[[int], Builders]
    start: Callable[[str], LaneHandle]
    free: list[LaneHandle] = field(default_factory=list)
    busy: list[LaneHandle] = field(default_factory=list)
    opening: list[LaneHandle] = field(default_factory=list)
    _lost_with: dict[str, set[int]] = field(default_factory=dict)

    def judge(
        self, feed: Feed, progress: Callable[[str], None], builders: Builders | None, source: Source | None
    ) -> Generator[Verdict | Judged | Fault]:
        """Judge what the feed has, side by side.

        Args:
            feed: The candidates.
            progress: Called with a word for what happens now.
            builders: Who builds ahead.
            source: Where candidates come from, where they may have to be waited for.

        Yields:
            What is known already, what was found, and the errors of problems that do not run.

        Raises:
            DeviceError: No lane is left.
        """
        while not feed.is_over:
            yield from feed.fill(len(self.free))
            while self.free and (work := feed.take()) is not None:
                yield from feed.known_by_now(work)
                if work.cases:
                    lane = self.free.pop(0)
                    self.busy.append(lane)
                    lane.send(work)
                else:
                    feed.finish(work)
            watched: list[Any] = [*self.busy, *self.opening]
            if builders is not None:
                watched.append(builders)
            if source is not None and self.free:
                watched.append(source)
            if feed.is_over:
                return
            answering: list[Any] = connection.wait(watched)
            for ready in answering:
                if ready in self.busy:
                    yield from self._heard(ready, feed, progress)
                elif ready in self.opening:
                    self._answered(ready)
                elif builders is not None and ready is builders:
                    builders.forget_finished()

    def _answered(self, lane: LaneHandle) -> None:
        """A lane that was started is ready, or will never be.

        Raises:
            DeviceError: No lane is left.
        """
        self.opening.remove(lane)
        try:
            lane.receive()
        except (LaneDied, HarnessError) as death:
            lane.close()
            _tell(f"{lane.device} is out: {death}")
            self._check_left(death)
        else:
            self.free.append(lane)

    def _check_left(self, death: Exception) -> None:
        if not self.free and not self.busy and not self.opening:
            raise DeviceError(f"no lane is left; the last was lost: {death}")

    def _heard(self, lane: LaneHandle, feed: Feed, progress: Callable[[str], None]) -> Iterator[Judged | Fault]:
        from harness.executors.feed import Fault, Judged

        work = lane.work
        assert work is not None
        try:
            said = lane.receive()
        except (LaneDied, HarnessError) as death:
            yield from self._lost(lane, work, death, feed)
            return
        if isinstance(said, Words):
            progress(said.words)
        elif isinstance(said, Finished):
            lane.work = None
            self._lost_with.pop(lane.device, None)
            self.busy.remove(lane)
            self.free.append(lane)
            feed.finish(work)
        else:
            work.cases, work.trials = work.cases[1:], work.trials[1:]
            yield Fault(said, work.job.tag) if isinstance(said, ProblemError) else Judged(work, said)

    def _lost(self, lane: LaneHandle, work: Work, death: Exception, feed: Feed) -> Iterator[Judged]:
        """Give what a lane was judging to others, and replace it unless its device is to blame.

        Raises:
            DeviceError: No lane is left.
        """
        from harness.judge.handle import end_adopted

        self.busy.remove(lane)
        lane.close()
        end_adopted()
        work.deaths += 1
        lost_with = self._lost_with.setdefault(lane.device, set())
        lost_with.add(id(work))
        _tell(f"{lane.device}: a lane was lost: {death}")
        if not isinstance(death, DeviceError) and len(lost_with) < MOST_LOST:
            self.opening.append(self.start(lane.device))
        else:
            _tell(f"{lane.device} is out; its candidates go to others")
        if work.deaths < MOST_DEATHS:
            feed.give_back(work)
        else:
            yield from _given_up(work, death, self.environment)
            feed.finish(work)
        self._check_left(death)

    def close(self) -> None:
        """End all lanes."""
        with shielded():
            lanes = [*self.free, *self.busy, *self.opening]
            self.free, self.busy, self.opening = [], [], []
            for lane in lanes:
                lane.end()
            for lane in lanes:
                lane.close()


def _tell(words: str) -> None:
    """Say something of a lane that is lost."""
    print(words, file=sys.stderr)


def _given_up(work: Work, death: Exception, environment: dict[str, str]) -> Iterator[Judged]:
    """Records of a candidate that ends every lane; such a record answers nothing later."""
    from harness.executors.feed import Judged
    from harness.judge.evaluation import blank_record

    message = f"the judge's process ended {MOST_DEATHS} times while it judged this: {death}"
    for case, constants in work.cases:
        blank = blank_record(work.job.candidate, work.policy, environment, case, constants)
        yield Judged(work, replace(blank, status=Status.HARNESS_ERROR, message=message))


@contextlib.contextmanager
def lanes_on(devices: Sequence[str], home: Path, is_timed: bool) -> Iterator[Lanes]:
    """Open a lane for each device named; one that is named twice gets two.

    Args:
        devices: ``cpu``, or ``cuda:N``.
        home: ``HARNESS_HOME``.
        is_timed: Whether speed is measured, on a GPU.

    Raises:
        DeviceError: There is no such GPU.
        ToolchainError: What builds for the device is missing.
        HarnessError: A lane does not start.
    """
    tools = tools_for(devices[0], home)
    adopt_orphans()
    with contextlib.ExitStack() as stack, unwinding():

        def start(device: str) -> LaneProcess:
            return LaneProcess(Opening(device, home, is_timed, os.getpid()))

        started: list[LaneProcess] = []
        for device in devices:
            started.append(start(device))
            stack.callback(started[-1].close)
        from harness.build.cache import BuildCache
        from harness.executors.ahead import LocalBuilders
        from harness.judge.workers import Workers

        said = [opening_of(lane) for lane in started]
        workers = Workers.that_build(devices[0], tools.libraries, said[0].capability)
        stack.enter_context(contextlib.closing(workers))
        kind, cache = devices[0].partition(":")[0], BuildCache(home / "builds")
        lanes = Lanes(
            kind,
            said[0].environment,
            cache,
            lambda most: LocalBuilders(workers, cache, most),
            start,
            free=[*started],
        )
        stack.enter_context(contextlib.closing(lanes))
        yield lanes
