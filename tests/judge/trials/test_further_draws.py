"""Tests further draws: a failure only there becomes a finding, and an honest kernel has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import ProblemError
from harness.judge.trials import further_draws
from harness.judge.trials.further_draws import chosen, transformed
from harness.project.problems import read_problem
from harness.records.record import EvaluationRecord, FurtherDraw, Status
from harness.report.single import sections
from tests.judge.in_process import judged

# A spread of 8 hides an eps of 1e-5, and a mean of zero what a single pass loses.
PROBLEM = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

DRAWS = {draws}


class Model(nn.Module):
    """Normalises each row."""

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn(6, 400) * 8]


def get_init_inputs():
    return []
'''
LAYER_NORM = "F.layer_norm(x, x.shape[1:])"
SOLUTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        {body}
"""
TWO_PASSES = "return (x - mean) * torch.rsqrt((x - mean).square().mean(1, keepdim=True) + 1e-5)"
ONE_PASS = "return (x - mean) * torch.rsqrt(x.square().mean(1, keepdim=True) - mean.square() + 1e-5)"
NO_EPS = "return (x - mean) * torch.rsqrt((x - mean).square().mean(1, keepdim=True))"
RAISES = f"assert float(mean.abs().max()) < 100, 'too large'\n        {TWO_PASSES}"
ANOTHER_FORM = f"if float(mean.abs().max()) > 100: return x[0]\n        {TWO_PASSES}"
ALL = [str(name) for name in FurtherDraw]


@pytest.fixture
def record(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EvaluationRecord]:
    """The record of a candidate's body under all of a problem's further draws, as on a GPU."""
    monkeypatch.setattr(further_draws, "MOST_ON_EMULATOR", len(ALL))

    def run(body: str, *draws: str, forward: str = LAYER_NORM) -> EvaluationRecord:
        return judged(PROBLEM.format(draws=list(draws), forward=forward), SOLUTION.format(body=body), tmp_path, home)

    return run


def test_an_honest_kernel_has_no_finding(record: Callable[..., EvaluationRecord]) -> None:
    found = record(TWO_PASSES, *ALL)
    assert (found.status, found.trials) == (Status.PASSED, 5)
    assert list(found.further_draws) == ALL
    assert all(end.startswith("passed (") for end in found.further_draws.values()), found.further_draws
    assert "further draws" in found.stages_s
    assert [finding for finding in found.findings if finding.kind == "robustness"] == []


@pytest.mark.parametrize(("body", "name"), [(ONE_PASS, "shifted"), (NO_EPS, "small_variance")])
def test_what_fails_only_there_is_a_finding_and_no_verdict(
    record: Callable[..., EvaluationRecord], body: str, name: str
) -> None:
    found = record(body, *ALL)
    assert (found.status, found.trials) == (Status.PASSED, 5)
    # Without eps, robustness checks fail, too: `zeros` gives NaN, and in `small` an eps counts.
    (finding,) = (one for one in found.findings if one.kind == "robustness" and "further draw" in one.message)
    assert finding.level == "report"
    assert finding.message.startswith(f"under the further draw '{name}' (inputs ")
    assert all(word in finding.message for word in ("output", "relative L2 error", "budget", "received "))
    assert "precision is of class" not in finding.message
    assert finding.remedy
    ends = {draw: end.split(" (")[0] for draw, end in found.further_draws.items()}
    assert ends == {draw: "failed" if draw == name else "passed" for draw in ALL}
    shown = "\n".join(sections(found))
    assert f"{name}: failed (" in shown
    assert "robustness: under the further draw" in shown


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [(RAISES, Status.RUNTIME_ERROR, "too large"), (ANOTHER_FORM, Status.WRONG_OUTPUT, "has shape [400]")],
)
def test_a_run_that_ends_there_is_a_verdict(
    record: Callable[..., EvaluationRecord], body: str, status: Status, words: str
) -> None:
    found = record(body, "small_variance", "shifted")
    assert found.status is status
    assert "under the further draw 'shifted'" in found.message
    assert words in found.message


def test_a_draw_that_the_reference_does_not_bear_is_left_out(
    record: Callable[..., EvaluationRecord], harness: Callable[..., Any], tmp_path: Path
) -> None:
    infinite = "torch.exp(x / 4)"
    found = record("return torch.exp(x / 4)", "scaled", forward=infinite)
    assert found.status is Status.PASSED
    assert found.further_draws == {"scaled": "left out: the reference's output is not finite"}
    zero = "F.relu(x - 1)"
    found = record("return F.relu(x - 1)", "small_variance", forward=zero)
    assert found.status is Status.PASSED
    assert found.further_draws["small_variance"].startswith("left out: ")
    assert [one for one in found.findings if one.kind == "robustness"] == []

    (tmp_path / "problem.py").write_text(PROBLEM.format(draws=["scaled", "shifted"], forward="torch.exp(x / 1e3)"))
    ran = harness("validate", tmp_path / "problem.py", "--device", "cpu", "--json")
    told = [(check["ok"], check["found"]) for check in ran.rows[0]["checks"] if check["name"] == "further"]
    assert told == [
        (False, "scaled: the reference's output is not finite; take it out of DRAWS"),
        (True, "outputs and gradients are finite under shifted"),
    ]
    assert ran.code != 0


def test_a_reference_with_kinks_is_kept_from_them(record: Callable[..., EvaluationRecord]) -> None:
    found = record("return F.relu(x + 1)", "heavy_tailed", forward="F.relu(x + 1)")
    assert found.further_draws["heavy_tailed"].startswith("passed (")


def test_none_are_run_where_none_are_declared_or_a_trial_failed(record: Callable[..., EvaluationRecord]) -> None:
    assert record(TWO_PASSES).further_draws == {}
    failed = record("return x - mean", "shifted")
    assert (failed.status, failed.further_draws) == (Status.WRONG_OUTPUT, {})


def test_the_emulator_runs_one_as_the_secret_has_it_and_a_gpu_all() -> None:
    names = list(FurtherDraw)
    runs = [chosen(names, f"secret {number}", on_emulator=True) for number in range(40)]
    assert all(len(run) == 1 for run in runs)
    assert {run[0] for run in runs} == set(names)
    assert runs[7] == chosen(names, "secret 7", on_emulator=True)
    assert chosen(names, "secret", on_emulator=False) == names


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", FurtherDraw)
def test_what_is_no_floating_tensor_stays_and_all_else_stays_finite(name: FurtherDraw, dtype: torch.dtype) -> None:
    x, indices = torch.randn(50, 60).to(dtype), torch.arange(5)
    before = x.clone()
    first, other, number = transformed(name, [x, indices, 3], 1)
    assert (first.dtype, first.shape) == (dtype, x.shape)
    assert bool(torch.isfinite(first).all())
    assert not first.equal(x)
    assert x.equal(before)
    assert other is indices
    assert number == 3
    assert transformed(name, [x], 1)[0].equal(first)


def test_the_formulas() -> None:
    x = torch.rand(300, 400)
    shifted, scaled, small, heavy = (transformed(name, [x], 1)[0].double() for name in FurtherDraw)
    assert 90 < float(shifted.mean() / shifted.std()) < 110
    assert float((transformed(FurtherDraw.SHIFTED, [-x], 1)[0].double() + shifted).abs().max()) == 0  # away from zero
    assert scaled.equal(x.double() * 2**16)
    assert small.equal(x.double() / 2**10)
    factors = heavy / x.double()
    assert float(factors.max()) <= 2**12 * (1 + 1e-6)
    assert float(factors.min()) >= 1 - 1e-6
    for bound in (2, 10, 100):  # the tail of a Pareto distribution of index 1
        assert float((factors > bound).double().mean()) == pytest.approx(1 / bound, rel=0.15)
    assert not transformed(FurtherDraw.HEAVY_TAILED, [x], 2)[0].double().equal(heavy)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("'shifted'", "DRAWS must be a list of names of further draws, as in ['shifted', 'scaled'], not str"),
        ("{'x': ['shifted']}", "not dict"),
        ("None", "not NoneType"),
        ("[1]", "1 is not a name"),
        ("['shifed']", "there is no 'shifed'. Did you mean 'shifted'?"),
        ("['uniform']", "there is no 'uniform'. Known: heavy_tailed, scaled, shifted, small_variance."),
    ],
)
def test_a_bad_declaration_is_refused_in_words(tmp_path: Path, declared: str, words: str) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(draws=declared, forward="x"))
    with pytest.raises(ProblemError) as caught:
        read_problem(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_declaration_counts_each_name_once_and_need_be_no_literal(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(draws="['scaled', 'shifted', 'scaled']", forward="x"))
    assert read_problem(path).draws == (FurtherDraw.SCALED, FurtherDraw.SHIFTED)
    path.write_text(PROBLEM.format(draws="list(('shifted',))", forward="x"))
    assert read_problem(path).draws == (FurtherDraw.SHIFTED,)
