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

from harness.device.devices import guess
from harness.errors import DeviceError, HarnessError, ProblemError
from harness.executors.plan import Planned
from harness.executors.protocol import CandidateFinished, Failure, Opened, Opening, Overrun, TimingTurn, Words
from harness.executors.tools import tools_for
from harness.project.paths import QUIET, import_path
from harness.records.record import Status
from harness.system.interrupts import shielded, unwinding
from harness.system.processes import adopt_orphans
from harness.system.text import printable

if TYPE_CHECKING:
    from harness.compilation.cache import BuildCache
    from harness.executors.prebuild import Builders, PlannedWork
    from harness.executors.scheduler import Fault, Judged, KeptRecord, RequestSource, Scheduler
    from harness.judge.process.zygote import Process

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
        self.work: PlannedWork | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._started(theirs)
        self._link = connection.Connection(ours.detach())
        with contextlib.suppress(BrokenPipeError):  # that shows when it is listened to
            self._link.send(opening)

    def _started(self, theirs: socket.socket) -> Process:
        """Starts the process, which gets this end of the link."""
        return subprocess.Popen(
            [sys.executable, *QUIET, "-m", "harness.executors.lane_process", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env={**os.environ, "PYTHONPATH": import_path()},
            pass_fds=[theirs.fileno()],
            process_group=0,  # a Ctrl-C is the driver's
        )

    def fileno(self) -> int:
        """Can be read when the lane has said something, or has ended."""
        return self._link.fileno()

    def send(self, work: PlannedWork) -> None:
        """Have it judge a candidate."""
        self.work = work
        with contextlib.suppress(BrokenPipeError):  # that shows when it is listened to
            self._link.send(work)

    def answer(self) -> None:
        """Let it time its candidate: builds stand still."""
        with contextlib.suppress(BrokenPipeError):
            self._link.send(None)

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
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._link.close()


class LaneHandle(Protocol):
    """A driver's hold on a lane, on this machine or elsewhere.

    Attributes:
        device: Its device, or what else tells it from others.
        work: What it judges; None while it is free, or not ready yet.
    """

    device: str
    work: PlannedWork | None

    def fileno(self) -> int:
        """Can be read when the lane has said something, or has ended."""

    def send(self, work: PlannedWork) -> None:
        """Have it judge a candidate."""

    def answer(self) -> None:
        """Let it time its candidate, after ``TimingTurn``."""

    def receive(self) -> Any:
        """What it says next: one of the messages of ``link``, ``Planned``, a record, or a problem's error.

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
    """The lanes of a driver; the driver itself imports no torch and runs no problem's code.

    Attributes:
        device: ``cpu`` or ``cuda:N``; ``cuda`` for several GPUs.
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
    _overruns: dict[tuple[str, str, str], ProblemError] = field(default_factory=dict)

    def judge(
        self, feed: Scheduler, progress: Callable[[str], None], builders: Builders | None, source: RequestSource | None
    ) -> Generator[KeptRecord | Judged | Fault]:
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
        while True:
            yield from feed.fill(len(self.free))
            yield from self._hand_out(feed)
            if feed.is_over:
                return
            if feed.can_read(len(self.free)):
                continue  # what was handed out made room, and a descriptor does not tell of lines that are read already
            watched: list[Any] = [*self.busy, *self.opening]
            if builders is not None:
                watched.append(builders)
            if source is not None and feed.has_room(len(self.free)):
                watched.append(source)
            answering: list[Any] = connection.wait(watched)
            for ready in answering:
                if ready in self.busy:
                    yield from self._heard(ready, feed, progress, builders)
                elif ready in self.opening:
                    self._answered(ready)
                elif builders is not None and ready is builders:
                    builders.forget_finished()

    def _hand_out(self, feed: Scheduler) -> Iterator[KeptRecord | Fault]:
        """Give each free lane a candidate."""
        while self.free and (work := feed.take()) is not None:
            if work.is_planned:
                yield from feed.known_by_now(work)
                yield from self._without_overruns(work)
                if not work.cases:
                    feed.finish(work)
                    continue
            lane = self.free.pop(0)
            self.busy.append(lane)
            lane.send(work)

    def _without_overruns(self, work: PlannedWork) -> Iterator[Fault]:
        """Leave out the cases whose reference is known to take too long."""
        from harness.executors.scheduler import Fault

        left = []
        for case, trials in zip(work.cases, work.trials, strict=True):
            if error := self._overruns.get(_case_key(work, case)):
                yield Fault.of(work.job, error, case[0])
            else:
                left.append((case, trials))
        work.cases, work.trials = tuple(case for case, _ in left), tuple(trials for _, trials in left)

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

    def _heard(
        self, lane: LaneHandle, feed: Scheduler, progress: Callable[[str], None], builders: Builders | None
    ) -> Iterator[KeptRecord | Judged | Fault]:
        from harness.executors.scheduler import Fault, Judged

        work = lane.work
        assert work is not None
        try:
            said = lane.receive()
        except (LaneDied, HarnessError) as death:
            if builders is not None:
                builders.resume()
            yield from self._lost(lane, work, death, feed)
            return
        if isinstance(said, Words):
            progress(said.words)
        elif isinstance(said, TimingTurn):
            if said.begins and builders is not None:
                builders.pause()
            elif builders is not None:
                builders.resume()
            if said.begins:
                lane.answer()
        elif isinstance(said, Overrun):
            yield from self._overrun(lane, work, said.error, feed)
        elif isinstance(said, Planned):
            for note in said.notes:
                _tell(note)
            self._is_free(lane)
            yield from feed.planned(work, said, len(self.free))
        elif isinstance(said, CandidateFinished):
            self._is_free(lane)
            feed.finish(work)
        else:
            case, work.cases, work.trials = work.cases[0][0], work.cases[1:], work.trials[1:]
            yield Fault.of(work.job, said, case) if isinstance(said, ProblemError) else Judged(work, said)

    def _is_free(self, lane: LaneHandle) -> None:
        lane.work = None
        self._lost_with.pop(lane.device, None)
        self.busy.remove(lane)
        self.free.append(lane)

    def _overrun(
        self, lane: LaneHandle, work: PlannedWork, error: ProblemError, feed: Scheduler
    ) -> Iterator[KeptRecord | Judged | Fault]:
        """End a lane whose problem takes too long on a case, and go on without that case."""
        self.busy.remove(lane)
        self._end(lane)
        self.opening.append(self.start(lane.device))
        if work.is_planned:
            self._overruns[_case_key(work, work.cases[0])] = error
            feed.give_back(work)
        else:
            yield from feed.planned(work, Planned((), error=error), len(self.free))

    def _lost(
        self, lane: LaneHandle, work: PlannedWork, death: Exception, feed: Scheduler
    ) -> Iterator[KeptRecord | Judged | Fault]:
        """Give what a lane was judging to others, and replace it unless its device is to blame.

        Raises:
            DeviceError: No lane is left.
        """
        self.busy.remove(lane)
        self._end(lane)
        work.deaths += 1
        lost_with = self._lost_with.setdefault(lane.device, set())
        lost_with.add(id(work))
        _tell(f"{lane.device}: a lane was lost: {death}")
        # A processor computes as before, whatever its lanes die of.
        if not isinstance(death, DeviceError) and (lane.device == "cpu" or len(lost_with) < MOST_LOST):
            self.opening.append(self.start(lane.device))
        else:
            _tell(f"{lane.device} is out; its candidates go to others")
        if work.deaths < MOST_DEATHS:
            feed.give_back(work)
        elif work.is_planned:
            yield from _given_up(work, death, self.environment)
            feed.finish(work)
        else:
            name = work.job.candidate.problem.name
            error = ProblemError(f"{name}: the judge's process ended {MOST_DEATHS} times while it sized cases: {death}")
            yield from feed.planned(work, Planned((), error=error), len(self.free))
        self._check_left(death)

    @staticmethod
    def _end(lane: LaneHandle) -> None:
        """End a lane that is lost, and what it has started."""
        from harness.judge.process.handle import end_adopted

        lane.close()
        end_adopted()

    def close(self) -> None:
        """End all lanes."""
        with shielded():
            lanes = [*self.free, *self.busy, *self.opening]
            self.free, self.busy, self.opening = [], [], []
            for lane in lanes:
                lane.end()
            for lane in lanes:
                lane.close()


def _case_key(work: PlannedWork, case: tuple[str, dict[str, Any]]) -> tuple[str, str, str]:
    """What a reference's time depends on."""
    return work.job.candidate.problem.digest, case[0], repr(sorted(case[1].items()))


def _tell(words: str) -> None:
    """Say something on stderr that concerns no single candidate."""
    print(printable(words), file=sys.stderr)


def _given_up(work: PlannedWork, death: Exception, environment: dict[str, str]) -> Iterator[Judged]:
    """Records of a candidate that ends every lane; such a record answers nothing later."""
    from harness.executors.scheduler import Judged
    from harness.judge.evaluation.blank_records import blank_record

    message = f"the judge's process ended {MOST_DEATHS} times while it judged this: {death}"
    for case, constants in work.cases:
        blank = blank_record(work.job.candidate, work.policy, environment, case, constants)
        yield Judged(work, replace(blank, status=Status.HARNESS_ERROR, message=message))


@dataclass(frozen=True)
class Wanted:
    """What lanes are opened for.

    Attributes:
        home: ``HARNESS_HOME``.
        is_timed: Whether speed is measured, on a GPU.
        starts_ahead: Whether workers are sure to be needed.
        calibrates: Whether the GPU's ceilings are measured first, where nobody has.
    """

    home: Path
    is_timed: bool = True
    starts_ahead: bool = True
    calibrates: bool = False


@contextlib.contextmanager
def lanes_on(devices: Sequence[str], wanted: Wanted) -> Iterator[Lanes]:
    """Open a lane for each device named; one that is named twice gets two.

    Args:
        devices: Names as ``--device`` takes them, one device each.
        wanted: What the lanes are for.

    Raises:
        UsageError: A name means no device.
        DeviceError: There is no such GPU.
        ToolchainError: What builds for the device is missing.
        HarnessError: A lane does not start.
    """
    home, is_alone = wanted.home, len(devices) == 1
    for device in devices:
        guess(device)
    adopt_orphans()
    with contextlib.ExitStack() as stack, unwinding():

        def start(device: str) -> LaneProcess:
            return LaneProcess(
                Opening(
                    device,
                    home,
                    wanted.is_timed,
                    os.getpid(),
                    is_alone=is_alone,
                    starts_ahead=wanted.starts_ahead,
                    calibrates=wanted.calibrates,
                )
            )

        started: list[LaneProcess] = []
        for device in devices:
            with shielded():
                started.append(start(device))
                stack.callback(started[-1].close)
        from harness.compilation.cache import BuildCache
        from harness.executors.prebuild import LocalBuilders
        from harness.judge.process.workers import Workers

        said = [opening_of(lane) for lane in started]
        for lane, opened in zip(started, said, strict=True):
            lane.device = opened.device
        first = said[0].device
        tools = tools_for(first, home)
        workers = Workers.that_build(first, tools.libraries, said[0].capability)
        stack.enter_context(contextlib.closing(workers))
        lanes = Lanes(
            first if is_alone else first.partition(":")[0],
            said[0].environment,
            BuildCache(home / "builds"),
            lambda most: LocalBuilders(workers, BuildCache(home / "builds"), most),
            start,
            free=[*started],
        )
        stack.enter_context(contextlib.closing(lanes))
        yield lanes
