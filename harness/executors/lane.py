"""A lane: judges one candidate after another on one device."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from harness.aten.torch_state import kept_state, set_tf32
from harness.device.devices import check_device
from harness.errors import ProblemError
from harness.executors.prebuild import PlannedWork
from harness.executors.session import Session
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.inputs.memory_fit import check_room
from harness.judge.reference.reference_cache import ReferenceCache
from harness.project.problems import Problem, faults_told
from harness.records.record import EvaluationRecord
from harness.system.text import one_line, printable

Progress = Callable[[str], None]
Quiet = Callable[[], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True)
class Lane:
    """Judges candidates, each in a fresh worker; a bad candidate or problem never affects the next.

    Attributes:
        session: The device and its workers.
        quiet: Makes the context in which the lane times a candidate.
        shared: The cache of reference results, shared by all candidates of a batch.
        estimated: The cases that have a memory estimate, by problem and case.
    """

    session: Session
    quiet: Quiet = contextlib.nullcontext
    shared: ReferenceCache = field(default_factory=ReferenceCache)
    estimated: set[tuple[str, str, str]] = field(default_factory=set)

    def judge(self, work: PlannedWork, progress: Progress) -> Iterator[EvaluationRecord | ProblemError]:
        """Judges a candidate.

        Args:
            work: The candidate and its cases.
            progress: Called with the name of the current step.

        Yields:
            A record for each finished case, or an error if the problem does not run.

        Raises:
            DeviceError: The GPU no longer works after the candidate failed.
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
                    # The problem's code runs in this process. Its exceptions end its own cases, not the program, and
                    # its changes to torch are undone.
                    with faults_told(candidate.problem):
                        self._estimate(candidate.problem, case, constants)
                        with kept_state():
                            set_tf32(policy.tf32)
                            outcome = judge.evaluate(case, constants, trials)
                except ProblemError as error:
                    outcome = error
                yield outcome
                if isinstance(outcome, EvaluationRecord) and judge.may_have_harmed_the_device:
                    check_device(session.device)

    def _estimate(self, problem: Problem, case: str, constants: dict[str, Any]) -> None:
        """Warns once about a large case on the CPU.

        Raises:
            ProblemError: The case does not fit into memory.
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
    """A progress callback that prefixes the candidate's name."""

    name: str
    progress: Progress

    def __call__(self, words: str) -> None:
        self.progress(f"{self.name}: {words}")
