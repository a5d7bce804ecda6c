"""Lanes: judging processes, each on one device. ``scheduler.py`` chooses what a free lane judges."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.device.devices import guess
from harness.errors import DeviceError, HarnessError, LimitExceeded, ProblemError
from harness.executors.lane_handle import LaneDied, LaneHandle, LaneProcess, opening_of
from harness.executors.plan import Planned
from harness.executors.protocol import (
    CandidateFinished,
    Opening,
    Overrun,
    TimingTurn,
    Words,
)
from harness.executors.tools import tools_for
from harness.records.record import Status
from harness.system.interrupts import shielded, unwinding
from harness.system.processes import adopt_orphans
from harness.system.scratch import check_temporary_folder
from harness.system.text import printable

if TYPE_CHECKING:
    from harness.compilation.cache import BuildCache
    from harness.executors.prebuild import Builders, PlannedWork
    from harness.executors.scheduler import Fault, Judged, KeptRecord, RequestSource, Scheduler, Withdrawals

#: Lanes that one candidate may end before the driver gives it up.
MOST_DEATHS = 3
#: The longest wait in seconds; systems limit what they take.
LONGEST_WAIT_S = 86400.0
#: Lanes lost in a row, without one finished candidate, before a device is taken out of service.
MOST_LOST = 3


class TimeIsUp(Exception):
    """Raised when the deadline has passed, no lane judges, and requests may be left."""


@dataclass
class Lanes:
    """A driver's pool of lanes. The driver does not import torch or run a problem's code.

    Attributes:
        device: ``cpu`` or ``cuda:N``; ``cuda`` for several GPUs.
        environment: The machine's description for the records.
        cache: The build cache.
        building: Opens a pool of builders; its argument is the largest useful number of builders.
        start: Starts a lane on a device.
        free: Lanes without a candidate.
        busy: Lanes that judge a candidate.
        opening: Replacements for lost lanes that are not ready yet.
        most_builders: The largest useful number of builds at a time.
    """

    device: str
    environment: dict[str, str]
    cache: BuildCache
    building: Callable[[int], Builders]
    start: Callable[[str], LaneHandle]
    free: list[LaneHandle] = field(default_factory=list)
    busy: list[LaneHandle] = field(default_factory=list)
    opening: list[LaneHandle] = field(default_factory=list)
    most_builders: int = 1
    _lost_with: dict[str, set[int]] = field(default_factory=dict)
    _unopened: Counter[str] = field(default_factory=Counter)
    _overruns: dict[tuple[str, str, str], ProblemError] = field(default_factory=dict)

    def judge(
        self,
        feed: Scheduler,
        progress: Callable[[str], None],
        builders: Builders | None,
        source: RequestSource | None,
        deadline: float | None = None,
        *,
        withdrawals: Withdrawals | None = None,
    ) -> Generator[KeptRecord | Judged | Fault]:
        """Judges the scheduler's candidates on all lanes in parallel.

        Args:
            feed: The scheduler.
            progress: Called with the name of the current step.
            builders: The pool that builds ahead; None to build in the lanes.
            source: The source of requests that arrive while lanes judge; None if all are known.
            deadline: The time on the monotonic clock after which free lanes wait no longer; None
                for no limit.
            withdrawals: The source, if its requests may be withdrawn; None if not.

        Yields:
            Records from the store, new records, and errors of problems that do not run.

        Raises:
            DeviceError: No lane is left.
            TimeIsUp: The deadline has passed.
        """
        while True:
            yield from feed.fill(len(self.free))
            yield from self._hand_out(feed)
            if feed.is_over:
                return
            if withdrawals is not None:
                withdrawals.read()  # also where the feed has no room for more
            # A descriptor does not report what is already in a buffer, so nothing is read behind these checks.
            if feed.can_read(len(self.free)):
                continue
            if withdrawals is not None and (tags := withdrawals.withdrawn()):
                for tag in tags:
                    self._withdraw(tag, feed, builders)
                continue
            watched: list[Any] = [*self.busy, *self.opening]
            if builders is not None:
                watched.append(builders)
            may_withdraw = withdrawals is not None and not withdrawals.is_over
            if source is not None and (may_withdraw or feed.has_room(len(self.free))):
                watched.append(source)
            patience_s = None
            if deadline is not None and not self.busy:
                if time.monotonic() > deadline:
                    raise TimeIsUp
                patience_s = min(max(0.0, deadline - time.monotonic()), LONGEST_WAIT_S)
            answering: list[Any] = connection.wait(watched, patience_s)
            for ready in answering:
                if ready in self.busy:
                    yield from self._heard(ready, feed, progress, builders)
                elif ready in self.opening:
                    self._answered(ready)
                elif builders is not None and ready is builders:
                    builders.forget_finished()

    def _hand_out(self, feed: Scheduler) -> Iterator[KeptRecord | Fault]:
        """Gives each free lane a candidate."""
        while self.free and (work := feed.take()) is not None:
            if work.is_planned:
                yield from feed.known_by_now(work)
                yield from self._without_overruns(work)
                yield from _without_excess(work, feed.excess(work))
                if not work.cases:
                    feed.finish(work)
                    continue
            lane = self.free.pop(0)
            self.busy.append(lane)
            lane.send(work)

    def _without_overruns(self, work: PlannedWork) -> Iterator[Fault]:
        """Drops the cases whose reference is known to take too long, and yields their faults."""
        from harness.executors.scheduler import Fault

        left = []
        for case, trials in zip(work.cases, work.trials, strict=True):
            if error := self._overruns.get(_case_key(work, case)):
                yield Fault.of(work.job, error, case[0])
            else:
                left.append((case, trials))
        work.cases, work.trials = tuple(case for case, _ in left), tuple(trials for _, trials in left)

    def _answered(self, lane: LaneHandle) -> None:
        """Takes a replacement lane into service, or drops it if it did not start.

        A lane that ended meanwhile is replaced in turn, but not for ever.

        Raises:
            DeviceError: No lane is left.
        """
        self.opening.remove(lane)
        try:
            lane.receive()
        except (LaneDied, HarnessError) as death:
            lane.close()
            self._unopened[lane.device] += 1
            if isinstance(death, LaneDied) and self._unopened[lane.device] < MOST_LOST:
                _tell(f"{lane.device}: lost a lane: {death}")
                self.opening.append(self.start(lane.device))
                return
            _tell(f"{lane.device} is out of service: {death}")
            self._check_left(death)
        else:
            self._unopened[lane.device] = 0
            self.free.append(lane)

    def _check_left(self, death: Exception) -> None:
        if not self.free and not self.busy and not self.opening:
            raise DeviceError(f"no lane is left; the last one failed: {death}")

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
            yield from self._overrun(lane, work, feed)
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

    def _overrun(self, lane: LaneHandle, work: PlannedWork, feed: Scheduler) -> Iterator[KeptRecord | Judged | Fault]:
        """Replaces a lane whose problem takes too long on a case, and drops that case."""
        from harness.executors.own_time import too_long

        error = too_long(work)
        self.busy.remove(lane)
        self._end(lane)
        self.opening.append(self.start(lane.device))
        if work.is_planned:
            self._overruns[_case_key(work, work.cases[0])] = error
            feed.give_back(work)
        else:
            yield from feed.planned(work, Planned((), error=error), len(self.free))

    def _withdraw(self, tag: str, feed: Scheduler, builders: Builders | None) -> None:
        """Drops a candidate that nobody waits for; a lane that judges it ends and is replaced."""
        if feed.withdraw(tag):
            return
        for lane in self.busy:
            if (work := lane.work) is not None and work.job.tag == tag:
                self.busy.remove(lane)
                self._end(lane)
                if builders is not None:
                    builders.resume()
                self.opening.append(self.start(lane.device))
                feed.abandon(work)
                return

    def _lost(
        self, lane: LaneHandle, work: PlannedWork, death: Exception, feed: Scheduler
    ) -> Iterator[KeptRecord | Judged | Fault]:
        """Returns a lost lane's candidate to the scheduler and starts a replacement.

        There is no replacement if the device is at fault. A candidate that ended too many lanes is
        given up.

        Raises:
            DeviceError: No lane is left.
        """
        self.busy.remove(lane)
        self._end(lane)
        work.deaths += 1
        lost_with = self._lost_with.setdefault(lane.device, set())
        lost_with.add(id(work))
        _tell(f"{lane.device}: lost a lane: {death}")
        # A lost lane does not harm a CPU, so the driver always replaces its lanes.
        if not isinstance(death, DeviceError) and (lane.device == "cpu" or len(lost_with) < MOST_LOST):
            self.opening.append(self.start(lane.device))
        else:
            _tell(f"{lane.device} is out of service; other lanes take over its candidates")
        if work.deaths < MOST_DEATHS:
            feed.give_back(work)
        elif work.is_planned:
            yield from _given_up(work, death, self.environment)
            feed.finish(work)
        else:
            name = work.job.candidate.problem.name
            error = ProblemError(
                f"{name}: the judge's process ended {MOST_DEATHS} times while it measured the sizes of cases: {death}"
            )
            yield from feed.planned(work, Planned((), error=error), len(self.free))
        self._check_left(death)

    @staticmethod
    def _end(lane: LaneHandle) -> None:
        """Ends a lost lane and all processes that it started."""
        from harness.judge.process.worker_handle import end_adopted

        lane.close()
        end_adopted()

    def close(self) -> None:
        """Ends all lanes."""
        with shielded():
            lanes = [*self.free, *self.busy, *self.opening]
            self.free, self.busy, self.opening = [], [], []
            for lane in lanes:
                lane.end()
            for lane in lanes:
                lane.close()


def _without_excess(work: PlannedWork, words: str) -> Iterator[Fault]:
    """Drops all cases of a candidate whose kernels exceed a limit, and yields their faults."""
    from harness.executors.scheduler import Fault

    if words:
        for case, _ in work.cases:
            yield Fault.of(work.job, LimitExceeded(words), case)
        work.cases, work.trials = (), ()


def _case_key(work: PlannedWork, case: tuple[str, dict[str, Any]]) -> tuple[str, str, str]:
    """Returns the key of a case: the problem's digest, the case's name and its constants."""
    return work.job.candidate.problem.digest, case[0], repr(sorted(case[1].items()))


def _tell(words: str) -> None:
    """Prints a message on stderr that concerns no single candidate."""
    print(printable(words), file=sys.stderr)


def _given_up(work: PlannedWork, death: Exception, environment: dict[str, str]) -> Iterator[Judged]:
    """Yields ``HARNESS_ERROR`` records for a candidate that ended too many lanes.

    The store never answers a later request with such a record.
    """
    from harness.executors.scheduler import Judged
    from harness.judge.evaluation.blank_records import blank_record

    message = f"the judge's process ended {MOST_DEATHS} times while it judged this candidate: {death}"
    for case, constants in work.cases:
        blank = blank_record(work.job.candidate, work.policy, environment, case, constants)
        yield Judged(work, replace(blank, status=Status.HARNESS_ERROR, message=message))


@dataclass(frozen=True)
class Wanted:
    """The settings of new lanes.

    Attributes:
        home: ``HARNESS_HOME``.
        is_timed: Whether the lanes measure speed on a GPU.
    """

    home: Path
    is_timed: bool = True


@contextlib.contextmanager
def lanes_on(devices: Sequence[str], wanted: Wanted) -> Iterator[Lanes]:
    """Opens one lane for each name in ``devices``; a device named twice gets two lanes.

    Args:
        devices: Names as ``--device`` takes them, one device each.
        wanted: The settings of the lanes.

    Raises:
        UsageError: A name means no device.
        DeviceError: There is no such GPU.
        ToolchainError: The device's compiler or a package is missing.
        HarnessError: A lane does not start, or the temporary folder is of no use.
    """
    home, is_alone = wanted.home, len(devices) == 1
    for device in devices:
        guess(device)
    check_temporary_folder()
    adopt_orphans()
    with contextlib.ExitStack() as stack, unwinding():

        def start(device: str) -> LaneProcess:
            return LaneProcess(Opening(device, home, wanted.is_timed, os.getpid(), is_alone=is_alone))

        from harness.judge.process.zygote import Zygote

        builders = Zygote()
        stack.callback(builders.close)
        if guess(devices[0]) != "cpu":  # it imports torch while the lanes do, so that the first build need not wait
            with shielded():
                builders.start_ahead()
        started: list[LaneProcess] = []
        for device in devices:
            with shielded():
                started.append(start(device))
                stack.callback(started[-1].close)
        from harness.compilation.cache import BuildCache
        from harness.executors.prebuild import LocalBuilders, most_builders
        from harness.judge.process.workers import Workers

        said = [opening_of(lane) for lane in started]
        for lane, opened in zip(started, said, strict=True):
            lane.device = opened.device
        first = said[0].device
        tools = tools_for(first, home)
        most_at_once = most_builders(0 if first == "cpu" else len(devices))
        workers = Workers.that_build(first, tools.libraries, said[0].capability, builders)
        stack.enter_context(contextlib.closing(workers))
        lanes = Lanes(
            first if is_alone else first.partition(":")[0],
            said[0].environment,
            BuildCache(home / "builds"),
            lambda most: LocalBuilders(workers, BuildCache(home / "builds"), min(most, most_at_once)),
            start,
            free=[*started],
            most_builders=most_at_once,
        )
        stack.enter_context(contextlib.closing(lanes))
        yield lanes
