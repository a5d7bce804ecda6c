# ruff: noqa: E501 - the tables keep one pair a line
"""Tests values other than plain tensors: nested results, state, modes and layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.errors import ProblemError
from harness.records.record import EvaluationRecord
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
    Pair("a_wide_one", NESTED, "return [None] * 1_000_000", "RUNTIME_ERROR", "more than 4096 parts"),
    Pair("odd_keys", "return {'a b': x.sin(), '': x.cos()}", "return {'a b': x.sin(), '': x.cos() + 1}", "WRONG_OUTPUT", "output['']"),
    Pair("named_by_torch", "return torch.max(x, 1)", "y = torch.max(x, 1); return [y.values, y.indices]"),
    Pair("keys_that_are_numbers", "return {1: x.sin()}", "return {1: x.sin()}", "refused", "keys that are not strings"),
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


NORM = "self.bn = nn.BatchNorm1d(5)"
BY_HAND = """mean, var = x.mean(0), x.var(0, correction=0)
        with torch.no_grad():
            self.bn.running_mean.mul_(0.9).add_({0} * mean)
            self.bn.running_var.mul_(0.9).add_(0.1 * {1})
            self.bn.num_batches_tracked += {2}
        return (x - mean) * (var + 1e-5).rsqrt() * self.bn.weight + self.bn.bias"""
RUNNING = BY_HAND.format("0.1", "x.var(0)", "1")
#: Right as long as running statistics are what the constructor says.
FORGETFUL = RUNNING.replace("mul_(0.9).add_(0.1 * mean)", "copy_(0.1 * mean)")
MEAN = "self.register_buffer('mean', torch.zeros(5)); self.register_buffer('mask', torch.ones(5))"
AVERAGE = "self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1; return x.sin() * self.mask"
BUFFERS = [
    Pair("batch_norm", "return self.bn(x)", RUNNING, init=NORM),
    Pair("biased_variance", "return self.bn(x)", BY_HAND.format("0.1", "var", "1"), "WRONG_OUTPUT", "buffer bn.running_var: relative L2", init=NORM),
    Pair("another_momentum", "return self.bn(x)", BY_HAND.format("0.1001", "x.var(0)", "1"), "WRONG_OUTPUT", "buffer bn.running_mean", init=NORM),
    Pair("batches_not_counted", "return self.bn(x)", BY_HAND.format("0.1", "x.var(0)", "0"), "WRONG_OUTPUT", "buffer bn.num_batches_tracked: differs; it must be equal", init=NORM),
    Pair("not_updated", "return self.bn(x)", "return F.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True)", "WRONG_OUTPUT", "buffer bn.running_mean", init=NORM),
    Pair("begins_anew", "return self.bn(x)", FORGETFUL, "WRONG_OUTPUT", "buffer bn.running_mean", init=NORM),
    Pair("none_at_all", "return self.bn(x)", "return F.batch_norm(x, None, None, self.w, self.b, True)", "LOAD_ERROR", "reference's bn.num_batches_tracked, bn.running_mean, bn.running_var", init=NORM, own="self.w = nn.Parameter(torch.ones(5)); self.b = nn.Parameter(torch.zeros(5))"),
    Pair("by_another_name", AVERAGE, AVERAGE.replace("mean =", "m =").replace("self.mean *", "self.m *"), init=MEAN, own=MEAN.replace("'mean'", "'m'"), helpers="PARAMETER_MAP = {'m': 'mean'}"),
    Pair("left_alone", AVERAGE, AVERAGE, init=MEAN),
    Pair("not_left_alone", AVERAGE, "self.mask = self.mask * 1.0000001; " + AVERAGE, "WRONG_OUTPUT", "changes the buffer mask, but the reference does not", init=MEAN),
    Pair("of_another_form", AVERAGE, AVERAGE.replace("return", "self.mean = self.mean[None]; return"), "WRONG_OUTPUT", "buffer mean: shape [1, 5], expected [5]", init=MEAN),
    Pair("a_workspace_of_its_own", "return x.sin()", "self.kept = x.sin(); return self.kept * 1", init="pass", own="self.register_buffer('kept', torch.zeros(6, 5))"),
    Pair("grows", "self.mean = torch.cat([self.mean, x[0].detach()]); return x.sin()", "return x.sin()", "refused", "changes the shape or dtype of its buffer mean", init=MEAN),
]  # fmt: skip


@each(BUFFERS)
def test_buffers(pair: Pair, tmp_path: Path, home: Path) -> None:
    record = check(pair, tmp_path, home)
    if pair.name == "batch_norm":
        assert record is not None
        names = {report.name for report in record.outputs}
        assert names == {"output", "buffer bn.running_mean", "buffer bn.running_var", "buffer bn.num_batches_tracked"}


FIXED = "return (x - self.bn.running_mean) * (self.bn.running_var + 1e-5).rsqrt() * self.bn.weight + self.bn.bias"
FROZEN = "self.a = nn.BatchNorm1d(5).eval(); self.b = nn.BatchNorm1d(5)"
EVAL = "TRAINING = False"
MODES = [
    Pair("trained", "return self.bn(x)", "return self.bn(x)", init=NORM),
    Pair("evaluated", "return self.bn(x)", FIXED, init=NORM, declared=EVAL),
    Pair("statistics_ignored", "return self.bn(x)", "return x * (1 + 1e-5) ** -0.5 * self.bn.weight + self.bn.bias", "WRONG_OUTPUT", init=NORM, declared=EVAL),
    Pair("by_the_constructor", "return self.bn(x)", "return self.bn(x)", init=NORM + "; self.eval()", own=NORM),
    Pair("not_by_the_candidate", "return self.bn(x)", "return self.bn(x)", init=NORM, own=NORM + "; self.eval()"),
    Pair("by_a_case", "return self.bn(x)", FIXED, init=NORM, declared="TRAINING = True\nCASES = {'full': {'TRAINING': False}}"),
    Pair("dropout_is_off", "return F.dropout(x.sin(), 0.5, self.training)", "return x.sin()", declared=EVAL),
    Pair("a_part", "return self.a(x) + self.b(x)", "return self.a(x) + self.b(x)", init=FROZEN, own=FROZEN.replace(".eval()", "")),
    Pair("a_part_wrong", "return self.a(x) + self.b(x)", "return self.b(x) + F.batch_norm(x, None, None, self.a.weight, self.a.bias, True)", "WRONG_OUTPUT", init=FROZEN),
    Pair("no_truth_value", "return self.bn(x)", "return self.bn(x)", "refused", "TRAINING is 'no'; it must be True or False", init=NORM, declared="TRAINING = 'no'"),
]  # fmt: skip


@each(MODES)
def test_modes(pair: Pair, tmp_path: Path, home: Path) -> None:
    check(pair, tmp_path, home)


#: For candidates that take a tensor's memory as it lies, as a kernel does.
IN_MEMORY = """
def in_memory(x, *shape):
    return x.as_strided(shape, torch.empty(shape).stride())
"""
IMAGES = "torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)"
LAYOUTS = [
    Pair("transposed", "return x.sin()", "return in_memory(x, 5, 6).t().sin()", inputs="torch.randn(5, 6).t()"),
    Pair("taken_for_contiguous", "return x.sin()", "return in_memory(x, 6, 5).sin()", "WRONG_OUTPUT", inputs="torch.randn(5, 6).t()"),
    Pair("channels_last", "return x.sin()", "assert x.stride() == (60, 1, 15, 3); return in_memory(x, 2, 4, 5, 3).permute(0, 3, 1, 2).sin()", inputs=IMAGES),
    Pair("changed_in_place", "return x.sin()", "y = x.sin(); x.data[0, 1] = 7; return y", "CHEATED", "input 0", inputs="torch.randn(5, 6).t()"),
    Pair("expanded", "return x * 2", "assert x.is_contiguous(); return x * 2", inputs="torch.randn(5).expand(6, 5)"),
    Pair("sliced", "return x * 2", "assert x.is_contiguous(); return x * 2", inputs="torch.randn(6, 10)[:, ::2]"),
    Pair("strided_results", "return x.sin()", "return torch.stack([x.sin()] * 2, 2)[..., 0].t().contiguous().t()"),
]  # fmt: skip


@each(LAYOUTS)
def test_layouts(pair: Pair, tmp_path: Path, home: Path) -> None:
    check(pair._replace(helpers=IN_MEMORY), tmp_path, home)


KERNEL = '''
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

__global__ void twice(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

torch::Tensor doubled(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int n = x.numel();
    GUARD
    twice<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
module = load_inline("doubled", "torch::Tensor doubled(torch::Tensor x);", source, functions=["doubled"])


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return module.doubled(x.contiguous())

    @staticmethod
    def backward(ctx, gradient):
        return module.doubled(gradient.contiguous())
'''
EMPTY = "torch.randn(0, 5)"
NOTHING = [
    Pair("no_features", "return x.sum(1)", "return x.sum(1)", "refused", "is zero everywhere, or not finite", inputs="torch.randn(6, 0)"),
    Pair("one_is_empty", "return x.sin() + self.linear(y).sum(), y * 2", "return x.sin() + self.linear(y).sum(), y * 2", init="self.linear = nn.Linear(4, 3)", inputs="torch.randn(6, 5), torch.randn(0, 4)", arguments="x, y"),
    Pair("one_is_empty_wrong", "return x.sin(), y * 2", "return x.cos(), y * 2", "WRONG_OUTPUT", "output[0]", inputs="torch.randn(6, 5), torch.randn(0, 4)", arguments="x, y"),
]  # fmt: skip


def test_a_kernel_for_no_samples(tmp_path: Path, harness: Callable[..., Any]) -> None:
    text = {"forward": "return x * 2", "init": "pass", "arguments": "x"}
    (tmp_path / "problem.py").write_text(PROBLEM.format(declared="", inputs=EMPTY, **text))
    for name, guard in (("guarded", "if (n == 0) return y;"), ("unguarded", "")):
        own = {**text, "forward": "return Double.apply(x)", "declared": KERNEL.replace("GUARD", guard)}
        (tmp_path / f"{name}.py").write_text(SOLUTION.format(**own))
    paths = [tmp_path / "guarded.py", tmp_path / "unguarded.py"]
    ran = harness("evaluate", *paths, "--problem", tmp_path / "problem.py", "--device", "cpu", "--json")
    guarded, unguarded = sorted(ran.rows, key=lambda row: str(row["solution"]))
    assert (guarded["status"], unguarded["status"]) == ("PASSED", "RUNTIME_ERROR"), ran.out
    assert "invalid configuration" in unguarded["message"]
    assert "every output is empty" in guarded["unfit"][0]


@each(NOTHING)
def test_empty_tensors(pair: Pair, tmp_path: Path, home: Path) -> None:
    record = check(pair, tmp_path, home)
    assert record is None or not record.unfit


TABLE = "self.table = nn.Embedding(9, 4)"
WORDS = "torch.randint(0, 9, (6, 5)), torch.rand(6, 5) < 0.5"
SUMMED = "return (self.table(words) * mask[..., None]).sum(1)"
TYPES = [
    Pair("indices_and_mask", SUMMED, "return torch.einsum('bwf,bw->bf', self.table.weight[words], mask.float())", init=TABLE, inputs=WORDS, arguments="words, mask"),
    Pair("mask_ignored", SUMMED, "return self.table(words).sum(1)", "WRONG_OUTPUT", "output", init=TABLE, inputs=WORDS, arguments="words, mask"),
    Pair("mask_not_differentiated", SUMMED, "return (self.table(words) * mask[..., None]).sum(1).detach() + self.table(words).sum(1) * 1e-30", "WRONG_GRADIENT", "table.weight", init=TABLE, inputs=WORDS, arguments="words, mask"),
    Pair("bytes", "return x * 2, x > 100", "return x + x, 100 < x", inputs="torch.randint(0, 256, (6, 5), dtype=torch.uint8)"),
    Pair("bytes_saturated", "return x * 2", "return (x.int() * 2).clamp(max=255).to(torch.uint8)", "WRONG_OUTPUT", "differs; it must be equal", inputs="torch.randint(0, 256, (6, 5), dtype=torch.uint8)"),
    Pair("another_integer", "return x.argmax(1)", "return x.argmax(1).int()", "WRONG_OUTPUT", "has dtype int32, expected int64"),
    Pair("large_integers", "return x + 1", "return x + 2", "WRONG_OUTPUT", "differs", inputs="torch.randint(2**60, 2**61, (6, 5))"),
    Pair("numbers_and_flags", "return x.sin() * n if flag else x", "return n * x.sin()", inputs="torch.randn(6, 5), 3, True", arguments="x, n, flag"),
]  # fmt: skip


@each(TYPES)
def test_types(pair: Pair, tmp_path: Path, home: Path) -> None:
    check(pair, tmp_path, home)


DROPOUT = "return self.linear(F.dropout(x, 0.4, self.training)).relu()"
MASKED = "return (self.linear(x * (torch.empty_like(x).bernoulli_(0.6) / 0.6))).relu()"
LINEAR = "self.linear = nn.Linear(5, 4)"
SAME = "RANDOMNESS = 'same-generator'"
NOISY = "return x.sin() + 0.1 * torch.randn(6, 5) + torch.rand_like(x) * x[:, torch.randperm(5)]"
RANDOMNESS = [
    Pair("dropout", DROPOUT, DROPOUT, "refused", "RANDOMNESS = 'same-generator'", init=LINEAR),
    Pair("dropout_shared", DROPOUT, DROPOUT, init=LINEAR, declared=SAME),
    Pair("dropout_by_hand", DROPOUT, MASKED, init=LINEAR, declared=SAME),
    Pair("dropout_of_another_share", DROPOUT, MASKED.replace("0.6", "0.601"), "WRONG_OUTPUT", init=LINEAR, declared=SAME),
    Pair("dropout_with_other_numbers", DROPOUT, DROPOUT.replace("return", "torch.rand(1); return"), "WRONG_OUTPUT", init=LINEAR, declared=SAME),
    Pair("dropout_by_its_mean", DROPOUT, "return self.linear(x).relu()", "WRONG_OUTPUT", init=LINEAR, declared=SAME),
    Pair("dropout_backward_wrong", DROPOUT, DROPOUT.replace("F.dropout(x", "(lambda y: y.detach() + x - x.detach())(F.dropout(x").replace("self.training)", "self.training))"), "WRONG_GRADIENT", "gradient of x", init=LINEAR, declared=SAME),
    Pair("noise", NOISY, NOISY, declared=SAME),
    Pair("noise_rounded", NOISY, NOISY.replace("randn(6, 5)", "randn(6, 5).bfloat16().float()"), "WRONG_OUTPUT", declared=SAME),
    Pair("drawn_and_not_used", "torch.rand(3); return x.sin()", "return x.sin()"),
    Pair("by_python", "return x * random.random()", "return x * random.random()", "refused", "Python's random", declared=SAME),
    Pair("by_numpy", "import numpy; return x * numpy.random.rand()", "return x", "refused", "or NumPy's", declared=SAME),
    Pair("inside_an_operator", "return F.rrelu(x, training=True)", "return F.rrelu(x, training=True)", "refused", "rrelu_with_noise", declared=SAME),
    Pair("unknown", DROPOUT, DROPOUT, "refused", "RANDOMNESS is 'mine'", init=LINEAR, declared="RANDOMNESS = 'mine'"),
]  # fmt: skip


@each(RANDOMNESS)
def test_randomness(pair: Pair, tmp_path: Path, home: Path) -> None:
    check(pair, tmp_path, home)
