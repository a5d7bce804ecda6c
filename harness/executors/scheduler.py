"""The candidates that wait to be judged: read as there is room, answered from the store, built ahead.

The feed never waits: it asks for a next job only where one is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

from harness.errors import HarnessError
from harness.executors.plan import Cases, Job, Planned, Plans, plan_key
from harness.executors.prebuild import Builders, PlannedWork
from harness.executors.result_cache import ResultCache
from harness.judge.evaluation.blank_records import TRIALS, blank_record
from harness.judge.policy import Policy
from harness.records.record import EvaluationRecord


class KeptRecord(NamedTuple):
    """A record, whether it was there before, and by what its candidate is known, if by anything."""

    record: EvaluationRecord
    stored: bool
    tag: str | None = None


class Fault(NamedTuple):
    """A request without a verdict: why there is none.

    Attributes:
        error: The reason.
        tag: The request's tag, if it has one.
        solution: The candidate's name, or the line's number.
        problem: The problem's name; None where it is not known.
        case: The case's name; None where all cases are meant.
    """

    error: HarnessError
    tag: str | None = None
    solution: str = ""
    problem: str | None = None
    case: str | None = None

    @classmethod
    def of(cls, job: Job, error: HarnessError, case: str | None = None) -> Fault:
        """The fault of a job."""
        return cls(error, job.tag, job.candidate.solution.name, job.candidate.problem.name, case)

    def to_json(self) -> str:
        """One line of JSON: the fields that a record has, too, with no status, and the reason as ``error``."""
        told = {
            "problem": self.problem, "solution": self.solution, "case": self.case, "status": None,
            "error": str(self.error), "tag": self.tag,
        }  # fmt: skip
        return json.dumps(told)


class Judged(NamedTuple):
    """A record that has just been made, and of what."""

    work: PlannedWork
    record: EvaluationRecord


#: What a driver is asked for: a job, a request that is refused, or nothing (a blank line).
Asked = Job | Fault | None


class RequestSource(Protocol):
    """Requests that arrive while others are judged."""

    def is_ready(self) -> bool:
        """Whether the next request, or the end, is there without waiting."""

    def fileno(self) -> int:
        """A descriptor that can be read when a request may be there."""


class Scheduler:
    """Candidates on their way to the lanes.

    Args:
        jobs: What to judge; the feed asks for the next one as there is room.
        policy: How.
        environment: What records say of the machine.
        ledger: The store.
        builders: Who builds ahead; None where nobody does.
        ahead: How many candidates may wait here, beside those that can be judged at once.
        confirms: Answer nothing from the store; what it knows to have passed is judged in one trial more.
        is_ready: Whether a next job, or the end, is there without waiting.
        done: Called with a job of which nothing is left to judge.
        plans: What is known of problems' sizes; the feed adds to it.
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
    ):
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
        """Whether nothing is left."""
        return self._is_read and not self._waiting and not self._at_work

    def has_room(self, idle: int) -> bool:
        """Whether another job may be asked for.

        Args:
            idle: How many candidates can be judged at once.
        """
        return not self._is_read and len(self._waiting) < idle + self._ahead

    def can_read(self, idle: int) -> bool:
        """Whether ``fill`` would take a job, or see the end, now."""
        return self.has_room(idle) and self._is_ready()

    def fill(self, idle: int) -> Iterator[KeptRecord | Fault]:
        """Take the jobs that are there, while there is room.

        Args:
            idle: How many candidates can be judged at once.

        Yields:
            What the store knows, and requests that are refused.
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
        """The first candidate that is built, else the first that nobody builds; None where none can be judged."""
        for has_come_up in (PlannedWork.is_settled, PlannedWork.withdraw):
            for number, work in enumerate(self._waiting):
                key = plan_key(work.job.candidate.problem)
                if not work.is_planned and key in self._in_planning:
                    continue  # a lane finds out the cases, for all candidates of the problem
                if has_come_up(work):
                    self._at_work += 1
                    self._waiting.pop(number)
                    work.has_next = bool(self._waiting) or not self._is_read
                    if not work.is_planned:
                        self._in_planning.add(key)
                    return work
        return None

    def known_by_now(self, work: PlannedWork) -> Iterator[KeptRecord]:
        """What the store has come to know of a candidate that has come up: a copy of it may have been judged."""
        left = yield from self._unknown(work.job, work.cases)
        work.cases, work.trials = left.cases, left.trials

    def planned(self, work: PlannedWork, found: Planned, idle: int) -> Iterator[KeptRecord | Fault]:
        """Give the candidates of a problem their cases.

        Args:
            work: The candidate of which a lane has found them out; it waits again.
            found: The cases.
            idle: How many candidates can be judged at once.

        Yields:
            What the store knows, and faults where the problem has no cases.
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
                yield from self._add(one.job, idle)

    def finish(self, work: PlannedWork) -> None:
        """A candidate that had come up has been judged."""
        self._at_work -= 1
        self._done(work.job)

    def give_back(self, work: PlannedWork) -> None:
        """A candidate that had come up is to come up again, before all others."""
        self._at_work -= 1
        self._in_planning.discard(plan_key(work.job.candidate.problem))
        self._waiting.insert(0, work)

    def _add(self, job: Job, idle: int) -> Iterator[KeptRecord | Fault]:
        """Have a candidate wait, unless everything about it is known."""
        found = self._plans.get(plan_key(job.candidate.problem))
        if job.cases is None and found is not None:
            if found.error is not None:
                yield Fault.of(job, found.error)
                self._done(job)
                return
            job = replace(job, cases=found.cases)
        if job.cases is None:
            self._waiting.append(PlannedWork(job, self._policy, (), ()))
            return
        work = yield from self._unknown(job, job.cases)
        if not work.cases:
            self._done(job)
            return
        if self._builders is not None and len(self._waiting) >= idle:
            self._builders.begin(work)
        self._waiting.append(work)

    def _unknown(self, job: Job, wanted: Cases) -> Generator[KeptRecord, None, PlannedWork]:
        """What is to be judged of a candidate's cases; yields what the store knows."""
        cases, trials = [], []
        policy = self._policy if job.limits is None else replace(self._policy, limits=job.limits)
        for case, constants in wanted:
            blank = blank_record(job.candidate, policy, self._environment, case, constants)
            if not self._confirms and (kept := self._ledger.recall(blank)):
                yield KeptRecord(kept, stored=True, tag=job.tag)
                continue
            cases.append((case, constants))
            trials.append(1 if self._confirms and self._ledger.has_passed(blank) else TRIALS)
        return PlannedWork(job, policy, tuple(cases), tuple(trials))
