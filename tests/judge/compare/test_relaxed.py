"""Tests ``--precision relaxed``: errors within the tolerances of torch's own tests pass, and each row is marked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)

def get_inputs():
    return [torch.randn(16, 24)]

def get_init_inputs():
    return []
"""
ANSWER = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * (1 + {error})
"""
#: Relative errors, and the status under each policy.
ERRORS = {1e-7: ("PASSED", "PASSED"), 5e-5: ("WRONG_OUTPUT", "PASSED"), 2e-4: ("WRONG_OUTPUT", "WRONG_OUTPUT")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The problem, and an answer for each error."""
    folder = tmp_path_factory.mktemp("relaxed")
    (folder / "problem.py").write_text(PROBLEM)
    for number, error in enumerate(ERRORS):
        (folder / f"answer_{number}.py").write_text(ANSWER.format(error=error))
    return folder


@pytest.mark.parametrize("precision", ["strict", "relaxed"])
def test_a_policy_decides_what_is_exact_enough(precision: str, folder: Path, harness: Callable[..., Any]) -> None:
    options = ("--problem", folder / "problem.py", "--device", "cpu", "--json", "--precision", precision)
    rows = harness("evaluate", *sorted(folder.glob("answer_*.py")), *options).rows
    statuses = {Path(row["solution"]).name: row["status"] for row in rows}
    assert statuses == {
        f"answer_{number}.py": both[precision == "relaxed"] for number, both in enumerate(ERRORS.values())
    }
    assert {row["policy"].get("precision", "strict") for row in rows} == {precision}


def test_a_relaxed_pass_is_told_as_one(folder: Path, harness: Callable[..., Any], own_home: Path) -> None:
    command = ("evaluate", folder / "answer_1.py", "--problem", folder / "problem.py", "--device", "cpu")
    relaxed = harness(*command, "--precision", "relaxed", HARNESS_HOME=str(own_home))
    assert "PASSED relaxed" in relaxed.out
    record = harness("list", "records", "--json", HARNESS_HOME=str(own_home)).rows[0]["record"]
    shown = harness("show", record, HARNESS_HOME=str(own_home)).out
    assert "class fp32 (relaxed)" in shown
    assert "--precision relaxed" in shown
    strict = harness(*command, HARNESS_HOME=str(own_home))
    assert (strict.code, "stored" in strict.out) == (1, False)  # another policy is another question
