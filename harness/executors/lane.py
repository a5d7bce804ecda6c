"""One candidate after another on one device."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from harness.aten.torch_state import kept_state
from harness.device.devices import check_device
from harness.errors import ProblemError
from harness.executors.prebuild import PlannedWork
from harness.executors.session import Session
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.inputs.memory_fit import check_room
from harness.judge.reference.reference_cache import ReferenceCache
from harness.project.problems import Problem, fault_of
from harness.records.record import EvaluationRecord
from harness.system.text import one_line, printable

Progress = Callable[[str], None]
Quiet = Callable[[], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True)
class Lane:
    """Judges candidates, a fresh worker for each; a bad candidate or problem never affects the next.

    Attributes:
        session: The device and its workers.
        quiet: Entered while a candidate is timed.
        shared: What is known of references, for all candidates of a batch.
        estimated: The cases whose need of memory and time was estimated, by problem and case.
    """

    session: Session
    quiet: Quiet = contextlib.nullcontext
    shared: ReferenceCache = field(default_factory=ReferenceCache)
    estimated: set[tuple[str, str, str]] = field(default_factory=set)

    def judge(self, work: PlannedWork, progress: Progress) -> Iterator[EvaluationRecord | ProblemError]:
        """Judge a candidate.

        Args:
            work: The candidate and its cases.
            progress: Called with a word for what happens now.

        Yields:
            For each case, as soon as it is there, a record, or the error of a problem that does not run.

        Raises:
            DeviceError: After the candidate failed, the GPU does not work any more.
        """
        session, candidate = self.session, work.job.candidate
        policy = replace(work.policy, device=session.device)
        judge = CandidateJudge(
            candidate,
            policy,
            session.surroundings,
            session.workers,
            progress=_Prefixed(one_line(candidate.solution.name), progress),
            baseline=session.baseline,
            shared=self.shared,
            refused=work.refused,
            quiet=self.quiet,
            has_next=work.has_next,
        )
        with contextlib.closing(judge):
            for (case, constants), trials in zip(work.cases, work.trials, strict=True):
                outcome: EvaluationRecord | ProblemError
                try:
                    self._estimate(candidate.problem, case, constants)
                    with kept_state():  # what a problem's code changes in torch is its own
                        outcome = judge.evaluate(case, constants, trials)
                except ProblemError as error:
                    outcome = error
                except (Exception, SystemExit, GeneratorExit) as error:
                    # The problem's code runs in this process: what it raises ends its own cases, not the program.
                    fault = fault_of(candidate.problem, error)
                    if fault is None:
                        raise
                    outcome = fault
                yield outcome
                if isinstance(outcome, EvaluationRecord) and judge.may_have_harmed_the_device:
                    check_device(session.device)

    def _estimate(self, problem: Problem, case: str, constants: dict[str, Any]) -> None:
        """Warn of a large case on the CPU, once.

        Raises:
            ProblemError: The CPU has no room for the case.
        """
        key = str(problem.path), problem.digest, repr((case, constants))
        if self.session.device != "cpu" or key in self.estimated:
            return
        words = check_room(problem, case, constants)
        self.estimated.add(key)
        if words:
            print(f"warning: {printable(words)}", file=sys.stderr)


@dataclass(frozen=True)
class _Prefixed:
    """A progress callback that names the candidate."""

    name: str
    progress: Progress

    def __call__(self, words: str) -> None:
        self.progress(f"{self.name}: {words}")
