"""Tests the scheduler and the lanes as a state machine: every request gets one answer, in any order of events.

Lanes, builders and the source are fakes, and ``connection.wait`` lets hypothesis choose what happens next. A driver
that waits though nothing can happen any more hangs, and fails the test.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import ProblemError, UsageError
from harness.executors import lanes as lanes_module
from harness.executors.lane_handle import LaneDied
from harness.executors.lanes import MOST_DEATHS, MOST_LOST, Lanes
from harness.executors.plan import Job, Planned
from harness.executors.prebuild import PlannedWork
from harness.executors.protocol import CandidateFinished, Opened, Overrun, TimingTurn, Words
from harness.executors.scheduler import Asked, Fault, Judged, KeptRecord, Scheduler
from harness.judge.evaluation.blank_records import blank_record
from harness.judge.policy import Policy
from harness.judge.process.time_limits import Limits
from harness.project.problems import Problem
from harness.project.solutions import Candidate, Solution
from harness.records.kernels import CompiledKernel, KernelLimits
from harness.records.record import EvaluationRecord, PrecisionClass, Status

POLICY = Policy("cpu", "5eed", Limits(1.0, 1.0))
CASES = {"a": {}, "b": {"n": 2}}


def problem(name: str) -> Problem:
    return Problem(
        name, Path(f"{name}.py"), "", f"digest of {name}", frozenset({"n"}), dict(CASES), PrecisionClass.FP32
    )


@dataclass(frozen=True)
class Line:
    """A request: ``kind`` says what it leads to, ``deaths`` how many lanes end at it."""

    kind: str
    problem: str
    is_planned: bool
    deaths: int


LINES = st.builds(
    Line,
    st.sampled_from(["good", "good", "stored", "bad", "blank", "faulty"]),
    st.sampled_from(["one", "two", "unfit"]),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, MOST_DEATHS]),
)


class Ledger:
    """A store that knows the candidates whose names say so."""

    def recall(self, blank: EvaluationRecord, *, may_be_short: bool) -> EvaluationRecord | None:
        return replace(blank, status=Status.PASSED) if blank.solution.startswith("stored") else None

    def has_passed(self, blank: EvaluationRecord) -> bool:
        return False


class Recorder:
    """A lane that notes what it is given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def send(self, work: PlannedWork) -> None:
        self.given.append(work.job.candidate.solution.name)


class Builders:
    """Builders whose builds begin and end when the world says so."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.builds: list[Future[Any]] = []

    def begin(self, work: PlannedWork) -> None:
        work.build = Future()
        self.builds.append(work.build)

    def forget_finished(self) -> None:
        """Nothing to forget."""

    def pause(self) -> None:
        """Nothing runs."""

    def resume(self) -> None:
        """Nothing runs."""


@dataclass(eq=False)
class Lane:
    """A lane that says what the world has it say."""

    device: str
    work: PlannedWork | None = None
    says: Any = None
    is_closed: bool = False

    def send(self, work: PlannedWork) -> None:
        self.work = work

    def answer(self) -> None:
        """It goes on in any case."""

    def receive(self) -> Any:
        said, self.says = self.says, None
        if isinstance(said, Exception):
            raise said
        return said

    def end(self) -> None:
        """It ends when it is closed."""

    def close(self) -> None:
        self.is_closed = True


@dataclass
class World:
    """What happens around the driver."""

    data: st.DataObject
    lines: list[Line]
    is_lockstep: bool
    arrived: int = 0
    read: int = 0
    has_ended: bool = False
    unopened: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    answered: Counter[tuple[str, str]] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    builders: Builders = field(default_factory=Builders)
    feed: Scheduler | None = None
    lanes: Lanes | None = None

    def __iter__(self) -> Iterator[Asked]:
        while True:
            assert self.is_ready(), "the driver reads what has not arrived: it would wait for ever"
            if self.read == len(self.lines):
                return
            number, self.read = self.read, self.read + 1
            yield self.asked(number)

    def asked(self, number: int) -> Asked:
        line = self.lines[number]
        if line.kind == "blank":
            return None
        name = f"{line.kind} {number}"
        if line.kind == "bad":
            return Fault(UsageError("bad"), name, name)
        solution = Solution(name, Path(f"{number}.py"), "", f"digest {number}")
        cases = tuple(CASES.items()) if line.is_planned else None
        return Job(Candidate(problem(line.problem), solution), cases, name)

    def is_ready(self) -> bool:
        return self.arrived > self.read or (self.has_ended and self.read == len(self.lines))

    def wanted(self, number: int) -> set[tuple[str, str]]:
        """The answers that a line must get: by its tag and case."""
        line, name = self.lines[number], f"{self.lines[number].kind} {number}"
        if line.kind == "blank":
            return set()
        if line.kind == "bad" or (line.problem == "unfit" and not line.is_planned):
            return {(name, "")}
        return {(name, case) for case in CASES}

    def may_arrive(self) -> bool:
        if self.has_ended:
            return False
        if not self.is_lockstep:
            return True
        return all(self.wanted(number) <= self.answered.keys() for number in range(self.arrived))

    def events(self, watched: list[Any]) -> list[tuple[str, Any]]:
        assert self.feed is not None
        assert self.lanes is not None
        assert not self.feed.can_read(len(self.lanes.free)), "it waits though it could read"
        found: list[tuple[str, Any]] = []
        for one in watched:
            if one is self and (self.may_arrive() or self.is_ready()):
                found.append(("arrival", one))
            elif isinstance(one, Lane):
                found.append(("lane", one))
        for build in self.builders.builds:
            if build.running():
                found.append(("built", build))
            elif not build.done():
                found.append(("building", build))
        return found

    def wait(self, watched: list[Any], timeout: float | None = None) -> list[Any]:
        events = self.events(watched)
        assert events, "nothing can happen any more: the driver hangs"
        what, one = self.data.draw(st.sampled_from(events))
        if what == "arrival":
            if self.may_arrive():
                self.has_ended = self.arrived == len(self.lines)
                self.arrived += not self.has_ended
            return [one]
        if what == "building":
            one.set_running_or_notify_cancel()
            return []
        if what == "built":
            one.set_result({})
            return [self.builders] if self.builders in watched else []
        one.says = self.next_words(one)
        return [one]

    def next_words(self, lane: Lane) -> Any:
        assert self.lanes is not None
        if lane.work is None:
            # The last lane may end at its start, too, but not for ever.
            if self.unopened < MOST_LOST - 1 and self.data.draw(st.booleans()):
                self.unopened += 1
                return LaneDied("at its start")
            self.unopened = 0
            return Opened("cpu", {}, None)
        work, tag = lane.work, str(lane.work.job.tag)
        line = self.lines[int(tag.split()[1])]
        most = line.deaths if work.is_planned else min(line.deaths, MOST_DEATHS - 1)  # more, and its problem is unfit
        if self.deaths[tag] < most and self.data.draw(st.booleans()):
            self.deaths[tag] += 1
            return LaneDied("signal SIGBUS")
        if self.data.draw(st.integers(0, 4)) == 0:
            return self.data.draw(st.sampled_from([Words("at it"), TimingTurn(True), TimingTurn(False)]))
        if not work.is_planned:
            is_unfit = line.problem == "unfit"
            return Planned((), error=ProblemError("unfit")) if is_unfit else Planned(tuple(CASES.items()))
        if not work.cases:
            return CandidateFinished()
        if line.kind == "faulty":
            return self.data.draw(st.sampled_from([ProblemError("faulty"), Overrun()]))
        return blank_record(work.job.candidate, POLICY, {}, *work.cases[0])


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data(), st.lists(LINES, max_size=6), st.booleans(), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2))
def test_whatever_happens_each_request_is_answered_once(
    monkeypatch: pytest.MonkeyPatch,
    data: st.DataObject,
    lines: list[Line],
    is_lockstep: bool,
    count: int,
    ahead: int,
    builders: int,
) -> None:
    world = World(data, lines, is_lockstep)
    world.builders.count = builders
    monkeypatch.setattr(lanes_module.connection, "wait", world.wait)
    monkeypatch.setattr("harness.judge.process.worker_handle.end_adopted", lambda: None)

    def done(job: Job) -> None:
        world.finished[str(job.tag)] += 1

    feed = Scheduler(
        world,
        POLICY,
        {},
        Ledger(),  # type: ignore[arg-type]
        world.builders if ahead else None,
        ahead=ahead,
        confirms=False,
        is_ready=world.is_ready,
        done=done,
        plans={},
    )
    free: list[Any] = [Lane("cpu") for _ in range(count)]
    lanes = Lanes("cpu", {}, None, None, Lane, free=free)  # type: ignore[arg-type]
    world.feed, world.lanes = feed, lanes
    for outcome in lanes.judge(feed, lambda _: None, world.builders if ahead else None, world):  # type: ignore[arg-type]
        match outcome:
            case Fault():
                world.answered[str(outcome.tag), outcome.case or ""] += 1
            case Judged():
                world.answered[str(outcome.work.job.tag), outcome.record.case] += 1
            case KeptRecord():
                world.answered[str(outcome.tag), outcome.record.case] += 1
    wanted = Counter({key: 1 for number in range(len(lines)) for key in world.wanted(number)})
    assert world.answered == wanted
    jobs = [f"{line.kind} {number}" for number, line in enumerate(lines) if line.kind not in ("blank", "bad")]
    assert world.finished == Counter(jobs)
    assert not lanes.busy
    assert all(not lane.is_closed for lane in lanes.free)


def test_a_candidate_builds_while_a_lane_sizes_its_cases() -> None:
    builders, solution = Builders(), Solution("late", Path("late.py"), "", "digest")
    feed = Scheduler(
        [Job(Candidate(problem("one"), solution), None, to_beat={"a": 1.5})],
        POLICY,
        {},
        Ledger(),  # type: ignore[arg-type]
        builders,  # type: ignore[arg-type]
        ahead=1,
        confirms=False,
        is_ready=lambda: True,
        done=lambda job: None,
        plans={},
    )
    assert list(feed.fill(0)) == []  # no lane is free to build it
    sized = feed.take()
    assert sized is not None
    assert not sized.is_planned
    assert pickle.loads(pickle.dumps(sized)).build is None  # a lane's process has no part in the build
    (build,) = builders.builds
    assert build.set_running_or_notify_cancel()
    assert list(feed.planned(sized, Planned(tuple(CASES.items())), 1)) == []
    assert feed.take() is None  # it is being built
    build.set_result({"key": ("refused", "log")})
    built = feed.take()
    assert built is not None
    assert built.is_planned
    assert built.policy.to_beat == {"a": 1.5}
    assert built.refused == {"key": ("refused", "log")}
    assert len(builders.builds) == 1


def test_of_built_candidates_with_limits_those_without_spills_come_first_and_none_beyond_a_limit() -> None:
    spilled = {"one": 4, "two": 0, "three": 400, "four": 0}

    def kernels_of(digest: str) -> tuple[CompiledKernel, ...]:
        return (CompiledKernel("k", "sm_90", 32, 0, 0, spilled[digest], 0, None),)

    def taken(limits: KernelLimits | None) -> tuple[list[str], list[str]]:
        feed = Scheduler(
            [
                Job(
                    Candidate(problem("one"), Solution(name, Path(name), "", name)),
                    (("a", {}),),
                    limits_of_kernels=limits,
                )
                for name in spilled
            ],
            POLICY,
            {},
            Ledger(),  # type: ignore[arg-type]
            None,
            ahead=4,
            confirms=False,
            is_ready=lambda: True,
            done=lambda job: None,
            plans={},
            kernels_of=kernels_of,
        )
        assert list(feed.fill(1)) == []
        lanes, faults = Lanes("cpu", {}, *cast(Any, [None] * 3)), list[str]()
        given: list[str] = []
        for _ in spilled:
            lane = Recorder()
            lanes.free = [cast(Any, lane)]
            faults += [f"{one.solution}: {one.error}" for one in lanes._hand_out(feed) if isinstance(one, Fault)]
            given += lane.given
        return given, faults

    assert taken(None) == (["one", "two", "three", "four"], [])
    assert taken(KernelLimits()) == (["two", "four", "one", "three"], [])
    words = "three: nvcc gives k spilled_bytes=400, and the limit is 100"
    assert taken(KernelLimits(spilled_bytes=100)) == (["two", "four", "one"], [words])


@pytest.mark.parametrize(("count", "names"), [(1, ["one"]), (2, [])])
def test_a_free_lane_builds_only_where_builders_are_few(count: int, names: list[str]) -> None:
    solution = Solution("one", Path("one.py"), "", "digest")
    feed = Scheduler(
        [Job(Candidate(problem("one"), solution), tuple(CASES.items()))],
        POLICY,
        {},
        Ledger(),  # type: ignore[arg-type]
        Builders(count),  # type: ignore[arg-type]
        ahead=1,
        confirms=False,
        is_ready=lambda: True,
        done=lambda job: None,
        plans={},
    )
    assert list(feed.fill(1)) == []
    taken = feed.take()
    assert ([taken.job.candidate.solution.name] if taken and not taken.build else []) == names
