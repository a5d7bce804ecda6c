"""Fixtures for candidates that try forbidden operations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.doctor.host_checks import check_confinement

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(5, 7)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="session")
def missing() -> str:
    """What this machine does not confine by, as ``doctor`` has it; empty on one that has everything."""
    check = check_confinement()
    return "" if check.ok else check.found


@pytest.fixture(scope="session")
def written() -> Callable[..., list[str | Path]]:
    """Writes a solution's text for ``x * 2`` into a folder; the arguments of ``harness`` that evaluate it."""

    def write(folder: Path, solution: str, *options: str, device: str = "cpu") -> list[str | Path]:
        (folder / "problem.py").write_text(PROBLEM)
        (folder / "answer.py").write_text(solution)
        problem: list[str | Path] = ["--problem", folder / "problem.py"]
        return ["evaluate", folder / "answer.py", *problem, "--device", device, "--json", *options]

    return write


@pytest.fixture(scope="session")
def judged(harness: Callable[..., Any], written: Callable[..., list[str | Path]]) -> Callable[..., Any]:
    """Evaluates a solution's text in a folder; what the command printed, as for ``harness``."""

    def run(folder: Path, solution: str, *options: str, device: str = "cpu", **environment: str) -> Any:
        return harness(*written(folder, solution, *options, device=device), **environment)

    return run
