"""One evaluation after another on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.devices import check_device
from harness.errors import ProblemError
from harness.executors.ledger import Ledger
from harness.executors.plan import Job
from harness.executors.session import Session
from harness.judge.evaluation import TRIALS, CandidateJudge
from harness.judge.policy import Policy
from harness.judge.shared import Shared
from harness.problems import fault_of
from harness.records import EvaluationRecord
from harness.text import one_line


class Verdict(NamedTuple):
    """A record, and whether it was there before."""

    record: EvaluationRecord
    stored: bool


def run(
    jobs: Iterable[Job],
    policy: Policy,
    session: Session,
    ledger: Ledger,
    progress: Callable[[str], None],
    confirms: bool = False,
) -> Generator[Verdict | ProblemError]:
    """Judge all jobs in order; a bad candidate or problem never affects the next.

    What the store knows already is taken from there; every other record is in the store before it is yielded.

    Args:
        jobs: What to judge; where that is no list, the next one is asked for when the one before is done.
        policy: How.
        session: The device and its workers; one is started ahead while there are more candidates.
        ledger: The store.
        progress: Called with a word for what happens now.
        confirms: Nothing is answered from the store; what it knows to have passed is judged in one trial more.

    Yields:
        For each candidate and case, as soon as it is there, a record, or the error of a problem that does not run.

    Raises:
        StoreError: A record could not be kept.
        DeviceError: After a candidate failed, the GPU does not work any more.
    """
    shared = Shared()
    count = len(jobs) if isinstance(jobs, Sequence) else None
    for number, job in enumerate(jobs, start=1):
        name = one_line(job.candidate.solution.name)
        judge = CandidateJudge(
            job.candidate,
            policy,
            session.surroundings,
            session.workers,
            _Prefixed(name, progress),
            session.baseline,
            shared,
        )
        with contextlib.closing(judge):
            for case, constants in job.cases:
                blank = judge.blank(case, constants)
                if not confirms and (kept := ledger.recall(blank)):
                    yield Verdict(kept, stored=True)
                    continue
                trials = 1 if confirms and ledger.has_passed(blank) else TRIALS
                try:
                    record = judge.evaluate(case, constants, trials)
                except ProblemError as error:
                    yield error
                    continue
                except (Exception, SystemExit, GeneratorExit) as error:
                    # The problem's code runs in this process: what it raises ends its own cases, not the program.
                    fault = fault_of(job.candidate.problem, error)
                    if fault is None:
                        raise
                    yield fault
                    continue
                yield Verdict(ledger.keep(job.candidate, record), stored=False)
                if judge.may_have_harmed_the_device:
                    check_device(policy.device)
                if count is None or number < count:
                    session.workers.start_ahead()


@dataclass(frozen=True)
class _Prefixed:
    """A progress callback that names the candidate."""

    name: str
    progress: Callable[[str], None]

    def __call__(self, words: str) -> None:
        self.progress(f"{self.name}: {words}")
