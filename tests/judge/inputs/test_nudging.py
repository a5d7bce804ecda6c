"""Tests perturbed inputs: one lucky draw of eager does not set the budget, and exact numbers stay exact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.variants import honest
from benchmarks.variants.kind import MIN, write
from harness.judge.compare.comparison import Comparison
from harness.judge.compare.received import ReceivedGradients
from harness.judge.inputs.draws import draw
from harness.judge.inputs.nudging import nudged
from harness.judge.reference.equivalence import MAX_FACTOR, NUDGED_FACTOR
from harness.judge.reference.reference import Reference
from harness.project import problems
from harness.project.paths import project_root
from harness.project.problems import read_problem
from harness.records.record import Status, TensorReport
from tests.judge.in_process import evaluated

#: Secrets under which one draw of five has groups of three in which eager rounds ten times better than others.
LUCKY = ("1", "4", "a")

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    x = torch.randn(64, 96)
    {more}
    return [x]


def get_init_inputs():
    return []
"""


def as_it_is(values: torch.Tensor, _: int) -> torch.Tensor:
    return values


def test_an_honest_kernel_is_refused_for_eagers_luck_only_where_eager_begins_at_the_same_inputs(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shifted = [kind for kind in honest.kinds_of(MIN) if kind.name == "shifted"]
    solution = write(MIN, shifted, tmp_path)["shifted"]
    problem = read_problem(project_root(None) / "problems" / f"{MIN}.py")
    assert [evaluated(problem, solution, own_home, secret, "odd").status for secret in LUCKY] == [Status.PASSED] * 3
    monkeypatch.setattr("harness.judge.reference.reference.nudged", as_it_is)
    found = [evaluated(problem, solution, own_home, secret, "odd").status for secret in LUCKY]
    assert Status.WRONG_GRADIENT in found


def budgets(folder: Path, forward: str, more: str) -> dict[str, TensorReport]:
    """What eager's own results are reported with when they are judged, by tensor."""
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(forward=forward, more=more))
    problem = read_problem(path)
    drawn = draw(problem, problems.load(problem, {}), [], 7)
    reference = Reference(problem, True, 1 << 40)
    graph = reference.eager(drawn, 0)
    comparison = Comparison(reference, drawn, 0, ["x"], problem.precision, trial=0)
    cotangent = [torch.randn(graph.outputs[0].shape, generator=torch.Generator().manual_seed(1))]
    gradient = graph.gradients(cotangent)["x"]
    assert gradient is not None
    comparison.add([graph.outputs[0].detach()], [ReceivedGradients("normal", cotangent, {"x": gradient})])
    result = comparison.result()
    return {report.name: report for report in (*result.outputs, *result.gradients)}


EXACT = {
    "numbers of few bits at a constant": ("torch.relu(x - 1)", "x[:, ::3] = 1"),
    "a mask": ("torch.sigmoid((1 - x) * -1e9)", "x = (x > 0).float()"),
    "equal values": ("x.amax(1, keepdim=True) * x", "x[:, ::3] = 5.1234567"),
    "values that stay at an edge": ("torch.relu(x.clamp(-0.7, 0.7) + 0.7)", ""),
}


@pytest.mark.parametrize("what", EXACT)
def test_ties_do_not_widen_a_budget(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.judge.compare.budgets.NUDGED_FACTOR", torch.inf)
    found = budgets(tmp_path, *EXACT[what])
    monkeypatch.setattr("harness.judge.reference.reference.nudged", as_it_is)
    for name, before in budgets(tmp_path, *EXACT[what]).items():
        assert found[name].ok
        assert found[name].max_budget == pytest.approx(before.max_budget, rel=0.5), name


def test_a_branch_that_a_nudge_turns_widens_a_budget_by_the_factor_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A third of the elements is the next float above its neighbour: a nudge turns many of these comparisons.
    case = ("torch.where(x > x.roll(1, 1), 3.3 * x, x)", "x[:, 1::3] = torch.nextafter(x[:, ::3], torch.tensor(9.0))")
    found = budgets(tmp_path, *case)
    monkeypatch.setattr("harness.judge.reference.reference.nudged", as_it_is)
    for name, before in budgets(tmp_path, *case).items():
        # What eager errs by is less than what the floor allows.
        assert found[name].max_budget <= max(before.max_budget, NUDGED_FACTOR * MAX_FACTOR * 2.0**-22), name


def test_values_go_to_the_next_float_up_or_down() -> None:
    x = torch.randn(1000)
    moved = nudged(x, 5)
    up, down = (torch.nextafter(x, torch.full_like(x, edge)) for edge in (torch.inf, -torch.inf))
    assert bool(((moved == up) | (moved == down)).logical_or(moved == x).all())
    for same in (up, down):
        assert 400 < int((moved == same).sum()) < 600
    assert not torch.equal(moved, nudged(x, 6))


def test_equal_values_move_alike_wherever_they_are() -> None:
    x = torch.randn(40)
    order = torch.randperm(80)
    assert torch.equal(nudged(x.repeat(2)[order].view(8, 10).t(), 5), nudged(x, 5).repeat(2)[order].view(8, 10).t())


@pytest.mark.parametrize(
    "values",
    [
        torch.arange(-2048, 2049).float(),
        torch.randn(100).half().float(),
        torch.tensor([0.0, -0.0, torch.inf, -torch.inf]),
        torch.randn(100).half(),
        torch.randn(100, dtype=torch.float64),
        torch.arange(100),
    ],
)
def test_what_nobody_rounds_stays(values: torch.Tensor) -> None:
    assert torch.equal(nudged(values, 5), values)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_becomes_a_number_or_ceases_to_be_one(seed: int) -> None:
    assert bool(nudged(torch.tensor([torch.nan]), seed).isnan())
    assert bool(nudged(torch.tensor([torch.finfo(torch.float32).max]), seed).isfinite())
