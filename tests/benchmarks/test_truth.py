"""Tests the scripts that verify timing on a GPU: what they count, plant, pair and print.

Nobody times anything here: figures are given, or it does not matter what they are.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.errors import HarnessError
from harness.executors.session import Session
from harness.executors.tools import tools_for
from harness.judge.policy import Surroundings
from harness.judge.process.workers import Workers
from harness.judge.timing.rivals import Baseline
from harness.project import problems
from harness.project.problems import Problem, read_problem
from harness.timing.statistics import SpeedVerdict

REPOSITORY = Path(__file__).resolve().parents[2]
PROBLEM = """
import torch
import torch.nn as nn

torch.set_num_threads(1)
n = 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((16,), 0.5))

    def forward(self, x):
        return torch.tanh(x) * self.scale


def get_inputs():
    return [torch.randn(n, 16)]


def get_init_inputs():
    return []
"""
SPINNER = '''
class Spinner:
    """Counts its calls instead of cycles."""

    def __init__(self, cycles):
        self.cycles, self.calls = cycles, []

    def __call__(self, x):
        self.calls.append([self.cycles, 2 * self.cycles])
        return x + 1

    def told(self):
        found, self.calls = self.calls, []
        return found


'''


@pytest.fixture(autouse=True)
def _from_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts import each other, as ``python -m`` has it."""
    monkeypatch.syspath_prepend(str(REPOSITORY))


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """A tiny problem."""
    (tmp_path / "tiny.py").write_text(PROBLEM)
    return read_problem(tmp_path / "tiny.py")


@pytest.fixture(scope="module")
def session(home: Path) -> Iterator[Session]:
    """A session on the CPU, with a baseline: times are the system clock's."""
    tools = tools_for("cpu", home)
    workers, rivals = (
        Workers("cpu", tools.libraries, memory_bytes=None, confined=confined) for confined in (True, False)
    )
    baseline = Baseline(rivals)
    yield Session("cpu", Surroundings.of_this_machine(home, tools.compiler, "cpu"), workers, baseline, workers)
    baseline.close()
    rivals.close()
    workers.close()


def script(name: str) -> ModuleType:
    """A script as a module."""
    return importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("name", ["same_and_slower", "spin", "peers", "plain"])
def test_without_a_gpu_a_script_says_so(name: str, tmp_path: Path) -> None:
    more = ["solutions/group_norm/fused.py", "--problem", "group_norm"] if name == "plain" else []
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *more],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HARNESS_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "error: --device cuda:0: speed is measured on a GPU, and torch finds none here" in ran.stderr
    assert "Traceback" not in ran.stderr


# ------------------------------------------------------------------ the same, and slower


def ones(share: float, *intervals: tuple[float, float]) -> list[Any]:
    """Series with these intervals, the ratio in the middle of each."""
    one = script("same_and_slower").One
    return [one("p", share, "forward", 0, (low + high) / 2, low, high, 20, 1.0, 1.0) for low, high in intervals]


SAME, UNCLEAR, FASTER, SLOWER = (0.995, 1.005), (0.98, 1.02), (1.001, 1.04), (0.95, 0.98)


@pytest.mark.parametrize(
    ("share", "intervals", "counts", "errors", "missing", "holds"),
    [
        (0.0, [SAME] * 5 + [UNCLEAR], (5, 0, 0, 1), 0, 0, True),
        (0.0, [SAME] * 26 + [FASTER] * 2 + [SLOWER] * 2, (26, 2, 2, 0), 4, 4, True),  # 6 % of all runs have as many
        (0.0, [SAME] * 25 + [FASTER] * 3 + [SLOWER] * 2, (25, 3, 2, 0), 5, 5, False),  # 1.6 %
        (0.0, [(1.0001, 1.002)], (1, 0, 0, 0), 0, 1, True),  # the same, although the interval leaves 1 out
        (0.03, [SLOWER, SLOWER], (0, 0, 2, 0), 0, None, True),
        (0.03, [SLOWER, UNCLEAR], (0, 0, 1, 1), 1, None, False),
        (0.005, [(0.993, 0.997), UNCLEAR, (0.985, 0.999)], (1, 0, 1, 1), 0, None, True),
        (0.005, [(0.9885, 0.9915)], (0, 0, 1, 0), 1, None, False),  # narrow, and not the same
        (0.005, [FASTER], (0, 1, 0, 0), 1, None, False),
    ],
)
def test_verdicts_are_counted_and_judged(
    share: float,
    intervals: list[tuple[float, float]],
    counts: tuple[int, ...],
    errors: int,
    missing: int | None,
    holds: bool,
) -> None:
    told = script("same_and_slower").summary(ones(share, *intervals))
    order = (SpeedVerdict.SAME, SpeedVerdict.FASTER, SpeedVerdict.SLOWER, SpeedVerdict.UNCLEAR)
    assert tuple(told.verdicts[verdict] for verdict in order) == counts
    assert (told.errors, told.missing, told.holds) == (errors, missing, holds)


def test_the_binomial_tail_is_exact() -> None:
    at_least = script("same_and_slower").at_least
    assert at_least(0, 30, 0.05) == pytest.approx(1.0)
    assert at_least(1, 30, 0.05) == pytest.approx(1 - 0.95**30)
    assert at_least(30, 30, 0.05) == pytest.approx(0.05**30)


def test_a_table_has_a_row_for_each_group_and_one_for_all() -> None:
    same = script("same_and_slower")
    found = [*ones(0.0, SAME, UNCLEAR), *ones(0.03, SLOWER), *ones(0.005, FASTER)]
    text, holds = same.summary_table(found)
    lines = text.splitlines()
    assert len(lines) == 2 + 3 + 3
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert lines[2].startswith("| p | same | forward | 2 | 1 | 0 | 0 | 1 | 0 (0.0%) | 0 (0.0%) |")
    assert [line.endswith("yes |") for line in lines[2:]] == [True, True, False] * 2
    assert "0.9709" in lines[3]  # 1 / 1.03
    assert not holds
    assert same.series_table(found).count("\n") == 2 + len(found)


def test_a_slower_candidate_is_the_model_and_a_pause_of_its_share(problem: Problem) -> None:
    same = script("same_and_slower")
    latencies = {"forward": 2.0, "forward_backward": 7.0}
    space: dict[str, Any] = {"SPENT": []}
    exec(same.source(problem, latencies, 0.03, "SPENT.append(milliseconds)"), space)
    candidate, model, x = space["ModelNew"](), space["Model"](), torch.randn(4, 16)
    with torch.no_grad():
        assert torch.equal(candidate(x), model(x))
    assert space["SPENT"] == [pytest.approx(0.03 * 2.0)]
    space["SPENT"].clear()
    received, expected = (
        torch.autograd.grad(one(x), list(one.parameters()), torch.ones(4, 16)) for one in (candidate, model)
    )
    assert torch.equal(received[0], expected[0])
    assert sum(space["SPENT"]) == pytest.approx(0.03 * 7.0)


def test_the_same_spends_nothing(problem: Problem) -> None:
    space: dict[str, Any] = {"SPENT": []}
    exec(script("same_and_slower").source(problem, {}, 0.0, "SPENT.append(milliseconds)"), space)
    space["ModelNew"]()(torch.randn(4, 16, requires_grad=True)).sum().backward()
    assert space["SPENT"] == []


def test_series_are_repeated_within_an_evaluation(problem: Problem, session: Session, tmp_path: Path) -> None:
    same = script("same_and_slower")
    path = tmp_path / "found.json"
    counts = ["--repeats", "1", "--series", "3", "--slower", "3", "--slower-repeats", "2", "--slower-series", "1"]
    options = same.arguments().parse_args([*counts, "--json", str(path)])
    found: list[Any] = []
    assert same.run(session, [problem], options, "assert milliseconds > 0", found) == []
    expected = [(0.0, 0)] * 6 + [(0.03, 0)] * 2 + [(0.03, 1)] * 2
    assert [(one.share, one.evaluation) for one in found] == expected
    assert [one.direction for one in found] == ["forward", "forward_backward"] * 5
    assert all(one.low <= one.ratio <= one.high and one.pairs >= 10 for one in found)
    assert len({one.ratio for one in found}) == len(found)  # each was taken anew
    assert [row["ratio"] for row in json.loads(path.read_text())["series"]] == [one.ratio for one in found]


def test_a_spent_budget_leaves_out_what_has_not_begun(problem: Problem, session: Session) -> None:
    same = script("same_and_slower")
    options = same.arguments().parse_args(["--budget-s", "1e-9"])
    found: list[Any] = []
    assert same.run(session, [problem], options, "pass", found) == []
    assert found == []


# ------------------------------------------------------------------ against truth


def phases(*lengths: tuple[int, int]) -> list[list[int]]:
    """Calls by phase: so many that took so many nanoseconds, at two cycles each."""
    return [[ns, 2 * ns] for ns, length in lengths for _ in range(length)]


def log_of(calls: list[list[int]]) -> str:
    """What the candidate prints of them, after what it printed before the series."""
    spin = script("spin")
    told = {"count": len(calls), "first": calls[: spin.FIRST], "last": calls[-spin.LAST :]}
    return f'{spin.MARK}{{"count":1,"first":[[9,9]],"last":[[9,9]]}}\n{spin.MARK}{json.dumps(told)}\n'


#: As the harness calls: once, a series of 12 after 2, windows, for memory, for the profiler, 10 queued after 2, and 10
#: replayed after 3 and 2.
CALLS = phases(
    (1, 1), (2, 2), (300, 12), (4, 500), (5, 1), (600, 1), (7, 2), (800, 10), (9, 3), (10, 2), (1100, 10)
)  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "ns", "length"),
    [("synchronised", 300, 12), ("kernels", 600, 1), ("queued", 800, 10), ("graph", 1100, 10)],
)
def test_calls_are_found_by_mode(mode: str, ns: int, length: int) -> None:
    calls = script("spin").History.read(log_of(CALLS)).of_mode(mode, 12, {"graph": {}, "queued": {}, "kernels": {}})
    assert [call.ns for call in calls] == [ns] * length


def test_where_replaying_failed_nobody_knows_whose_calls_the_last_ones_are() -> None:
    history = script("spin").History.read(log_of(CALLS))
    assert len(history.of_mode("queued", 12, {"graph": {"failure": "no"}})) == 120


def test_a_candidate_that_told_nothing_is_an_error() -> None:
    with pytest.raises(HarnessError, match="told nothing"):
        script("spin").History.read("hello\n")


def test_truth_is_finer_than_the_steps_of_the_clock() -> None:
    spin = script("spin")
    calls = [spin.Call(ns, 19_800) for ns in [10_000] * 3 + [11_000]]  # 10.25 us on average
    history = spin.History(4, tuple(calls), ())
    assert history.step_ns == 1000
    found = spin.truth(calls, history.step_ns)
    assert found.ms == pytest.approx(0.01025)
    assert found.ghz == pytest.approx(19_800 / 10_250)
    assert found.unsure_ms == pytest.approx(0.0005)
    assert spin.History(1, (calls[0],), ()).step_ns == 0


@pytest.mark.parametrize(
    ("duration_us", "said_us", "holds"),
    [
        (10, 11.15, True),
        (10, 11.25, False),
        (10, 8.75, False),
        (100, 102.9, True),
        (200, 203.9, True),
        (200, 204.5, False),
        (20000, 20390, True),
        (20000, 20410, False),
        (10, float("nan"), False),
    ],
)
def test_a_time_holds_within_its_bound(duration_us: float, said_us: float, holds: bool) -> None:
    spin = script("spin")
    row = spin.Row(duration_us, "graph", spin.Truth(duration_us / 1e3, 1.98, 0.0), said_us / 1e3, 0.0)
    assert row.holds is holds
    assert ("**no**" in spin.rows_table([row])) is not holds


def test_the_worst_of_several_rows_is_shown() -> None:
    spin = script("spin")
    true = spin.Truth(1.0, 1.98, 0.0)
    rows = [spin.Row(1000, mode, true, said, 0.0) for mode in ("graph", "queued") for said in (1.001, 0.99, 1.002)]
    assert [(row.mode, row.harness_ms) for row in spin.worst(rows)] == [("graph", 0.99), ("queued", 0.99)]


def test_what_the_kernel_saw_is_paired_with_what_the_harness_said(session: Session, tmp_path: Path) -> None:
    spin = script("spin")
    options = spin.arguments().parse_args(["--durations-us", "30", "2000.5", "--repeats", "2"])
    candidate = spin.pair(tmp_path, options.durations_us, 1000.0, SPINNER)
    rows: list[Any] = []
    assert spin.run(session, candidate, options, rows) == []
    seen = {(row.duration_us, row.mode) for row in rows}
    assert {(30.0, "synchronised"), (2000.5, "synchronised")} <= seen
    for row in rows:
        assert row.truth.ms == pytest.approx(row.duration_us / 1e3)
        assert row.truth.ghz == pytest.approx(2.0)
        assert row.harness_ms + row.overhead_ms > 0


# ------------------------------------------------------------------ against peers


def test_a_row_holds_where_both_peers_agree() -> None:
    peers = script("peers")
    row = peers.Row("p/s", "forward", 0, 1.02, 1.0, 0.7, 1.0)
    assert row.holds(0.03, 0.03)
    assert not row.holds(0.01, 0.03)
    assert not row.holds(0.03, 0.01)
    assert not replace(row, kernels=None).holds(0.03, 0.03)
    assert not replace(row, harness=None).holds(0.03, 0.03)
    text = peers.rows_table([row, replace(row, do_bench=None)], 0.03, 0.03)
    assert "| p/s | forward | 1.020 | 1.000 | 1.020 | +2.0% | 0.700 | 1.457 | 1.000 | 1.020 | yes |" in text
    assert "| p/s | forward | 1.020 | - | - | - | 0.700 | 1.457 | 1.000 | 1.020 | **no** |" in text


def test_rows_are_of_the_directions_that_somebody_measured() -> None:
    peers = script("peers")
    told = {"forward": {"do_bench": 2.0, "unflushed": 1.9, "kernels": None}}
    rows = peers.rows_of("p/s", 1, {"forward": 2.1, "forward_backward": None}, told)
    assert rows == [peers.Row("p/s", "forward", 1, 2.1, 2.0, 1.9, None)]
    assert peers.rows_of("p/s", 0, {"forward": None, "forward_backward": None}, told)[0].over(2.0) is None


def test_a_plain_process_calls_what_the_harness_times(problem: Problem) -> None:
    module = problems.load(problem, {"n": 3})
    calls = script("plain").calls_of(module, module.model, torch.device("cpu"))
    result = calls["forward"]()
    assert (tuple(result.shape), result.requires_grad) == ((3, 16), False)
    assert [tuple(gradient.shape) for gradient in calls["forward_backward"]()] == [(3, 16), (16,)]


# ------------------------------------------------------------------ what they share


def test_a_part_of_a_budget_is_a_share_of_what_is_left() -> None:
    budget = script("common").Budget
    assert budget(None).part(0.5).left_s == float("inf")
    assert not budget(1000.0).is_spent
    assert 490 < budget(1000.0).part(0.5).left_s <= 500
    assert budget(0.0).is_spent


def test_cells_do_not_break_a_table() -> None:
    text = script("common").table(["a", "b"], [["x|y", None], ["line\nbreak", True]])
    assert text.splitlines() == ["| a | b |", "| --- | --- |", "| x\\|y | - |", "| line\\x0abreak | yes |"]
