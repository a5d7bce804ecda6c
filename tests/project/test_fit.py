"""Tests that every shipped problem is fit to judge by, in every case that fits a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEMS = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "problems").glob("[!_]*.py"))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_shipped_problem_is_refused_for_nothing_and_warned_of_nothing(
    harness: Callable[..., Any], problem: str
) -> None:
    # One thread: in cases this small a second one is mostly waited for.
    ran = harness("validate", problem, "--device", "cpu", "--json", OMP_NUM_THREADS="1")
    (row,) = ran.rows
    unfit = [check for check in row["checks"] if check["ok"] is not True]
    full = {check["case"] for check in row["checks"] if (check["case"] or "").startswith("full")}
    expected = {(case, "memory") for case in full}
    if problem == "group_norm_half":  # what a class rounds operands to cannot be told behind the rounding of a half
        expected |= {(check["case"], "class") for check in unfit if check["name"] == "class"}
    assert {(check["case"], check["name"]) for check in unfit} == expected, unfit
    assert (ran.code, row["ok"]) == (0, True)
    judged = {check["case"] for check in row["checks"] if check["name"] == "gradients"}
    assert len(judged) >= 5
    assert judged == {check["case"] for check in row["checks"] if check["name"] == "body"} - full
