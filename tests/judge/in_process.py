"""Judges candidates in the test's own process on the CPU, so that a test can inspect and change internals."""

from __future__ import annotations

import atexit
import contextlib
from pathlib import Path

from harness.executors.tools import tools_for
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.policy import Policy, Surroundings
from harness.judge.process.time_limits import Limits
from harness.judge.process.workers import Workers
from harness.judge.process.zygote import Zygote
from harness.judge.reference.reference_cache import ReferenceCache
from harness.judge.timing.rivals import Baseline
from harness.project.problems import Problem, read_problem
from harness.project.solutions import Candidate, read_solution
from harness.records.record import EvaluationRecord

#: What all workers are forked of: it imports torch once.
ZYGOTE = Zygote()
atexit.register(ZYGOTE.close)


def judged(
    problem: str,
    solution: str,
    folder: Path,
    home: Path,
    baseline: Baseline | None = None,
    names: tuple[str, ...] = ("eager",),
    memory_bytes: int | None = None,
) -> EvaluationRecord:
    """The record of a solution's case ``full``, the secret always the same.

    Args:
        problem: The problem's text.
        solution: The solution's.
        folder: Where both are written.
        home: ``HARNESS_HOME``.
        baseline: What to time it against; None for no timing.
        names: The baselines' names.
        memory_bytes: What it may hold; None for no bound.
    """
    (folder / "problem.py").write_text(problem)
    (folder / "answer.py").write_text(solution)
    return evaluated(
        read_problem(folder / "problem.py"),
        folder / "answer.py",
        home,
        "5eed" * 8,
        "full",
        baseline,
        names,
        memory_bytes=memory_bytes,
    )


def evaluated(
    problem: Problem,
    solution: Path,
    home: Path,
    secret: str,
    case: str,
    baseline: Baseline | None = None,
    names: tuple[str, ...] = ("eager",),
    shared: ReferenceCache | None = None,
    own_seed: str = "0dd5" * 8,
    memory_bytes: int | None = None,
) -> EvaluationRecord:
    """The record of one case of a solution.

    Args:
        problem: The problem.
        solution: The solution's file.
        home: ``HARNESS_HOME``.
        secret: What seeds derive from, in hex.
        case: The case's name.
        baseline: What to time it against; None for no timing.
        names: The baselines' names.
        shared: What is known of references.
        own_seed: What the seeds of the candidate's own draws derive from.
        memory_bytes: What it may hold; None for no bound.
    """
    candidate = Candidate(problem, read_solution(solution, solution.stem))
    tools = tools_for("cpu", home)
    workers = Workers("cpu", tools.libraries, memory_bytes=memory_bytes, zygote=ZYGOTE)
    policy = Policy("cpu", secret, Limits(60.0, 60.0), baselines=names, own_seed=own_seed)
    surroundings = Surroundings.of_this_machine(home, tools.compiler, "cpu")
    judge = CandidateJudge(candidate, policy, surroundings, workers, baseline=baseline, shared=shared)
    with contextlib.closing(workers), contextlib.closing(judge):
        return judge.evaluate(case, problem.case(case))
