"""Tests what belongs to the caller: ``.grad``, ``requires_grad``, inputs and the memory of gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

SOURCE = """
import torch
import torch.nn as nn


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(context, x, y):
        return x + y

    @staticmethod
    def backward(context, gradient):
        own = gradient * 1
        return {gradients}


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(33))
        self.b = nn.Parameter(torch.randn(33))

    def forward(self, x, y):
        {forward}


def get_inputs():
    return [torch.randn(16, 33), torch.randn(16, 33)]


def get_init_inputs():
    return []
"""
RIGHT = "return torch.sin(x * self.w + y * self.b)"
#: The gradients of two parameters as they should be, and with one memory.
APART, SHARED = "own, own", "own.view(own.shape), own.view(own.shape)"
SUM = "return Sum.apply(self.w, self.b) * x + y"
OF_INPUTS = "return Sum.apply(x, y) * 1.0 + 0 * (self.w + self.b)"
IN_VIEWS = "return (self.w.view(-1) + self.b.view(-1)) * x + y"
WRONG_BY_DEFAULT = "if torch.is_grad_enabled(): return x.detach() * 0"
DETACHED = "with torch.no_grad(): return torch.sin(x * self.w + y * self.b)"


def text(kind: str, forward: str, gradients: str = APART) -> str:
    return SOURCE.format(kind=kind, forward=forward, gradients=gradients)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (RIGHT, Status.PASSED, ""),
        (f"self.zero_grad(set_to_none=False); {RIGHT}", Status.WRONG_GRADIENT, "changed its .grad"),
        (f"if x.grad is not None: x.grad = None\n        {RIGHT}", Status.WRONG_GRADIENT, "changed its .grad"),
        (f"setattr(self.w, 'requires_grad', True); {RIGHT}", Status.WRONG_GRADIENT, "keep requires_grad=False"),
        (f"with torch.no_grad(): x.mul_(1.0)\n        {RIGHT}", Status.CHEATED, "changed its input 0 in place"),
    ],
    ids=["honest", "zeroes gradients", "drops an input's gradient", "unfreezes", "writes the same values"],
)
def test_what_the_caller_owns_stays(body: str, status: Status, words: str, tmp_path: Path, home: Path) -> None:
    record = judged(text("Model", RIGHT), text("ModelNew", body), tmp_path, home)
    assert record.status is status, record.message
    assert words in record.message


@pytest.mark.parametrize(
    ("problem", "answer", "gradients", "status"),
    [
        (SUM, SUM, APART, Status.PASSED),
        (SUM, SUM, SHARED, Status.WRONG_GRADIENT),
        (OF_INPUTS, OF_INPUTS, SHARED, Status.PASSED),  # few inputs are leaves
        (IN_VIEWS, IN_VIEWS, APART, Status.PASSED),  # torch itself shares the memory there
    ],
    ids=["one tensor twice", "two views", "of inputs", "views of the problem's own"],
)
def test_gradients_that_share_memory_are_wrong_once_they_add_up(
    problem: str, answer: str, gradients: str, status: Status, tmp_path: Path, home: Path
) -> None:
    record = judged(text("Model", problem), text("ModelNew", answer, gradients), tmp_path, home)
    assert record.status is status, record.message
    assert ("received is 1.5 times expected" in record.message) == (status is not Status.PASSED)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (DETACHED, Status.PASSED, ""),
        (RIGHT, Status.WRONG_GRADIENT, "the output requires a gradient, but the reference's does not"),
        (f"{WRONG_BY_DEFAULT}\n        {DETACHED}", Status.WRONG_OUTPUT, "with autograd on"),
    ],
    ids=["honest", "lost no_grad", "wrong by default"],
)
def test_a_reference_without_gradients_is_called_with_autograd_on(
    body: str, status: Status, words: str, tmp_path: Path, home: Path
) -> None:
    record = judged(text("Model", DETACHED), text("ModelNew", body), tmp_path, home)
    assert record.status is status, record.message
    assert words in record.message


@pytest.mark.parametrize(
    ("body", "status"),
    [("with torch.no_grad(): return x.sin() * y", Status.PASSED), ("return x.sin() * y", Status.WRONG_GRADIENT)],
    ids=["honest", "lost no_grad"],
)
def test_inputs_alone_show_a_lost_no_grad(body: str, status: Status, tmp_path: Path, home: Path) -> None:
    record = judged(text("Model", "with torch.no_grad(): return x.sin() * y"), text("ModelNew", body), tmp_path, home)
    assert record.status is status, record.message
