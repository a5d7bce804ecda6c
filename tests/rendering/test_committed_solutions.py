"""What holds of every committed solution, without building it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.cpp_extension

REPOSITORY = Path(__file__).resolve().parents[2]
SOLUTIONS = sorted((REPOSITORY / "solutions").glob("*/*.py"))

each_solution = pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")

# What KernelBench's own evaluator puts in front of a candidate's source before it executes it.
FRONT = "import os\nos.environ['TORCH_USE_CUDA_DSA'] = '1'\n"


@each_solution
def test_a_solution_loads_behind_lines_that_others_put_in_front(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its annotations are evaluated, too: nothing puts that off."""
    monkeypatch.setenv("TORCH_USE_CUDA_DSA", "0")
    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", lambda **_: None)
    loaded: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(FRONT + path.read_text(), str(path), "exec", dont_inherit=True), loaded)
    assert issubclass(loaded["ModelNew"], torch.nn.Module)
