"""Records as they stand before anything has run; importing this module does not import torch."""

from __future__ import annotations

from typing import Any

from harness.compilation.nvcc import nvcc_release
from harness.judge.policy import Policy
from harness.project.baselines import EAGER
from harness.project.cases import CUSTOM_CASE
from harness.project.solutions import Candidate
from harness.records.record import EvaluationRecord, Status

#: Trials that a candidate must pass on each case.
TRIALS = 5


def blank_record(
    candidate: Candidate, policy: Policy, environment: dict[str, str], case: str, constants: dict[str, Any]
) -> EvaluationRecord:
    """The record of a case as it stands before anything has run.

    Args:
        candidate: The solution and its problem.
        policy: How to judge.
        environment: What the record says of the machine.
        case: The case's name.
        constants: The problem's constants that it replaces.
    """
    limits = policy.limits
    return EvaluationRecord(
        problem=candidate.problem.name,
        solution=candidate.solution.name,
        case=case,
        device=policy.device,
        status=Status.HARNESS_ERROR,
        message="",
        seed=policy.secret,
        digest=candidate.solution.digest,
        problem_digest=candidate.problem.digest,
        precision_class=candidate.problem.precision,
        constants=constants,
        settings=tuple(f"{name}={value!r}" for name, value in constants.items()) if case == CUSTOM_CASE else (),
        environment=environment,
        policy={
            "forward_only": policy.forward_only,
            "timeout_s": limits.run_s,
            "build_timeout_s": limits.build_s,
            **({"timing": False} if policy.device != "cpu" and not policy.is_timed else {}),
            **({"require_confinement": True} if policy.require_confinement else {}),
            **({"baselines": list(policy.baselines)} if policy.baselines != (EAGER,) else {}),
            **({"precision": "relaxed"} if policy.is_relaxed else {}),
            **({"rules": {name: str(mode) for name, mode in policy.rules.items()}} if policy.rules else {}),
            **({"replay": True} if policy.is_replay else {}),
            **({"check": policy.check, "nvcc": nvcc_release()[0]} if policy.check else {}),
        },
        solution_path=str(candidate.solution.path),
        problem_path=str(candidate.problem.path.resolve()),
    )
