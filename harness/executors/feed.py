"""What is to be judged next: read no further ahead than there is use for, answered from the store, built ahead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from typing import NamedTuple, Protocol

from harness.errors import ProblemError
from harness.executors.ahead import Builders, Work
from harness.executors.ledger import Ledger
from harness.executors.plan import Cases, Job
from harness.judge.evaluation import TRIALS, blank_record
from harness.judge.policy import Policy
from harness.records import EvaluationRecord


class Verdict(NamedTuple):
    """A record, whether it was there before, and by what its candidate is known, if by anything."""

    record: EvaluationRecord
    stored: bool
    tag: str | None = None


class Fault(NamedTuple):
    """The error of a problem that does not run on a case, and by what the candidate is known."""

    error: ProblemError
    tag: str | None = None


class Judged(NamedTuple):
    """A record that has just been made, and of what."""

    work: Work
    record: EvaluationRecord


class Source(Protocol):
    """Where jobs come from that may have to be waited for."""

    def is_ready(self) -> bool:
        """Whether a next job is there without waiting."""

    def fileno(self) -> int:
        """A descriptor that can be read when one may be."""


class Feed:
    """Candidates on their way to where they are judged.

    Args:
        jobs: What to judge; a next one is asked for when there is room.
        policy: How.
        environment: What records say of the machine.
        ledger: The store.
        builders: Who builds ahead; None where nobody does.
        ahead: How many candidates may wait here, beside those that can be judged at once.
        confirms: Nothing is answered from the store; what it knows to have passed is judged in one trial more.
        is_ready: Whether a next job is there without waiting for it, which is not worth it before its turn.
        done: Called with a job of which nothing is left to judge.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        policy: Policy,
        environment: dict[str, str],
        ledger: Ledger,
        builders: Builders | None,
        ahead: int,
        confirms: bool,
        is_ready: Callable[[], bool],
        done: Callable[[Job], None],
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
        self._waiting: list[Work] = []
        self._at_work = 0
        self._is_read = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self._is_read and not self._waiting and not self._at_work

    def fill(self, idle: int) -> Iterator[Verdict]:
        """Read on while there is room.

        Args:
            idle: How many candidates can be judged at once.

        Yields:
            What the store knows.
        """
        while len(self._waiting) < idle + self._ahead and not self._is_read:
            if (self._at_work or len(self._waiting) >= idle) and not self._is_ready():
                return
            job = next(self._jobs, None)
            if job is None:
                self._is_read = True
                return
            work = yield from self._unknown(job, job.cases)
            if work.cases:
                if self._builders is not None and len(self._waiting) >= idle:
                    self._builders.begin(work)
                self._waiting.append(work)
            else:
                self._done(job)

    def take(self) -> Work | None:
        """The first that is built, else the first that nobody builds; None where all are being built."""
        for has_come_up in (Work.is_settled, Work.withdraw):
            for number, work in enumerate(self._waiting):
                if has_come_up(work):
                    self._at_work += 1
                    self._waiting.pop(number)
                    work.has_next = bool(self._waiting) or not self._is_read
                    return work
        return None

    def known_by_now(self, work: Work) -> Iterator[Verdict]:
        """What the store has come to know of a candidate that has come up: a copy of it may have been judged."""
        left = yield from self._unknown(work.job, work.cases)
        work.cases, work.trials = left.cases, left.trials

    def finish(self, work: Work) -> None:
        """A candidate that had come up has been judged."""
        self._at_work -= 1
        self._done(work.job)

    def give_back(self, work: Work) -> None:
        """A candidate that had come up is to come up again, before all others."""
        self._at_work -= 1
        self._waiting.insert(0, work)

    def wait(self) -> None:
        """Wait until ``take`` has something."""
        wait([work.build for work in self._waiting if work.build is not None], return_when=FIRST_COMPLETED)

    def _unknown(self, job: Job, wanted: Cases) -> Generator[Verdict, None, Work]:
        """What is to be judged of a candidate's cases; yields what the store knows."""
        cases, trials = [], []
        policy = self._policy if job.limits is None else replace(self._policy, limits=job.limits)
        for case, constants in wanted:
            blank = blank_record(job.candidate, policy, self._environment, case, constants)
            if not self._confirms and (kept := self._ledger.recall(blank)):
                yield Verdict(kept, stored=True, tag=job.tag)
                continue
            cases.append((case, constants))
            trials.append(1 if self._confirms and self._ledger.has_passed(blank) else TRIALS)
        return Work(job, policy, tuple(cases), tuple(trials))
