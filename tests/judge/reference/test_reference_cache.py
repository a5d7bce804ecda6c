"""Tests that candidates of a batch share reference results and get the same figures as alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.judge.evaluation.blank_records import TRIALS
from harness.judge.inputs.draws import Draw, draw
from harness.judge.reference.equivalence import FLOORS, Slices
from harness.judge.reference.reference import Graph, Reference
from harness.judge.reference.reference_cache import MOST_DRAWS, CaseCache, ReferenceCache
from harness.judge.reference.reference_errors import Gauge
from harness.project.problems import load, read_problem
from harness.records.record import EvaluationRecord, PrecisionClass, Status
from tests.judge.in_process import evaluated

SECRET = "5eed" * 8
#: Its kinks are so many that some samples are drawn anew, and its groups so small that eager errs beyond the floor.
PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

DRAWS = ["scaled"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 512)

    def forward(self, x):
        return F.group_norm(self.linear(x).clamp(-0.5, 0.5), 256)


def get_inputs():
    return [torch.randn(128, 24)]


def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 512)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        return F.group_norm(({answer}).clamp(-0.5, 0.5), 256) * {factor}
"""
RIGHT = "x[:, 12:] @ weight[:, 12:].T + bias + x[:, :12] @ weight[:, :12].T"


@pytest.fixture
def judged(tmp_path: Path, own_home: Path) -> Callable[..., EvaluationRecord]:
    (tmp_path / "problem.py").write_text(PROBLEM)
    problem = read_problem(tmp_path / "problem.py")

    def record(factor: int, shared: ReferenceCache | None = None) -> EvaluationRecord:
        solution = tmp_path / f"times_{factor}.py"
        solution.write_text(SOLUTION.format(answer=RIGHT, factor=factor))
        return evaluated(problem, solution, own_home, SECRET, "full", shared=shared)

    return record


def figures(record: EvaluationRecord) -> tuple[Any, ...]:
    return record.status, record.message, record.outputs, record.gradients, record.kinks, record.further_draws


def test_figures_are_those_that_a_candidate_gets_alone(
    judged: Callable[..., EvaluationRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    run = Reference.run

    def counted(self: Reference, *args: Any, **named: Any) -> Graph:
        runs.append(None)
        return run(self, *args, **named)

    monkeypatch.setattr(Reference, "run", counted)
    alone = judged(1)
    assert alone.status is Status.PASSED
    assert alone.kinks["redrawn"]
    assert any(one.l2_budget and one.l2_budget > 2 * FLOORS[PrecisionClass.FP32].l2 for one in alone.gradients)
    least = len(runs) / 2  # the candidate's own draws are measured anew: two of seven
    shared = ReferenceCache()
    assert judged(40, shared).status is Status.WRONG_OUTPUT
    for _ in range(2):
        runs.clear()
        again = judged(1, shared)
        assert figures(again) == figures(alone)
    assert len(runs) < least, (len(runs), least)
    assert again.shared_draws == TRIALS  # all trials but the candidate's own, and the further draw
    assert alone.shared_draws == 0


def test_no_more_is_kept_than_may_be() -> None:
    def fill(key: int, size: int) -> None:
        sums = torch.zeros(size // 16, dtype=torch.float64)
        shared.of(key).gauges("trial", empty())[""] = Gauge({"output": Slices(sums, sums, 1, True)})
        shared.trim()

    shared = ReferenceCache(most_cases=3, most_bytes=10_000)
    for key in range(5):
        fill(key, 1600)
    assert len(shared) == 3
    assert shared.of(2).bytes == 1600
    fill(9, 8000)  # more than there is room for beside two: those asked for longest ago go
    assert len(shared) == 2
    assert shared.of(2).bytes == 1600
    assert shared.of(4).bytes == 0


def test_of_many_draws_the_last_ones_are_kept() -> None:
    shared = ReferenceCache()
    known = shared.of("case")
    kept = {name: known.gauges(name, empty()) for name in ("trial", "call")}
    for other in range(2 * MOST_DRAWS):
        known.gauges(other, empty())["ones"] = Gauge()
        assert known.gauges("trial", empty()) is kept["trial"]
        shared.trim()
    assert known.gauges("call", empty()) is not kept["call"]
    assert known.gauges(2 * MOST_DRAWS - 1, empty())
    assert not known.gauges(0, empty())


def test_another_draw_under_the_same_seed_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    problem = read_problem(tmp_path / "problem.py")
    one = draw(problem, load(problem, {}), [], 1)
    other = copy.deepcopy(one)
    known = CaseCache()
    known.gauges("trial", one)["ones"] = Gauge()
    assert "ones" in known.gauges("trial", other)
    other.inputs[0] += 1e-6
    assert not known.gauges("trial", other)


def empty() -> Draw:
    return Draw(torch.nn.Module(), [], [])
