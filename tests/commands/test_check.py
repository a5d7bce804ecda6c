"""Tests ``check`` and ``evaluate --check``: findings about accesses, together with the verdict on results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.compilation.nvcc import cuda_home

REPOSITORY = Path(__file__).resolve().parents[2]
FUSED = REPOSITORY / "solutions" / "group_norm" / "fused.py"

Harness = Callable[..., Any]

BEFORE_REUSE = "  __syncthreads();  // every thread has read the result of the reduction before\n"
SHARED_STORE = "  if (lane == 0) scratch[warp] = value;"
STORE = "  lane_dy_xhat[threadIdx.y][threadIdx.x] = sum_dy_xhat;\n"
#: Changes of a solution that keep every line where it was: what is replaced, and by what.
CHANGES = {
    "missing_barrier": (BEFORE_REUSE, "\n"),
    # What it reads beside the store goes nowhere.
    "idle_read": (SHARED_STORE, f"{SHARED_STORE} (void)*reinterpret_cast<const volatile char*>(scratch);"),
    "missing_store": (STORE, "\n"),
    "lonely_barrier": (BEFORE_REUSE, "  if (threadIdx.x != 0) __syncthreads();\n"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checked")
    text = FUSED.read_text()
    paths = {}
    for name, (old, new) in CHANGES.items():
        assert text.count(old) == 1
        paths[name] = folder / f"{name}.py"
        paths[name].write_text(text.replace(old, new))
    return paths


@pytest.fixture(scope="module")
def checked(harness: Harness, written: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """The records of all of them, from one command."""
    ran = harness("check", *written.values(), "--problem", "group_norm", "--case", "odd", "--json")
    assert ran.code == 1, ran.err
    return {Path(row["solution_path"]).stem: row for row in ran.rows}


def decisive(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in record["findings"] if finding["level"] == "error"]


def line_of(words: str) -> int:
    return next(number for number, line in enumerate(FUSED.read_text().splitlines(), 1) if words in line)


def test_a_race_that_changes_no_result_is_named_with_both_accesses(checked: dict[str, dict[str, Any]]) -> None:
    record = checked["idle_read"]
    assert (record["status"], record["policy"]["check"]) == ("UNSAFE", "sm_90")
    assert "outputs and gradients are right nevertheless" in record["message"]
    assert all(report["ok"] for report in (*record["outputs"], *record["gradients"]))
    found = decisive(record)
    assert {finding["kind"] for finding in found} == {"race"}
    finding = next(one for one in found if {access["line"] for access in one["accesses"]} == {line_of(SHARED_STORE)})
    assert finding["kernel"]
    assert "__syncwarp()" in finding["remedy"]
    writing, reading = finding["accesses"]
    assert writing["thread"] != reading["thread"]
    assert writing["block"] == reading["block"]


def test_a_missing_barrier_is_named_with_both_accesses(checked: dict[str, dict[str, Any]]) -> None:
    lines = {line_of(SHARED_STORE), line_of("  return scratch[0];")}
    assert checked["missing_barrier"]["status"] == "UNSAFE"
    found = decisive(checked["missing_barrier"])
    finding = next(one for one in found if {access["line"] for access in one["accesses"]} == lines)
    assert "__syncthreads()" in finding["remedy"]


def test_a_read_of_nothing_counts_where_the_result_depends_on_it(checked: dict[str, dict[str, Any]]) -> None:
    record = checked["missing_store"]
    assert record["status"] == "UNSAFE"
    assert "also WRONG_GRADIENT:" in record["message"]
    (finding,) = decisive(record)
    assert (finding["kind"], finding["kernel"]) == ("uninitialised", "affine_gradients")
    assert finding["line"] == line_of("sum_dy_xhat += lane_dy_xhat[lane][threadIdx.x];")


def test_what_ends_a_launch_ends_the_candidate(checked: dict[str, dict[str, Any]]) -> None:
    record = checked["lonely_barrier"]
    assert record["status"] == "UNSAFE"
    assert record["message"].startswith("divergence: ")
    assert line_of(BEFORE_REUSE.strip()) in {access["line"] for access in decisive(record)[0]["accesses"]}


def test_the_table_shows_the_status_the_errors_and_the_finding(harness: Harness, written: dict[str, Path]) -> None:
    ran = harness("evaluate", written["idle_read"], "--problem", "group_norm", "--case", "odd", "--check")
    assert ran.code == 1
    assert "UNSAFE checked" in ran.out
    assert "race: thread " in ran.out
    plain = harness("evaluate", written["idle_read"], "--problem", "group_norm", "--case", "odd")
    assert (plain.code, "PASSED" in plain.out, "PASSED checked" in plain.out) == (0, True, False)


def test_all_of_our_solutions_pass(harness: Harness) -> None:
    ran = harness("check", "--case", "odd", "--json", CUDA_HOME=str(cuda_home() or ""))  # nvcc compiles them, too
    assert ran.code == 0, [(row["solution"], row["message"]) for row in ran.rows if row["status"] != "PASSED"]
    assert len(ran.rows) == len(list((REPOSITORY / "solutions").glob("*/*.py")))
    assert [decisive(row) for row in ran.rows] == [[]] * len(ran.rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate", "group_norm", "--arch", "sm_86"), "--arch needs --check"),
        (("evaluate", "group_norm", "--check", "--device", "cuda:0"), "--check runs on the CPU emulator"),
        (("check", "group_norm", "--arch", "sm_1"), "sm_90"),
        (("check", "group_norm", "--device", "cpu"), "--device"),
    ],
)
def test_wrong_usage(harness: Harness, arguments: tuple[str, ...], words: str) -> None:
    ran = harness(*arguments)
    assert ran.code == 2
    assert words in ran.err


TICKETS = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

kernels = load_inline(name="tickets", cpp_sources="torch::Tensor reversed(torch::Tensor x);", functions=["reversed"],
    cuda_sources='''
__global__ void reverse(const float* x, float* y, int* next) {
  const int place = atomicAdd(next, 1);
  y[3 - place] = x[place];
}
torch::Tensor reversed(torch::Tensor x) {
  auto y = torch::empty_like(x), next = torch::zeros({1}, x.options().dtype(torch::kInt));
  reverse<<<1, 4>>>(x.data_ptr<float>(), y.data_ptr<float>(), next.data_ptr<int>());
  return y;
}
''')


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.reversed(x)
"""
REVERSED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.flip(0)


def get_inputs():
    return [torch.randn(4)]


def get_init_inputs():
    return []
"""


def test_all_orders_of_a_launch_are_run_and_told(harness: Harness, tmp_path: Path) -> None:
    solution, problem = tmp_path / "tickets.py", tmp_path / "backwards.py"
    solution.write_text(TICKETS)
    problem.write_text(REVERSED)
    ran = harness("check", solution, "--problem", problem, "--exhaustive", "--forward-only")
    told = "explored: kernel reverse, 4 threads: all 24 orders of its synchronising operations ran"
    assert ran.code == 0, ran.out + ran.err
    assert told in " ".join(ran.out.split()), ran.out + ran.err
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--exhaustive")
    assert (ran.code, "--exhaustive needs --check" in ran.err) == (2, True)
