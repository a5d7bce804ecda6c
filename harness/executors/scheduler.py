"""The scheduler: reads jobs, answers them from the store, has them built, and orders the rest.

The scheduler never blocks: it reads the next job only if one is ready.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from harness.errors import HarnessError
from harness.executors.plan import Cases, Job, Planned, Plans, plan_key
from harness.executors.prebuild import Builders, PlannedWork
from harness.executors.result_cache import ResultCache
from harness.judge.evaluation.blank_records import TRIALS, blank_record
from harness.judge.policy import Policy
from harness.records.kernels import CompiledKernel
from harness.records.record import EvaluationRecord


class KeptRecord(NamedTuple):
    """A record in the store, whether an earlier run stored it, and its request's tag."""

    record: EvaluationRecord
    stored: bool
    tag: str | None = None


class Fault(NamedTuple):
    """The reason why a request has no verdict.

    Attributes:
        error: The reason.
        tag: The request's tag, or None.
        solution: The candidate's name, or the line's number.
        problem: The problem's name; None if it is unknown.
        case: The case's name; None for all cases.
    """

    error: HarnessError
    tag: str | None = None
    solution: str = ""
    problem: str | None = None
    case: str | None = None

    @classmethod
    def of(cls, job: Job, error: HarnessError, case: str | None = None) -> Fault:
        """Makes the fault of a job."""
        return cls(error, job.tag, job.candidate.solution.name, job.candidate.problem.name, case)

    def to_json(self) -> str:
        """Returns one line of JSON with a record's field names, a null status and ``error``."""
        told = {
            "problem": self.problem, "solution": self.solution, "case": self.case, "status": None,
            "error": str(self.error), "tag": self.tag,
        }  # fmt: skip
        return json.dumps(told)


class Judged(NamedTuple):
    """A new record and the work that it belongs to."""

    work: PlannedWork
    record: EvaluationRecord


#: A request to a driver: a job, the fault of a refused request, or None for a blank line.
Asked = Job | Fault | None


class RequestSource(Protocol):
    """A source of requests that arrive while lanes judge others."""

    def is_ready(self) -> bool:
        """Returns whether the next request, or the end, can be read without blocking."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable when a request may be ready."""


class Withdrawals(Protocol):
    """A source of requests that also says which ones are no longer wanted."""

    @property
    def is_over(self) -> bool:
        """True if no further message will arrive."""

    def read(self) -> None:
        """Reads all messages that have arrived."""

    def withdrawn(self) -> Sequence[str]:
        """Returns the tags of requests that were read as withdrawn since the last call."""


class Scheduler:
    """A queue of candidates that chooses the next one for a free lane.

    Args:
        jobs: The jobs to judge; the scheduler reads the next one when there is room.
        policy: The policy to judge by.
        environment: The machine's description for the records.
        ledger: The store.
        builders: The pool that builds ahead; None to build in the lanes.
        ahead: The number of candidates that may wait, in addition to one for each free lane.
        confirms: Whether to ignore the store's answers and judge candidates that passed before in
            one more trial.
        is_ready: Returns whether the next job, or the end, can be read without blocking.
        done: Called with each finished job.
        plans: The cases of problems that fit the device; the scheduler adds to it.
        kernels_of: Returns nvcc's figures of a built solution by its digest; none for what is unknown.
    """

    def __init__(
        self,
        jobs: Iterable[Asked],
        policy: Policy,
        environment: dict[str, str],
        ledger: ResultCache,
        builders: Builders | None,
        *,
        ahead: int,
        confirms: bool,
        is_ready: Callable[[], bool],
        done: Callable[[Job], None],
        plans: Plans,
        kernels_of: Callable[[str], tuple[CompiledKernel, ...]] = lambda _: (),
    ):
        self._kernels_of = kernels_of
        self._jobs = iter(jobs)
        self._policy = policy
        self._environment = environment
        self._ledger = ledger
        self._builders = builders
        self._ahead = ahead
        self._confirms = confirms
        self._is_ready = is_ready
        self._done = done
        self._plans = plans
        self._in_planning: set[tuple[str, str]] = set()
        self._waiting: list[PlannedWork] = []
        self._at_work = 0
        self._is_read = False

    @property
    def is_over(self) -> bool:
        """Returns whether all jobs are read and finished."""
        return self._is_read and not self._waiting and not self._at_work

    def has_room(self, idle: int) -> bool:
        """Returns whether there is room for another job.

        Args:
            idle: The number of free lanes.
        """
        return not self._is_read and len(self._waiting) < idle + self._ahead

    def can_read(self, idle: int) -> bool:
        """Returns whether ``fill`` would now take a job or see the end."""
        return self.has_room(idle) and self._is_ready()

    def fill(self, idle: int) -> Iterator[KeptRecord | Fault]:
        """Takes the jobs that are ready, while there is room.

        Args:
            idle: The number of free lanes.

        Yields:
            Records from the store, and faults of refused requests.
        """
        while self.can_read(idle):
            try:
                asked = next(self._jobs)
            except StopIteration:
                self._is_read = True
                return
            if isinstance(asked, Fault):
                yield asked
            elif asked is not None:
                yield from self._add(asked, idle)

    def take(self) -> PlannedWork | None:
        """Takes the first built candidate, else one whose cases are unknown, else one that a lane is to build.

        Of built candidates with limits, those whose kernels do not spill come first.

        Returns:
            The candidate; None if none can be judged now.
        """
        for has_come_up in (self._is_lean, self._is_built, self._lacks_cases, self._can_build_in_lane):
            for number, work in enumerate(self._waiting):
                if has_come_up(work):
                    self._at_work += 1
                    self._waiting.pop(number)
                    work.has_next = bool(self._waiting) or not self._is_read
                    if not work.is_planned:
                        self._in_planning.add(plan_key(work.job.candidate.problem))
                    return work
        return None

    def excess(self, work: PlannedWork) -> str:
        """Returns in words which limit a built candidate's kernels exceed; empty if none."""
        limits = work.job.limits_of_kernels
        return "" if limits is None else limits.excess(self._kernels(work))

    def _kernels(self, work: PlannedWork) -> tuple[CompiledKernel, ...]:
        if work.kernels is None:
            work.kernels = self._kernels_of(work.job.candidate.solution.digest)
        return work.kernels

    def _is_lean(self, work: PlannedWork) -> bool:
        """Tells whether a candidate is built, and without spills if it has limits."""
        is_plain = work.job.limits_of_kernels is None
        return self._is_built(work) and (is_plain or not any(one.spilled_bytes for one in self._kernels(work)))

    @staticmethod
    def _is_built(work: PlannedWork) -> bool:
        return work.is_planned and work.is_settled()

    def _lacks_cases(self, work: PlannedWork) -> bool:
        """Tells whether a lane must size the cases of a candidate's problem, and none does so already."""
        return not work.is_planned and plan_key(work.job.candidate.problem) not in self._in_planning

    def _can_build_in_lane(self, work: PlannedWork) -> bool:
        """Tells whether a lane is to build a candidate; withdraws it from the builders.

        Several builders leave no build to a lane, which is free for what is built first.
        """
        return work.is_planned and not self._has_many_builders and work.withdraw()

    @property
    def _has_many_builders(self) -> bool:
        return self._builders is not None and self._builders.count > 1

    def known_by_now(self, work: PlannedWork) -> Iterator[KeptRecord]:
        """Yields records that the store has gained for a candidate since the scheduler read it.

        A lane may have judged a copy of the candidate meanwhile.
        """
        left = yield from self._unknown(work.job, work.cases)
        work.cases, work.trials = left.cases, left.trials

    def planned(self, work: PlannedWork, found: Planned, idle: int) -> Iterator[KeptRecord | Fault]:
        """Gives the candidates of a problem their cases.

        Args:
            work: The candidate whose lane sized the cases; it returns to the queue.
            found: The cases.
            idle: The number of free lanes.

        Yields:
            Records from the store, and faults if the problem has no cases.
        """
        key = plan_key(work.job.candidate.problem)
        self._plans[key] = found
        self._in_planning.discard(key)
        self._at_work -= 1
        waiting, self._waiting = [work, *self._waiting], []
        for one in waiting:
            if one.is_planned or plan_key(one.job.candidate.problem) != key:
                self._waiting.append(one)
            else:
                yield from self._add(one.job, idle, one)

    def finish(self, work: PlannedWork) -> None:
        """Marks a taken candidate as finished."""
        self._at_work -= 1
        self._done(work.job)

    def withdraw(self, tag: str) -> bool:
        """Drops a waiting candidate; a build of it that has begun ends on its own.

        Returns:
            Whether the candidate was waiting.
        """
        for number, work in enumerate(self._waiting):
            if work.job.tag == tag:
                self._waiting.pop(number)
                work.withdraw()
                self._done(work.job)
                return True
        return False

    def abandon(self, work: PlannedWork) -> None:
        """Drops a taken candidate whose lane has ended; another one may size its problem's cases."""
        if not work.is_planned:
            self._in_planning.discard(plan_key(work.job.candidate.problem))
        self.finish(work)

    def give_back(self, work: PlannedWork) -> None:
        """Returns a taken candidate to the front of the queue."""
        self._at_work -= 1
        self._in_planning.discard(plan_key(work.job.candidate.problem))
        self._waiting.insert(0, work)

    def _add(self, job: Job, idle: int, earlier: PlannedWork | None = None) -> Iterator[KeptRecord | Fault]:
        """Queues a candidate unless the store answers all of its cases; yields those answers.

        Args:
            job: The candidate's job.
            idle: The number of free lanes.
            earlier: The candidate's work before its cases were known; its build goes on.
        """
        found = self._plans.get(plan_key(job.candidate.problem))
        if job.cases is None and found is not None:
            if found.error is not None:
                if earlier is not None:
                    earlier.withdraw()
                yield Fault.of(job, found.error)
                self._done(job)
                return
            job = replace(job, cases=found.cases)
        if job.cases is None:
            work = PlannedWork(job, self._policy, (), ())
            self._build_ahead(work, idle)  # it builds while a lane sizes cases
            self._waiting.append(work)
            return
        work = yield from self._unknown(job, job.cases)
        if not work.cases:
            if earlier is not None:
                earlier.withdraw()
            self._done(job)
            return
        if earlier is not None:
            work.build, work.refused = earlier.build, earlier.refused
        else:
            self._build_ahead(work, idle)
        self._waiting.append(work)

    def _build_ahead(self, work: PlannedWork, idle: int) -> None:
        """Begins a candidate's build, unless a free lane is to build it."""
        if self._builders is not None and (self._has_many_builders or len(self._waiting) >= idle):
            self._builders.begin(work)

    def _unknown(self, job: Job, wanted: Cases) -> Generator[KeptRecord, None, PlannedWork]:
        """Yields the store's records for a candidate, and returns its other cases as work."""
        cases, trials = [], []
        policy = replace(
            self._policy,
            limits=job.limits or self._policy.limits,
            trials=job.trials or self._policy.trials,
            to_beat=job.to_beat or {},
        )
        for case, constants in wanted:
            blank = blank_record(job.candidate, policy, self._environment, case, constants)
            may_be_short = job.to_beat is not None
            if not (self._confirms or job.fresh) and (kept := self._ledger.recall(blank, may_be_short=may_be_short)):
                yield KeptRecord(kept, stored=True, tag=job.tag)
                continue
            cases.append((case, constants))
            usual = policy.trials or TRIALS
            trials.append(1 if self._confirms and self._ledger.has_passed(blank) else usual)
        return PlannedWork(job, policy, tuple(cases), tuple(trials))
