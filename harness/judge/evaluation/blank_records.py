"""Makes the initial record of a case; importing this module does not import torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.compilation.nvcc import nvcc_release
from harness.device.kernel_packages import may_use
from harness.judge.policy import Policy
from harness.project.cases import CUSTOM_CASE
from harness.project.solutions import Candidate
from harness.records.identity import KERNEL_PACKAGES
from harness.records.record import EvaluationRecord, Status

#: Trials that a candidate must pass on each case.
TRIALS = 5


def blank_record(
    candidate: Candidate, policy: Policy, environment: dict[str, str], case: str, constants: dict[str, Any]
) -> EvaluationRecord:
    """Returns the record of a case before anything has run.

    Args:
        candidate: The solution and its problem.
        policy: How to judge.
        environment: What the record says of the machine.
        case: The case's name.
        constants: The problem's constants that it replaces.
    """
    run_s, build_s = policy.limits
    nvcc = nvcc_release()[0] if policy.check else None
    if not may_use(candidate.solution.source):
        environment = {name: value for name, value in environment.items() if name != KERNEL_PACKAGES}
    recorded = replace(policy, timeout_s=run_s, build_timeout_s=build_s, nvcc=nvcc)
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
        policy=recorded.to_policy(policy.device),
        solution_path=candidate.solution.place,
        problem_path=str(candidate.problem.path.resolve()),
    )
