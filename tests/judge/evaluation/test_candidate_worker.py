"""Tests the judge's control of its worker when the harness itself is at fault."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.compilation.cache import BuildCache
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.inputs.draws import Draw
from harness.judge.policy import Policy, Surroundings
from harness.judge.process.time_limits import Limits
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.judge.reference import reference
from harness.project.problems import read_problem
from harness.project.solutions import Candidate, read_solution
from harness.records.record import Status
from tests.judge import in_process

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_worker_that_cannot_start_is_the_harness_fault_and_says_why(tmp_path: Path) -> None:
    candidate = Candidate(
        read_problem(REPOSITORY / "problems" / "group_norm.py"),
        read_solution(REPOSITORY / "tests" / "faults" / "group_norm.py", "plain"),
    )
    nowhere = str(tmp_path / "libcuemu.so")
    surroundings = Surroundings(BuildCache(tmp_path), tmp_path, tmp_path, {})
    policy = Policy("cpu", "00", Limits(60, 300))
    with (
        contextlib.closing(Workers("cpu", {"core": nowhere, "torch": nowhere}, memory_bytes=None)) as workers,
        contextlib.closing(CandidateJudge(candidate, policy, surroundings, workers)) as judge,
    ):
        record = judge.evaluate("odd", candidate.problem.case("odd"))
    assert record.status is Status.HARNESS_ERROR
    assert nowhere in record.message


def test_a_worker_that_started_too_early_is_replaced(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers start ahead, beside candidates that may hold all memory; then the first of two cannot start."""
    take, taken = Workers.take, []

    def first_one_dies(workers: Workers) -> WorkerHandle:
        worker = take(workers)
        taken.append(worker)
        if len(taken) == 1:
            os.kill(worker._process.pid, signal.SIGKILL)
        return worker

    monkeypatch.setattr(Workers, "take", first_one_dies)
    record = in_process.judged(PROBLEM, SOLUTION.replace("FACTOR", "1.0"), tmp_path, home)
    assert record.status is Status.PASSED, record.message
    assert len(taken) == 2


PROBLEM = """
import torch
import torch.nn as nn

CASES = {"full": {}}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).sigmoid()

def get_inputs():
    return [torch.randn(6, 8)]

def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
import torch.nn as nn

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        return values * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * FACTOR

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return Scaled.apply(self.linear(x).sigmoid())
"""


@pytest.mark.parametrize(("factor", "status"), [("1.0", "PASSED"), ("0.99", "WRONG_GRADIENT")])
def test_where_memory_is_short_answers_are_compared_one_by_one(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, factor: str, status: str
) -> None:
    records = []
    for spare in (1 << 50, 0):
        monkeypatch.setattr(reference, "spare_memory", lambda device, spare=spare: spare)
        records.append(in_process.judged(PROBLEM, SOLUTION.replace("FACTOR", factor), tmp_path, home))
    assert [record.status for record in records] == [status] * 2
    assert records[0].gradients == records[1].gradients
    assert records[0].outputs == records[1].outputs


def test_the_cache_takes_plain_files_under_well_formed_keys_alone(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "builds")
    built = tmp_path / "built.so"
    built.write_bytes(b"library")
    link = tmp_path / "link.so"
    link.symlink_to(built)
    key = "a" * 64
    assert not cache.keep("digest", "../escape", built)
    assert not cache.keep("digest", key, link)
    assert not cache.keep("digest", key, tmp_path)
    assert not cache.keep("digest", key, tmp_path / "missing.so")
    # What only the judge can read must not be fetched through a link in place of the worker's folder.
    secrets = tmp_path / "home" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "id").write_bytes(b"secret")
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "build").symlink_to(secrets)
    assert not cache.keep("digest", key, tmp_path / "worker" / "build" / "id")
    os.link(secrets / "id", tmp_path / "id.so")
    assert not cache.keep("digest", key, tmp_path / "id.so")
    assert cache.libraries("digest") == {}
    assert cache.keep("digest", key, built)
    assert cache.libraries("digest")[key].read_bytes() == b"library"
    assert cache.libraries("other digest") == {}


#: Adding and subtracting loses digits: eager's own errors are far beyond the least budgets.
COARSE = "self.linear(x).sigmoid()", "(self.linear(x).sigmoid() + 1000) - 1000"


def test_eager_s_errors_on_the_candidate_s_own_draws_are_measured_where_the_least_budget_does_not_do(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[object] = []
    runs = reference.Reference.eager_runs

    def noted(self: reference.Reference, draw: Draw, *arguments: Any) -> Any:
        if not any(draw is one for one in draws):
            draws.append(draw)
        return runs(self, draw, *arguments)

    monkeypatch.setattr(reference.Reference, "eager_runs", noted)
    found = []
    for words in (COARSE[0], COARSE[1]):
        problem, solution = [text.replace(COARSE[0], words) for text in (PROBLEM, SOLUTION.replace("FACTOR", "1.0"))]
        problem += "\n# Its fitness checks, which run eager too, have run for no other test.\n"
        draws.clear()
        record = in_process.judged(problem, solution, tmp_path, home)
        assert record.status is Status.PASSED, record.message
        found.append(len(draws))
    fine, coarse = found
    assert coarse == fine + 3  # one with gradients, one without, and one as a server calls it
