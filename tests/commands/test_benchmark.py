"""Tests ``benchmark`` without a GPU: what it refuses, and how it judges a solution that passed before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.executors import job_loop
from harness.executors.lanes import Wanted, lanes_on
from harness.executors.plan import Job
from harness.executors.result_cache import ResultCache
from harness.judge.evaluation.blank_records import TRIALS
from harness.judge.policy import Policy
from harness.judge.process.time_limits import Limits
from harness.project.problems import read_problem
from harness.project.solutions import Candidate, read_solution
from harness.records.record import EvaluationRecord
from harness.records.store import Store

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cpu"], "needs a GPU"),
        (["--baseline", "eagre"], "Did you mean 'eager'"),
        (["--case", "odd", "--set", "batch_size=2"], "cannot be used together"),
        (["-o", "/no/such/folder/table.md"], "cannot be written"),
        (["-o", "."], "cannot be written"),
        (["--against", "run-00000000"], "list runs"),
        (["--against", "/no/such/file"], "/no/such/file"),
        (["--against", "README.md"], "README.md"),
        (["no_such_problem"], "no_such_problem"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_before_anything_runs(harness: Harness, arguments: list[str], words: str) -> None:
    ran = harness("benchmark", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_what_has_passed_is_judged_in_one_trial_more(tmp_path: Path, home: Path) -> None:
    candidate = Candidate(
        problem=read_problem(REPOSITORY / "problems" / "group_norm.py"),
        solution=read_solution(REPOSITORY / "solutions" / "group_norm" / "fused.py", "group_norm/fused"),
    )
    job = Job(candidate, (("odd", candidate.problem.case("odd")),))

    def judged() -> EvaluationRecord:
        (outcome,) = job_loop.run([job], policy, lanes, ledger, lambda _: None, confirms=True)
        assert isinstance(outcome, job_loop.KeptRecord)
        assert not outcome.stored
        return outcome.record

    with Store(tmp_path, writable=True) as store, lanes_on(["cpu"], Wanted(home)) as lanes:
        policy = Policy("cpu", "5eed" * 8, Limits(60.0, 60.0))
        ledger = ResultCache(store, "run-0", fresh=True, seed=None)
        assert (judged().trials, judged().trials) == (TRIALS, 1)
        again = judged()  # one trial does not vouch for the next: the first record does
        assert (again.status, again.trials, again.policy["trials"]) == ("PASSED", 1, 1)
        policy = Policy("cpu", "5eed" * 8, Limits(60.0, 60.0), forward_only=True)
        assert judged().trials == TRIALS
