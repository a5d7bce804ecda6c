"""Tests that no file of the working folder, where candidates lie, runs in a process of the harness."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.project.paths import import_path

REPOSITORY = Path(__file__).resolve().parents[2]
PROBLEM = """\
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)
def get_inputs():
    return [torch.randn(5, 7)]
def get_init_inputs():
    return []
"""
WRONG = PROBLEM.replace("Model", "ModelNew").replace("tanh(x)", "tanh(x) * 2")
#: Modules that torch or the harness imports when they are there.
NAMES = ("numpy", "sympy", "json", "click", "rich", "torch")


@pytest.mark.slow
def test_a_candidate_with_a_module_s_name_runs_in_its_worker_alone(own_home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    (tmp_path / "problem.py").write_text(PROBLEM)
    (folder / "wrong.py").write_text(WRONG)
    for name in NAMES:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / name)!r}, 'w').close()\nraise ImportError({name!r})\n"
        )
    command = [sys.executable, "-m", "harness", "evaluate", "wrong.py", "--problem", tmp_path / "problem.py", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HARNESS_HOME": str(own_home)}
    ran = subprocess.run([*command, "--device", "cpu"], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert json.loads(ran.stdout)["status"] == "WRONG_OUTPUT"
    assert [name for name in NAMES if (tmp_path / name).exists()] == []


def test_an_empty_part_of_the_user_s_path_is_not_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(tmp_path), ""]))
    assert import_path().split(os.pathsep) == [str(REPOSITORY), str(tmp_path)]
