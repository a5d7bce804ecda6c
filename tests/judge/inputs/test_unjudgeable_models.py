"""Tests that a model which the harness cannot judge is refused with what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import ProblemError
from tests.conftest import Ran
from tests.judge.in_process import judged

PROBLEM = """
import threading
import torch
import torch.nn as nn


class Batch:
    x = torch.ones(5)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layer}

    def forward(self, x):
        return {result}


def get_inputs():
    return [{value}]


def get_init_inputs():
    return []
"""
FLOATS = "torch.randn(5, 9)"


@pytest.mark.parametrize(
    ("layer", "result", "value", "words"),
    [
        (
            "self.layer = nn.Embedding(7, 9, sparse=True)",
            "self.layer(x)",
            "torch.randint(7, (5,))",
            "gradient of layer.weight has layout torch.sparse_coo.*sparse=False",
        ),
        (
            "self.layer = nn.Linear(9, 9); self.half = self.layer.weight / 2",
            "self.layer(x)",
            FLOATS,
            "copy.deepcopy cannot copy Model.*parametrizations.weight_norm",
        ),
        (
            "self.layer = nn.Linear(9, 9); self.lock = threading.Lock()",
            "self.layer(x)",
            FLOATS,
            "copy.deepcopy cannot copy Model.*keep no lock",
        ),
        (
            "self.weight = nn.Parameter(torch.randn(9, dtype=torch.complex64))",
            "(x * self.weight).abs()",
            FLOATS,
            "the parameter weight is complex.*view_as_complex",
        ),
        ("self.layer = nn.LazyLinear(7)", "self.layer(x)", FLOATS, "lazy parameters.*with their sizes"),
        ("pass", "torch.fft.fft(x)", FLOATS, "complex numbers.*view_as_real"),
        ("pass", "x", "torch.randn(3, device='meta')", "input 0 of get_inputs.* no values; draw it on the CPU"),
        ("pass", "x", "torch.nested.nested_tensor([torch.randn(2, 3)], layout=torch.jagged)", "nested.* padded"),
        ("pass", "x * 2", "torch.randn(int(torch.randint(3, 9, ())), 9)", "input 0 a different shape.* padding"),
        ("pass", "x[x > 0]", FLOATS, "outputs change from draw to draw: .* padded"),
        ("pass", "x.x * 2", "Batch()", "cannot pass a Batch to a candidate.* inputs of their own"),
    ],
)
def test_the_message_says_what_to_do(
    layer: str, result: str, value: str, words: str, tmp_path: Path, home: Path
) -> None:
    problem = PROBLEM.format(layer=layer, result=result, value=value)
    with pytest.raises(ProblemError, match=words):
        judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("class Model(nn.Module)", "class Model", "Model is not a torch.nn.Module: write class Model(torch.nn.Module)"),
        ("(5, 9)", "(int(torch.randint(3, 9, ())), 9)", "different shape or dtype in a later call"),
        ("torch.randn(5, 9)", "torch.randn(5, 9, device='cuda')", "draw on the CPU or on torch's default device"),
    ],
    ids=["no module", "shapes", "no GPU"],
)
def test_every_refusal_names_the_file(
    old: str, new: str, words: str, tmp_path: Path, harness: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    problem = PROBLEM.format(layer="pass", result="x * 2", value=FLOATS)
    (tmp_path / "problem.py").write_text(problem.replace(old, new))
    (tmp_path / "answer.py").write_text(problem.replace("Model(", "ModelNew("))
    ran = harness("evaluate", tmp_path / "answer.py", "--problem", tmp_path / "problem.py", "--json", "--device", "cpu")
    assert str(tmp_path / "problem.py") in ran.err
    assert words in ran.err
