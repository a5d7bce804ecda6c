# ruff: noqa: E501 - the tables keep one pair a line
"""What crosses between a problem and its candidates beside plain tensors: nested results, state, modes, layouts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from harness.errors import ProblemError
from harness.records import EvaluationRecord
from tests.judge import in_process

PROBLEM = """
import random
from collections import OrderedDict, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {{"full": {{}}}}
{declared}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
SOLUTION = """
import random
from collections import OrderedDict, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

Named = namedtuple("Named", "first second")
{declared}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}
"""


class Pair(NamedTuple):
    """A problem, a candidate, and what must come of it.

    Attributes:
        name: Its name.
        reference: The body of the reference's forward.
        candidate: That of the candidate's.
        expected: The status; ``refused`` for a problem that cannot be judged.
        words: What the message must say.
        init: What both have in their constructor.
        own: What the candidate has there instead.
        inputs: What ``get_inputs`` returns.
        arguments: Their names.
        declared: Further lines of the problem.
        helpers: Further lines of the solution.
    """

    name: str
    reference: str
    candidate: str
    expected: str = "PASSED"
    words: str = ""
    init: str = "pass"
    own: str | None = None
    inputs: str = "torch.randn(6, 5)"
    arguments: str = "x"
    declared: str = ""
    helpers: str = ""


def judged(pair: Pair, folder: Path, home: Path) -> EvaluationRecord:
    problem = PROBLEM.format(
        declared=pair.declared, init=pair.init, arguments=pair.arguments, forward=pair.reference, inputs=pair.inputs
    )
    solution = SOLUTION.format(
        declared=pair.helpers,
        init=pair.init if pair.own is None else pair.own,
        arguments=pair.arguments,
        forward=pair.candidate,
    )
    return in_process.judged(problem, solution, folder, home)


def check(pair: Pair, folder: Path, home: Path) -> EvaluationRecord | None:
    """The record of a pair that got what it must, None for a problem that was refused."""
    if pair.expected == "refused":
        with pytest.raises(ProblemError) as refused:
            judged(pair, folder, home)
        assert pair.words in str(refused.value)
        return None
    record = judged(pair, folder, home)
    assert record.status == pair.expected, record.message
    assert pair.words in record.message
    return record


def each(pairs: list[Pair]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", [pytest.param(pair, id=pair.name) for pair in pairs])


NESTED = "return {'logits': x.sin(), 'hidden': [x.cos(), (x.exp(), None)], 'size': 5}"
STRUCTURES = [
    Pair("nested", NESTED, NESTED),
    Pair("nested_in_another_order", NESTED, "return {'size': 5, 'hidden': [x.cos(), (x.exp(), None)], 'logits': x.sin()}"),
    Pair("nested_in_classes_of_their_own", NESTED, "return OrderedDict(logits=x.sin(), size=5, hidden=Named(x.cos(), Named(x.exp(), None)))"),
    Pair("nested_wrong", NESTED, NESTED.replace("x.exp()", "x.exp() * 1.001"), "WRONG_OUTPUT", "output.hidden[1][0]: relative L2"),
    Pair("nested_gradient_wrong", NESTED, NESTED.replace("x.exp()", "x.exp() + 0.1 * (x - x.detach())"), "WRONG_GRADIENT", "gradient of x"),
    Pair("key_missing", NESTED, NESTED.replace("'size': 5", ""), "WRONG_OUTPUT", "a dict with the keys 'hidden', 'logits', where the reference returns a dict with the keys 'hidden', 'logits', 'size'"),
    Pair("value_wrong", NESTED, NESTED.replace("5", "6"), "WRONG_OUTPUT", "forward has output.size: 6, where the reference has 5"),
    Pair("value_of_another_type", "return x.sin(), True", "return x.sin(), 1", "WRONG_OUTPUT", "forward has output[1]: 1, where the reference has True"),
    Pair("nothing_for_a_tensor", NESTED, NESTED.replace("x.cos()", "None"), "WRONG_OUTPUT", "forward has output.hidden[0]: None, where the reference has a tensor"),
    Pair("shape_of_an_inner_one", NESTED, NESTED.replace("x.cos()", "x.cos()[:, :2]"), "WRONG_OUTPUT", "output.hidden[0] has shape [6, 2], expected [6, 5]"),
    Pair("a_lazy_one_inside", NESTED, NESTED.replace("x.cos()", "x.cos().as_subclass(Lazy)"), "WRONG_OUTPUT", "Lazy", helpers="class Lazy(torch.Tensor): pass"),
    Pair("no_code_of_a_class_runs", "return x.sin(), 3", "return Late((None, 3))", "WRONG_OUTPUT", "forward has output[0]: None", helpers="class Late(tuple):\n    def __iter__(self): return iter((torch.zeros(6, 5), 3))"),
    Pair("in_itself", NESTED, "y = [x]; y.append(y); return y", "RUNTIME_ERROR", "nested deeper than 16"),
    Pair("a_wide_one", NESTED, "return [None] * 1_000_000", "RUNTIME_ERROR", "over 4096 parts"),
    Pair("odd_keys", "return {'a b': x.sin(), '': x.cos()}", "return {'a b': x.sin(), '': x.cos() + 1}", "WRONG_OUTPUT", "output['']"),
    Pair("named_by_torch", "return torch.max(x, 1)", "y = torch.max(x, 1); return [y.values, y.indices]"),
    Pair("keys_that_are_numbers", "return {1: x.sin()}", "return {1: x.sin()}", "refused", "keys that are no strings"),
    Pair("a_set", "return x.sin(), {1}", "return x.sin(), {1}", "refused", "output[1] is set"),
    Pair("no_tensor", "return {'a': 3}", "return {'a': 3}", "refused", "no tensor"),
    Pair("a_value_of_the_draw", "return x.sin(), float(x.detach().sum())", "return x.sin(), float(x.detach().sum())", "refused", "changes from draw to draw"),
]  # fmt: skip


@each(STRUCTURES)
def test_structures(pair: Pair, tmp_path: Path, home: Path) -> None:
    record = check(pair, tmp_path, home)
    if pair.name == "nested":
        assert record is not None
        assert [report.name for report in record.outputs] == [
            "output.hidden[0]",
            "output.hidden[1][0]",
            "output.logits",
        ]
