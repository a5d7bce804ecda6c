# ruff: noqa: E501 - the table keeps one pair a line
"""Tests verdicts on small problems with plain torch candidates: unusual forms, draws and answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.errors import ProblemError
from harness.evaluator import Answer, Entry, Evaluator
from harness.records.record import Status
from tests.judge.in_process import judged

PROBLEM = """
import torch
import torch.nn as nn

n = 12
CASES = {{"full": {{}}, "odd": {{"n": 7}}}}
{constants}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
SOLUTION = """
import os, sys, threading, time
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
"""


class Pair(NamedTuple):
    """A problem, a candidate, and the status or exit code that they must get."""

    name: str
    reference: str
    candidate: str
    expected: str
    words: str = ""
    init: str = "pass"
    inputs: str = "torch.randn(n, 5)"
    constants: str = ""
    options: tuple[str, ...] = ()


PAIRS = [
    Pair("equal", "return torch.tanh(x)", "return torch.tanh(x)", "PASSED"),
    Pair("in_place", "return x.mul_(2).add_(1)", "return x * 2 + 1", "PASSED"),
    Pair("in_place_wrong", "return x.mul_(2).add_(1)", "return (x * 2 + 1) * 3", "WRONG_OUTPUT"),
    Pair("in_place_forward", "return x.mul_(2).add_(1)", "return (x * 2 + 1) * 3", "WRONG_OUTPUT", options=("--forward-only",)),
    Pair("stale_tail", "return torch.tanh(x)", "y = torch.tanh(x); old, self.kept = y.detach() if self.kept is None else self.kept, y.detach(); return torch.cat([y[:-1], y[-1:] + (old - self.kept)[-1:]])", "WRONG_OUTPUT", "changes from call to call", init="self.kept = None"),
    Pair("every_other_call", "return torch.tanh(x)", "self.calls += 1; return torch.tanh(x) * (1 + self.calls % 2)", "WRONG_OUTPUT", "changes from call to call", init="self.calls = 0", options=("--forward-only",)),
    Pair("nan_reference", "return x * float('nan')", "return x * float('nan')", "2", "proves nothing"),
    Pair("zero_reference", "return x * 0", "return x * 0", "2", "proves nothing"),
    Pair("sometimes_zero", "return torch.relu(x.sin() * (x[0, 0] > 0))", "return torch.relu(x.sin() * (x[0, 0] > 0))", "PASSED"),
    Pair("sometimes_zero_always", "return torch.relu(x.sin() * (x[0, 0] > 0))", "return x * 0", "WRONG_OUTPUT"),
    Pair("dead_branch", "return torch.tanh(x) + 0 * self.p", "return torch.tanh(x) + 0 * self.p", "PASSED", init="self.p = nn.Parameter(torch.randn(5))"),
    Pair("garbage_for_zero", "return torch.tanh(x) + 0 * self.p", "y = torch.tanh(x) + 0 * self.p; g = self.p * 3; return y + g - g.detach()", "WRONG_GRADIENT", "gradient of p", init="self.p = nn.Parameter(torch.randn(5))"),
    Pair("integers", "return x.argmax(1)", "return x.argmax(1)", "PASSED"),
    Pair("integers_wrong", "return x.argmax(1)", "return x.argmin(1)", "WRONG_OUTPUT", "equal"),
    Pair("large_integers_wrong", "return x.long() + 2**60", "return x.long() + 2**60 + (x > 5)", "WRONG_OUTPUT", "5 of 35 elements wrong", inputs="torch.arange(5.0).repeat(n, 1) + 5 * (torch.arange(n)[:, None] == 2) + 1"),
    Pair("truth", "return x > 0", "return x > 0", "PASSED"),
    Pair("truth_wrong", "return x > 0", "return x < 0", "WRONG_OUTPUT", "equal"),
    Pair("complex", "return torch.fft.fft(x)", "return torch.fft.fft(x)", "2", "complex"),
    Pair("one_tuple", "return (x.sin(),)", "return (x.sin(),)", "PASSED"),
    Pair("one_tuple_missing", "return (x.sin(),)", "return x.sin()", "WRONG_OUTPUT", "sequence of 1"),
    Pair("two_outputs", "return x.sin(), x.max(1).values", "return x.sin(), x.max(1).values", "PASSED"),
    Pair("second_output_wrong", "return x.sin(), x.cos()", "return x.sin(), x.cos() * 1.001", "WRONG_OUTPUT", "output[1]"),
    Pair("changing_form", "return x[x[:, 0] > 0]", "return x[x[:, 0] > 0]", "2", "change from draw to draw", inputs="torch.randn(40, 5)"),
    # The same form in every draw, and whether a few samples keep theirs says nothing about all of them.
    Pair("half_of_the_samples", "return x[x[:, 0] > x[:, 0].median()] * 2", "return x[x[:, 0] > x[:, 0].median()] * 2", "PASSED", inputs="torch.randn(40, 5)"),
    Pair("positive_samples", "return x[x[:, 0] > 0] * 2", "return x[x[:, 0] > 0] * 2", "PASSED", inputs="torch.cat([torch.rand(20, 5) + 1, -torch.rand(20, 5)])"),
    Pair("form_by_order", "return x[:, : int(x[0, 0]) + 1] * 2", "return x[:, : int(x[0, 0]) + 1] * 2", "2", "change from draw to draw", inputs="torch.cat([torch.ones(5, 5), 2 * torch.ones(5, 5)])"),
    Pair("odd_offset", "return x.sin()", "return x.sin()", "PASSED", inputs="torch.randn(n * 5 + 1)[1:].view(n, 5)"),
    Pair("scalar_input", "return x.sin()", "return x.sin()", "PASSED", inputs="torch.randn(())"),
    Pair("constant_in_forward", "return x @ torch.eye(5)", "return x @ torch.eye(5)", "PASSED"),
    Pair("plain_attribute", "return x * self.scale", "return x * 3", "PASSED", init="self.scale = torch.full((5,), 3.0)"),
    Pair("temperature", "return (x.abs() * self.t).sqrt()", "return (x.abs() * self.t).sqrt()", "PASSED", init="self.t = nn.Parameter(torch.tensor([0.07]))", inputs="torch.rand(n, 5) + 1"),
    Pair("odd_constant", "return x.to(kind).float() + x", "return x.to(torch.float32) + x", "PASSED", constants="kind = torch.float32\nCASES['other'] = {'kind': torch.float64}"),
    Pair("half_precision", "return x @ x.T", "return (x.half() @ x.half().T).float()", "WRONG_OUTPUT", "class 10-bit", inputs="torch.randn(n, 64)"),
    Pair("autocast", "with torch.autocast('cuda', dtype=torch.bfloat16): return (x @ x.T).float()", "with torch.autocast('cuda', dtype=torch.bfloat16): return (x @ x.T).float()", "PASSED"),
    Pair("autocast_by_default", "with torch.autocast('cuda'): return x @ x.T", "return (x.half() @ x.half().T)", "PASSED"),
    Pair("autocast_of_its_device", "with torch.autocast(x.device.type): return x @ x.T", "with torch.autocast(x.device.type): return x @ x.T", "PASSED"),
    Pair("autocast_decorator", "return torch.autocast('cuda')(torch.matmul)(x, x.T)", "return torch.autocast('cuda')(torch.matmul)(x, x.T)", "PASSED"),
    Pair("autocast_wrong", "with torch.autocast('cuda'): return x @ x.T", "with torch.autocast('cuda'): return x @ x.T * 1.01", "WRONG_OUTPUT"),
    # Beside numbers of one size float64 has zeros, which rounding keeps from being zero.
    Pair("distances", "s = (x * x).sum(1); return (s[:, None] + s - 2 * x @ x.T).abs().sqrt().detach()", "s = (x * x).sum(1); return (s[:, None] + s - 2 * x @ x.T).abs().sqrt().detach()", "PASSED", inputs="torch.randn(n, 512)"),
    Pair("distances_wrong", "s = (x * x).sum(1); return (s[:, None] + s - 2 * x @ x.T).abs().sqrt().detach()", "s = (x * x).sum(1); return 0.99 * (s[:, None] + s - 2 * x @ x.T).abs().sqrt().detach()", "WRONG_OUTPUT", inputs="torch.randn(n, 512)"),
    Pair("cosines_wrong", "u = nn.functional.normalize(x, dim=1); return (1 - u @ u.T).detach()", "u = nn.functional.normalize(x, dim=1); return 0.99 * (1 - u @ u.T).detach()", "WRONG_OUTPUT", inputs="torch.randn(n, 512)"),
    Pair("frozen", "return x + self.w", "return x.detach() + self.w.detach()", "NO_GRADIENT", init="self.w = nn.Parameter(torch.ones(5))"),
    Pair("surrogate", "return x.sin()", "raise RuntimeError('bad \\ud800 text')", "RUNTIME_ERROR", "bad ? text"),
    Pair("unknown_signal", "return x.sin()", "os.kill(os.getpid(), 40)", "CRASHED", "signal 40"),
    Pair("flood", "return x.sin()", "import json; body = json.dumps({'type': 'Building', 'event': 'x', 'name': '', 'built': {}, 'refused': {}}).encode(); frame = len(body).to_bytes(4, 'big') + body; fd = next(f for f in range(3, 64) if os.path.exists(f'/proc/self/fd/{f}') and 'socket' in os.readlink(f'/proc/self/fd/{f}'))\n        while True: os.write(fd, frame)", "TIMEOUT", options=("--timeout", "2")),
    Pair("long_words", "return x.sin()", "raise RuntimeError('x' * 9_000_000)", "RUNTIME_ERROR", "xxx"),
    Pair("too_large", "return x.sin()", "return x.sin()", "2", "no case", inputs="torch.randn(n * 100000, 5)", options=("all",)),
]  # fmt: skip


PLAIN = [pair for pair in PAIRS if not pair.options]
each = pytest.mark.parametrize("pair", [pytest.param(pair, id=pair.name) for pair in PLAIN])


def written(pair: Pair, folder: Path) -> tuple[Path, Path]:
    """The files of a pair's problem and its candidate."""
    problem, solution = folder / "problem.py", folder / "answer.py"
    problem.write_text(
        PROBLEM.format(constants=pair.constants, init=pair.init, forward=pair.reference, inputs=pair.inputs)
    )
    solution.write_text(SOLUTION.format(init=pair.init, forward=pair.candidate))
    return problem, solution


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, home: Path) -> dict[str, Answer]:
    """What every pair without options came to, by its name; one program asks about all of them."""
    entries = []
    for pair in PLAIN:
        problem, solution = written(pair, tmp_path_factory.mktemp(pair.name))
        entries.append(Entry(solution, problem=problem, cases=["odd"], tag=pair.name))
    with Evaluator(device="cpu", home=home, timeout_s=600, fresh=True) as evaluator:
        return {answer.entry.tag: answer for answer in evaluator.stream(entries)}


@each
def test_verdict(pair: Pair, answers: dict[str, Answer]) -> None:
    answer = answers[pair.name]
    if pair.expected == "2":
        assert isinstance(answer.error, ProblemError)
        assert pair.words in str(answer.error)
        return
    assert answer.error is None
    (record,) = answer.records
    assert record.status == pair.expected, record.message
    assert pair.words in record.message


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, id=pair.name) for pair in PAIRS if pair.options or pair.name == "complex"]
)
def test_verdict_of_the_command_line(pair: Pair, tmp_path: Path, harness: Callable[..., Any]) -> None:
    problem, solution = written(pair, tmp_path)
    options = [] if pair.options == ("all",) else ["--case", "odd", *pair.options]
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--json", *options)
    assert "Traceback" not in ran.err
    if pair.expected == "2":
        assert ran.code == 2, ran.out
        assert pair.words in ran.err
        return
    (row,) = ran.rows
    assert row["status"] == pair.expected, row["message"]
    assert pair.words in row["message"]
    assert ran.code == (0 if pair.expected == "PASSED" else 1)


def test_constants_of_one_case_do_not_reach_the_next(tmp_path: Path, harness: Callable[..., Any]) -> None:
    problem, solution = tmp_path / "problem.py", tmp_path / "answer.py"
    problem.write_text(
        PROBLEM.format(constants="", init="self.w = nn.Parameter(torch.ones(n))", forward="return x * self.w", inputs="torch.randn(3, n)")
    )  # fmt: skip
    solution.write_text(
        SOLUTION.format(init="pass", forward="return x * self.w").replace("def __init__(self)", "def __init__(self, width)")
        .replace("        pass", "        self.w = nn.Parameter(torch.ones(width))")
        + "\n\nn = 12\n\n\ndef get_init_inputs():\n    return [n]\n"
    )  # fmt: skip
    ran = harness(
        "evaluate", solution, "--problem", problem, "--device", "cpu", "--json", "--case", "odd", "--case", "full"
    )
    assert [row["status"] for row in ran.rows] == ["PASSED", "PASSED"], ran.out


def test_a_dtype_is_an_argument_of_both_constructors(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(
        constants="", init="self.kind = kind", forward="return x.to(self.kind)", inputs="torch.randn(n, 5)"
    )
    problem = problem.replace("__init__(self)", "__init__(self, kind)").replace("return []", "return [torch.float16]")
    right = problem.replace("Model(", "ModelNew(")
    assert judged(problem, right, tmp_path, home).status is Status.PASSED
    wrong = right.replace("to(self.kind)", "to(torch.bfloat16)")
    assert judged(problem, wrong, tmp_path, home).status is Status.WRONG_OUTPUT


def test_an_eigenvector_s_sign_makes_no_problem_unfit(tmp_path: Path, home: Path) -> None:
    forward = "return torch.linalg.eigh(x.transpose(1, 2) @ x)[1].abs()"
    problem = PROBLEM.format(constants="", init="pass", forward=forward, inputs="torch.randn(4, 12, 5)")
    right = problem.replace("Model(", "ModelNew(")
    one = judged(problem, right, tmp_path, home)
    assert (one.status, one.unfit) == (Status.PASSED, ()), one.message
    wrong = judged(problem, right.replace(".abs()", ".abs() * 1.001"), tmp_path, home)
    assert wrong.status is Status.WRONG_OUTPUT
