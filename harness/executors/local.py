"""One evaluation after another on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ProblemError
from harness.judge.baseline import opened
from harness.judge.evaluation import CandidateJudge, Policy, Surroundings
from harness.records import EvaluationRecord
from harness.solutions import Candidate


@dataclass(frozen=True)
class Job:
    """A candidate with the cases it is to be judged on: (name, constants) each."""

    candidate: Candidate
    cases: tuple[tuple[str, dict[str, Any]], ...]


def run(
    jobs: Sequence[Job], policy: Policy, surroundings: Surroundings, progress: Callable[[str], None]
) -> Iterator[EvaluationRecord | ProblemError]:
    """Judge all jobs in order; a bad candidate or problem never affects the next.

    Yields:
        For each candidate and case, as soon as it is there, a record, or the error of a problem that does not run.
    """
    with opened(policy.device) as baseline:
        for job in jobs:
            name = job.candidate.solution.name
            judge = CandidateJudge(job.candidate, policy, surroundings, _Prefixed(name, progress), baseline)
            with contextlib.closing(judge):
                for case, constants in job.cases:
                    try:
                        yield judge.evaluate(case, constants)
                    except ProblemError as error:
                        yield error


@dataclass(frozen=True)
class _Prefixed:
    """A progress callback that names the candidate."""

    name: str
    progress: Callable[[str], None]

    def __call__(self, words: str) -> None:
        self.progress(f"{self.name}: {words}")
