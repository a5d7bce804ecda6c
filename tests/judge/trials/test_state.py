"""Tests candidates whose calls leave something behind: each wrong one beside a right one that looks alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.project.problems import read_problem
from harness.records.record import EvaluationRecord, Status
from tests.judge import in_process
from tests.judge.in_process import evaluated

SECRET = "5eed" * 8
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(24, 48))

    def forward(self, x):
        return x @ self.weight.t()


def get_inputs():
    return [torch.randn(16, 48)]


def get_init_inputs():
    return []
"""
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

KEPT = {}


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, turned):
        ctx.save_for_backward(x, weight)
        ctx.turned = turned
        return x @ turned

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        BACKWARD
        return grad @ weight, grad.t() @ x, None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(24, 48))
        self.turned = self.version = None

    def turn(self):
        if self.version != self.weight._version:
            self.turned, self.version = self.weight.detach().t().contiguous(), self.weight._version
        return self.turned
"""
#: A transposed weight that is kept as long as the weight stays the same.
CACHED = """
    def forward(self, x):
        return Linear.apply(x, self.weight, self.turn())
"""
BY_SHAPE_AND_VERSION = """
    def forward(self, x):
        key = OWNER, self.weight.shape, self.weight._version
        if key not in KEPT:
            KEPT.clear()
            KEPT[key] = self.weight.detach().t().contiguous()
        return Linear.apply(x, self.weight, KEPT[key])
"""
FOLDED_IN_EVAL = """
    folded = None

    def train(self, mode=True):
        self.folded = FOLDED
        return super().train(mode)

    def forward(self, x):
        return Linear.apply(x, self.weight, self.folded if self.folded is not None else self.turn())
"""
FORWARD_WITH_GRADIENT = """
    def forward(self, x):
        STEP
        return Linear.apply(x, self.weight, self.turn())
"""
COPIED = """
    def __deepcopy__(self, memo):
        other = ModelNew()
        STEP
        return other

    def forward(self, x):
        return Linear.apply(x, self.weight, self.turn())
"""
WORKSPACE = """
class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, room):
        ctx.room = room.resize_(len(x), len(weight)).copy_(x @ weight.t())
        ctx.save_for_backward(x, weight)
        return ctx.room.clone()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad = grad * (ctx.room == x @ weight.t())
        return grad @ weight, grad.t() @ x, None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(24, 48))
        self.room = None

    def forward(self, x):
        if torch.is_grad_enabled():
            self.room = torch.empty(0)
            return Silu.apply(x, self.weight, self.room)
        room = ROOM
        return torch.mm(x, self.weight.t(), out=room)
"""
DROPPED = """
    def forward(self, x):
        MASK
        return x @ self.weight.t() * mask
"""


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    (tmp_path / "problem.py").write_text(PROBLEM)
    return tmp_path / "problem.py"


Judged = Callable[..., EvaluationRecord]


@pytest.fixture
def judged(problem: Path, home: Path) -> Judged:
    """The record of ``HEAD`` and a body, in which words are replaced."""

    def record(body: str, **parts: str) -> EvaluationRecord:
        source = HEAD + body
        for word, text in {"BACKWARD": "pass", **parts}.items():
            source = source.replace(word, text)
        answer = problem.parent / "answer.py"
        answer.write_text(source)
        return evaluated(read_problem(problem), answer, home, SECRET, "full")

    return record


#: Wrong in the forward after the first backward; after the second one right, with other bits.
WRONG_ONCE = """
    seen = {}

    def forward(self, x):
        result = Linear.apply(x, self.weight, self.turn())
        calls = self.seen.setdefault(float(result.detach().double().sum()), [0, 0])
        calls[0] += 1
        if result.requires_grad:
            result.register_hook(lambda _: calls.__setitem__(1, calls[1] + 1))
        return result * (1 + 2**-22 * (calls[1] == 2)) + AGAIN * (calls == [2, 1])
"""
FOLDED = "self.weight.detach().t().contiguous()"


@pytest.mark.parametrize(
    ("body", "parts", "status", "words"),
    [
        # What a backward spoils, later forwards read.
        (CACHED, {"BACKWARD": "ctx.turned.mul_(-3)"}, Status.WRONG_OUTPUT, "after a backward"),
        (CACHED, {"BACKWARD": "ctx.turned.clone().mul_(-3)"}, Status.PASSED, ""),
        (WRONG_ONCE, {"AGAIN": "1"}, Status.WRONG_OUTPUT, "after a backward"),
        (WRONG_ONCE, {"AGAIN": "0"}, Status.PASSED, ""),
        # Instances share what is kept of a weight.
        (BY_SHAPE_AND_VERSION, {"OWNER": "0"}, Status.WRONG_OUTPUT, "another instance"),
        (BY_SHAPE_AND_VERSION, {"OWNER": "id(self)"}, Status.PASSED, ""),
        # A weight is folded for evaluation, and not unfolded for training, or folded before it is loaded.
        (FOLDED_IN_EVAL, {"FOLDED": f"self.folded if mode else {FOLDED}"}, Status.WRONG_OUTPUT, ".eval()"),
        (FOLDED_IN_EVAL, {"FOLDED": f"None if mode else {FOLDED}"}, Status.WRONG_OUTPUT, "evaluation mode"),
        (FOLDED_IN_EVAL, {"FOLDED": "None"}, Status.PASSED, ""),
        # A forward leaves .grad alone, and works beside it.
        (FORWARD_WITH_GRADIENT, {"STEP": "self.weight.grad = None"}, Status.WRONG_GRADIENT, "changed its .grad"),
        (
            FORWARD_WITH_GRADIENT,
            {"STEP": "if self.weight.grad is not None: return x @ self.turn()"},
            Status.WRONG_GRADIENT,
            "no gradient, but the reference has one",
        ),
        (FORWARD_WITH_GRADIENT, {"STEP": "KEPT['grad'] = self.weight.grad"}, Status.PASSED, ""),
        # A deep copy has parameters of its own.
        (COPIED, {"STEP": "return self"}, Status.RUNTIME_ERROR, "shares the parameter weight"),
        (COPIED, {"STEP": "other.weight = self.weight"}, Status.RUNTIME_ERROR, "shares the parameter weight"),
        (COPIED, {"STEP": "other.load_state_dict(self.state_dict())"}, Status.PASSED, ""),
        # A call without gradients comes between a forward and its backward.
        (
            WORKSPACE,
            {"ROOM": "self.room if self.room is not None else x.new_empty(len(x), 24)"},
            Status.WRONG_GRADIENT,
            "",
        ),
        (WORKSPACE, {"ROOM": "x.new_empty(len(x), 24)"}, Status.PASSED, ""),
    ],
)
def test_what_a_call_leaves_behind_counts(
    judged: Judged, body: str, parts: dict[str, str], status: Status, words: str
) -> None:
    record = judged(body, **parts)
    assert record.status is status, record.message
    assert words in record.message


def test_a_model_that_folds_for_evaluation_is_copied_as_it_is(problem: Path, judged: Judged) -> None:
    folding = """
    folded = None

    def train(self, mode=True):
        self.folded = self.folded if mode else self.weight.detach().clone()
        return super().train(mode)

    def forward(self, x):
        return x @ (self.weight if self.folded is None else self.folded + 0 * self.weight).t()
"""
    text = PROBLEM.replace("\n    def forward(self, x):\n        return x @ self.weight.t()\n", folding)
    problem.write_text(text)
    record = judged(text.replace("class Model(", "class ModelNew("))
    assert record.status is Status.PASSED, record.message


def test_a_weight_folded_again_when_it_is_loaded_passes(judged: Judged) -> None:
    loading = FOLDED_IN_EVAL.replace(
        "    def forward",
        "    def load_state_dict(self, state, *args, **options):\n"
        "        result = super().load_state_dict(state, *args, **options)\n"
        "        self.train(self.training)\n"
        "        return result\n\n"
        "    def forward",
    )
    record = judged(loading, FOLDED=f"None if mode else {FOLDED}")
    assert record.status is Status.PASSED, record.message


@pytest.mark.parametrize(
    ("mask", "status"),
    [
        (
            "key = self.weight._version\n"
            "        if key not in KEPT: KEPT[key] = F.dropout(torch.ones(16, 24, device=x.device))\n"
            "        mask = KEPT[key]",
            Status.WRONG_OUTPUT,
        ),
        ("mask = F.dropout(torch.ones(16, 24, device=x.device))", Status.PASSED),
    ],
)
def test_a_mask_is_drawn_for_every_call(problem: Path, judged: Judged, mask: str, status: Status) -> None:
    drawn = "return x @ self.weight.t() * torch.nn.functional.dropout(torch.ones(16, 24, device=x.device))"
    text = PROBLEM.replace("return x @ self.weight.t()", drawn)
    problem.write_text(f"{text}\n\nRANDOMNESS = 'same-generator'\n")
    record = judged(DROPPED, MASK=mask)
    assert record.status is status, record.message


AVERAGED = """
import torch
import torch.nn as nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(7))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        with torch.no_grad():
            self.step += 1
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            mean = self.mean / (1 - 0.9 ** {step})
        return x - mean


def get_inputs():
    return [torch.randn(16, 7)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("step", "status"), [("int(self.step)", Status.PASSED), ("min(int(self.step), 2)", Status.WRONG_OUTPUT)]
)
def test_steps_beyond_the_second_count(step: str, status: Status, tmp_path: Path, home: Path) -> None:
    record = in_process.judged(
        AVERAGED.format(name="Model", step="self.step"), AVERAGED.format(name="ModelNew", step=step), tmp_path, home
    )
    assert record.status is status, record.message
