"""Tests that trials call a candidate as training loops and servers do, each with fresh draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.judge.evaluation.blank_records import TRIALS
from harness.judge.inputs.draws import derive_seed, draw, init_args
from harness.project.problems import load, read_problem
from harness.records.record import EvaluationRecord, Status
from tests.judge.in_process import evaluated

SECRET = "5eed" * 8
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.tanh(x) * self.scale + self.shift


def get_inputs():
    return [torch.randn(6, 33)]


def get_init_inputs():
    return [33]
"""
HEAD = """
import torch
import torch.nn as nn

SHARED = {}


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, shift):
        out = torch.tanh(x)
        ctx.save_for_backward(out, scale)
        return out * scale + shift

    @staticmethod
    def backward(ctx, grad):
        out, scale = ctx.saved_tensors
        {backward}
        return grad * scale * (1 - out * out), (grad * out).sum(0), grad.sum(0)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        {forward}
"""
RIGHT = "return Function.apply(x, self.scale, self.shift)"
Judged = Callable[..., EvaluationRecord]


@pytest.fixture
def judged(tmp_path: Path, home: Path) -> Judged:
    """The record of a candidate's forward and backward."""
    (tmp_path / "problem.py").write_text(PROBLEM)

    def record(
        forward: str = RIGHT, backward: str = "pass", own_seed: str = "0dd5" * 8, head: str = HEAD
    ) -> EvaluationRecord:
        solution = tmp_path / "answer.py"
        text = head.replace("{backward}", backward.replace("\n", "\n        "))
        solution.write_text(text.replace("{forward}", forward.replace("\n", "\n        ")))
        problem = read_problem(tmp_path / "problem.py")
        return evaluated(problem, solution, home, SECRET, "full", own_seed=own_seed)

    return record


def test_an_honest_candidate_passes(judged: Judged) -> None:
    record = judged()
    assert (record.status, record.trials, record.message) == (Status.PASSED, TRIALS, "")


def test_a_gradient_of_16_bits_is_not_scaled_beyond_its_range(tmp_path: Path, home: Path) -> None:
    """Its output is float32, which bears the scale."""
    text = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.float() * 3.0

def get_inputs():
    return [torch.randn(16, 33, dtype=torch.half)]

def get_init_inputs():
    return []
"""
    (tmp_path / "problem.py").write_text(text)
    (tmp_path / "answer.py").write_text(text.replace("Model(", "ModelNew("))
    record = evaluated(read_problem(tmp_path / "problem.py"), tmp_path / "answer.py", home, SECRET, "full")
    assert (record.status, record.message) == (Status.PASSED, "")


def test_only_the_last_draw_is_a_candidate_s_own(judged: Judged) -> None:
    first, second = judged(own_seed="01" * 16), judged(own_seed="02" * 16)
    given, other = first.digests["given"], second.digests["given"]
    assert len(given) == TRIALS
    assert given[:-1] == other[:-1]
    assert given[-1] != other[-1]
    assert (first.own_seed, second.own_seed) == ("01" * 16, "02" * 16)


def test_answers_to_all_shared_draws_are_of_no_use(judged: Judged, tmp_path: Path) -> None:
    problem = read_problem(tmp_path / "problem.py")
    module = load(problem, {})
    args = init_args(problem, module, derive_seed(SECRET, "full", "init"))
    answers = []
    for trial in range(TRIALS):
        drawn = draw(problem, module, args, derive_seed(SECRET, "full", "draw", trial))
        answers.append((float(drawn.inputs[0][0, 0]), drawn.model(*drawn.inputs).tolist()))
    known = f"known = dict({answers!r}).get(float(x[0, 0]))\n"
    right = judged(f"{known}print('known:', known is not None)\n{RIGHT}")
    assert right.log.count("known: True") >= TRIALS - 1
    replayed = judged(
        f"{known}out = {RIGHT.removeprefix('return ')}\nout.data.copy_(torch.tensor(known or 0.0))\nreturn out"
    )
    assert replayed.status is Status.WRONG_OUTPUT
    assert replayed.outputs[0].trial == TRIALS


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        pytest.param(
            f"if not torch.is_grad_enabled(): return torch.zeros_like(x)\n{RIGHT}", "torch.no_grad()", id="no_grad"
        ),
        pytest.param(
            "if torch.is_grad_enabled() and not any(one.requires_grad for one in (x, self.scale, self.shift)):\n"
            f"    return x * 0\n{RIGHT}",
            "with autograd on",
            id="frozen",
        ),
        pytest.param(f"if not self.training: return x * 0\n{RIGHT}", "evaluation mode", id="eval"),
        pytest.param(
            f"if torch.is_inference_mode_enabled(): return x * 0\n{RIGHT}", "inference_mode()", id="inference_mode"
        ),
        pytest.param(f"if not x.is_leaf: return x * 0 * self.scale\n{RIGHT}", "results of other", id="non_leaf"),
        pytest.param(
            "kept = vars(self).setdefault('kept', [lambda: (self.scale, self.shift)])[0]\n"
            "return Function.apply(x, *kept())",
            "deep copy",
            id="deep_copy",
        ),
        pytest.param(f"if self.calls > 60: return self.scale * 0 * x\n{RIGHT}", "calls in a row", id="60_calls"),
        pytest.param(
            f"out = torch.tanh(x) * self.scale + self.shift\n"
            f"if torch.is_grad_enabled(): {RIGHT}\n"
            "self.scale.data.zero_()\nreturn out",
            "no_grad()",
            id="spoiled_weights",
        ),
        pytest.param(
            f"if not (torch.is_grad_enabled() and x.requires_grad): return torch.tanh(x) * self.scale + self.shift\n"
            f"if self.calls > 60: return self.scale * 0 * x\n{RIGHT}",
            "calls in a row",
            id="60_calls_with_gradients",
        ),
    ],
)
def test_a_forward_that_is_wrong_in_ordinary_use_fails(judged: Judged, forward: str, words: str) -> None:
    record = judged(forward)
    assert record.status in (Status.WRONG_OUTPUT, Status.WRONG_GRADIENT), record.message
    assert words in record.message


@pytest.mark.parametrize(
    ("backward", "words"),
    [
        pytest.param(
            "grad = grad.as_strided(out.shape, (out.shape[1], 1)) if grad.stride(0) else grad * 0",
            "stride 0",
            id="expanded",
        ),
        pytest.param("assert grad.is_contiguous()", "", id="refuses_expanded"),
        pytest.param("grad = grad.clamp(-1000, 1000)", "loss scaling", id="large"),
        pytest.param("grad = torch.where(grad.abs() < 1e-4, 0.0, grad)", "loss scaling", id="tiny"),
        pytest.param("grad = grad if ctx.needs_input_grad[0] else grad * 2", "requires_grad=False", id="input"),
        pytest.param("grad = grad if all(ctx.needs_input_grad[1:]) else grad * 2", "requires_grad=False", id="frozen"),
    ],
)
def test_a_backward_that_is_wrong_in_ordinary_use_fails(judged: Judged, backward: str, words: str) -> None:
    record = judged(backward=backward)
    assert record.status in (Status.WRONG_GRADIENT, Status.RUNTIME_ERROR), record.message
    assert words in record.message


@pytest.mark.parametrize(
    ("backward", "status"),
    [
        pytest.param("grad = grad * (grad / grad)", Status.WRONG_GRADIENT, id="elements"),
        pytest.param("grad = grad * torch.where(grad == 0, 0.0, grad / grad)", Status.PASSED, id="elements_honest"),
        pytest.param(
            "norm = grad.norm(dim=1, keepdim=True)\ngrad = grad * norm / norm", Status.WRONG_GRADIENT, id="row"
        ),
        pytest.param(
            "norm = grad.norm(dim=1, keepdim=True)\ngrad = grad * norm / norm.clamp_min(1e-30)",
            Status.PASSED,
            id="row_honest",
        ),
    ],
)
def test_a_cotangent_holds_zeros(judged: Judged, backward: str, status: Status) -> None:
    record = judged(backward=backward)
    assert record.status is status, record.message


def test_no_scale_pushes_gradients_below_the_smallest_normal_number(judged: Judged, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.replace("torch.randn(6, 33)", "torch.randn(6, 33) * 1e-36"))
    assert judged(backward="assert grad[0, 0] != 1 / 32768").status is Status.PASSED


def test_instances_that_share_a_parameter_fail(judged: Judged) -> None:
    shared = "if self.calls == 1: SHARED['scale'] = self.scale\n"
    record = judged(shared + RIGHT.replace("self.scale", "SHARED['scale']"))
    assert record.status is Status.WRONG_GRADIENT
    assert "another instance" in record.message


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        pytest.param(
            "if self.scale.requires_grad and not vars(self).setdefault('hooks', False):\n"
            "    self.hooks = True\n"
            "    self.scale.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', p.grad * 0))\n" + RIGHT,
            "pass",
            id="hook",
        ),
        pytest.param(RIGHT, "grad = grad * (not hasattr(ctx, 'ran'))\nctx.ran = True", id="retain_graph"),
    ],
)
def test_a_second_backward_into_grad_gives_the_same(judged: Judged, forward: str, backward: str) -> None:
    record = judged(forward, backward)
    assert record.status is Status.WRONG_GRADIENT, record.message
    assert "retain_graph=True" in record.message


SCRIPTED = """def act(x, scale):
    return torch.tanh(x) * scale
if 'act' not in SHARED: SHARED['act'] = torch.jit.script(act)
return SHARED['act'](x, self.scale) + self.shift"""


@pytest.mark.parametrize(
    ("forward", "status"),
    [
        pytest.param(SCRIPTED, Status.PASSED, id="right"),
        pytest.param(
            SCRIPTED.replace("return S", "if not self.training: x = x * 0\nreturn S"), Status.WRONG_OUTPUT, id="wrong"
        ),
        pytest.param(f"assert not torch.is_inference_mode_enabled()\n{RIGHT}", Status.RUNTIME_ERROR, id="refuses"),
    ],
)
def test_scripted_code_that_inference_mode_refuses_is_called_under_no_grad(
    judged: Judged, forward: str, status: Status
) -> None:
    record = judged(forward)
    assert record.status is status, record.message


CHECKPOINTED = """from torch.utils.checkpoint import checkpoint
return checkpoint(lambda v, s: torch.tanh(v) * s FACTOR, x, self.scale, use_reentrant=True) + self.shift"""


@pytest.mark.parametrize(
    ("factor", "status"), [("", Status.PASSED), ("+ v - v.detach()", Status.WRONG_GRADIENT)], ids=["right", "wrong"]
)
def test_a_backward_that_only_works_into_grad_is_judged(judged: Judged, factor: str, status: Status) -> None:
    record = judged(CHECKPOINTED.replace("FACTOR", factor))
    assert record.status is status, record.message


def test_a_transposed_cotangent_counts(judged: Judged) -> None:
    pointer = "grad = grad.as_strided(grad.shape, (33, 1)) if grad.stride() == (1, 6) else grad"
    record = judged(backward=pointer)
    assert record.status is Status.WRONG_GRADIENT
    assert "in reverse order" in record.message


@pytest.mark.parametrize(
    ("is_row_major", "is_right"),
    [("grad.is_contiguous()", True), ("grad.stride(0) == 5 * 33", False), ("grad.stride(2) == 1", False)],
    ids=["whole", "first_stride", "last_stride"],
)
def test_a_cotangent_that_is_transposed_within_samples_counts(
    judged: Judged, tmp_path: Path, is_row_major: str, is_right: bool
) -> None:
    """As behind ``transpose(1, 2)``, or in ``channels_last``."""
    (tmp_path / "problem.py").write_text(PROBLEM.replace("randn(6, 33)", "randn(6, 5, 33)"))
    record = judged(
        backward=f"grad = grad.as_strided(grad.shape, (5 * 33, 33, 1)) if {is_row_major} else grad.contiguous()",
        head=HEAD.replace(".sum(0)", ".flatten(0, -2).sum(0)"),
    )
    assert record.status is (Status.PASSED if is_right else Status.WRONG_GRADIENT), record.message


def test_a_cotangent_whose_rows_lie_apart_counts(judged: Judged) -> None:
    pointer = "grad = grad.as_strided(grad.shape, (33, 1)) if grad.stride(1) == 1 else grad.contiguous()"
    record = judged(backward=pointer)
    assert record.status is Status.WRONG_GRADIENT
    assert "torch.cat" in record.message


@pytest.mark.parametrize(
    ("strides", "is_right"),
    [
        ("grad.stride(0), grad.stride(1)", True),
        ("5 * grad.stride(1), grad.stride(1)", False),
        ("grad.stride(0), 33", False),
    ],
    ids=["all", "a_sample_s_own", "between_samples"],
)
def test_a_cotangent_whose_samples_lie_apart_counts(
    judged: Judged, tmp_path: Path, strides: str, is_right: bool
) -> None:
    """As behind a concatenation."""
    (tmp_path / "problem.py").write_text(PROBLEM.replace("randn(6, 33)", "randn(6, 5, 33)"))
    strided = f"grad.as_strided(grad.shape, ({strides}, 1))"
    record = judged(
        backward=f"grad = {strided} if grad.stride(2) == 1 else grad.contiguous()",
        head=HEAD.replace(".sum(0)", ".flatten(0, -2).sum(0)"),
    )
    assert record.status is (Status.PASSED if is_right else Status.WRONG_GRADIENT), record.message
    assert is_right or "the samples of the cotangent 'normal'" in record.message


def test_a_backward_adds_to_what_grad_holds(judged: Judged) -> None:
    hooks = """if self.scale.requires_grad and not hasattr(self, 'new'):
    self.scale.register_hook(lambda gradient: setattr(self, 'new', gradient))
    self.scale.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, 'grad', self.new))
    self.new = None
"""
    record = judged(hooks + RIGHT)
    assert record.status is Status.WRONG_GRADIENT
    assert "received is 0.5 times expected" in record.message


# What backward needs, or the result, lies in memory that another call takes.
TAKEN = {
    "backwards in another order": """
pool, shape = vars(self).setdefault('pool', {'at': 0, 'kept': []}), x.shape
if len(pool['kept']) == pool['at']: pool['kept'].append(torch.empty_like(x))
kept = pool['kept'][pool['at']]
if kept.shape != shape: return Function.apply(x, self.scale, self.shift)
out = Pooled.apply(x, self.scale, self.shift, kept.detach(), pool)
pool['at'] += 1
return out""",
    "other values at one address": """
kept = SHARED.setdefault((x.data_ptr(), x.shape), torch.empty_like(x).detach())
return Pooled.apply(x, self.scale, self.shift, kept.detach(), {})""",
}
POOLED = """

class Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, shift, kept, pool):
        torch.tanh(x, out=kept)
        ctx.kept, ctx.pool = kept, pool
        ctx.save_for_backward(scale)
        return kept * scale + shift

    @staticmethod
    def backward(ctx, grad):
        out, (scale,) = ctx.kept, ctx.saved_tensors
        gradients = grad * scale * (1 - out * out), (grad * out).sum(0), grad.sum(0), None, None
        ctx.pool['at'] = 0
        return gradients
"""


@pytest.mark.parametrize("what", TAKEN)
def test_what_another_call_takes_fails(judged: Judged, what: str) -> None:
    record = judged(TAKEN[what], head=HEAD.replace("\nclass ModelNew", f"{POOLED}\nclass ModelNew"))
    assert record.status is Status.WRONG_GRADIENT, record.message
    assert "calls share the memory" in record.message


def test_an_input_kept_by_its_address_alone_fails(judged: Judged) -> None:
    """Its memory is free before backward runs, as behind a layer whose result nobody else keeps."""
    at = (
        "import ctypes\n"
        "shape, (rows, columns) = x.shape, x.shape\n"
        "values = (ctypes.c_float * (rows * columns)).from_address(ctx.address)\n"
        "out = torch.tanh(torch.frombuffer(values, dtype=torch.float32).view(shape))"
    )
    backward = at.replace("x.shape", "grad.shape")
    save = "ctx.save_for_backward(out, scale)\n        ctx.address = x.data_ptr()"
    record = judged(backward=backward, head=HEAD.replace("ctx.save_for_backward(out, scale)", save))
    assert record.status is Status.WRONG_GRADIENT, record.message
    assert "results of other operators" in record.message


def test_a_loss_that_leaves_out_an_output_gives_it_no_cotangent(judged: Judged, tmp_path: Path) -> None:
    two = "torch.tanh(x) * self.scale + self.shift, (torch.tanh(x) + 1) * 2"
    (tmp_path / "problem.py").write_text(PROBLEM.replace("torch.tanh(x) * self.scale + self.shift", two))
    head = HEAD.replace(
        "        return out * scale + shift\n",
        "        ctx.set_materialize_grads(False)\n        return out * scale + shift, (out + 1) * 2\n",
    )
    head = head.replace("backward(ctx, grad):", "backward(ctx, grad, other):").replace(
        "return grad * scale * (1 - out * out)", "return (grad * scale + 2 * other) * (1 - out * out)"
    )
    right = "grad, other = (torch.zeros_like(out) if one is None else one for one in (grad, other))"
    assert judged(backward=right, head=head).status is Status.PASSED
    wrong = "if grad is None or other is None: return out * 0, scale * 0, scale * 0"
    record = judged(backward=wrong, head=head)
    assert record.status is Status.WRONG_GRADIENT, record.message
    assert "had a cotangent" in record.message


def test_a_forward_that_seeds_the_generator_is_reported(judged: Judged) -> None:
    record = judged(f"torch.manual_seed(7)\n{RIGHT}")
    assert record.status is Status.PASSED
    assert "seed of torch's generator" in " ".join(finding.message for finding in record.findings)


def test_a_model_that_cannot_be_copied_passes(judged: Judged) -> None:
    record = judged(f"self.module = torch\n{RIGHT}")
    assert record.status is Status.PASSED, record.message


def test_a_candidate_may_share_its_weights_with_a_copy_where_the_reference_does(judged: Judged, tmp_path: Path) -> None:
    closure = "vars(self).setdefault('kept', [lambda: (self.scale, self.shift)])[0]"
    other = PROBLEM.replace(
        "        self.shift = nn.Parameter(torch.zeros(width))\n",
        "        self.shift = nn.Parameter(torch.zeros(width))\n"
        "        self.act = lambda x: torch.tanh(x) * self.scale\n",
    ).replace("torch.tanh(x) * self.scale + self.shift", "self.act(x) + self.shift")
    (tmp_path / "problem.py").write_text(other)
    record = judged(f"return Function.apply(x, *{closure}())")
    assert record.status is Status.PASSED, record.message


def test_a_model_that_cannot_be_copied_may_keep_what_a_call_without_gradients_makes(judged: Judged) -> None:
    kept = "self.module = torch\nif vars(self).get('last') is not None: self.last.add_(1)\nself.last = x * 1\n"
    record = judged(kept.replace("x * 1", "x.detach() * 1") + RIGHT)
    assert record.status is Status.PASSED, record.message


@pytest.mark.parametrize("mode", ["self.training", "True"])
def test_a_reference_that_changes_in_evaluation_mode_is_called_in_training_mode(
    judged: Judged, tmp_path: Path, mode: str
) -> None:
    other = PROBLEM.replace("torch.tanh(x)", f"torch.tanh(x if {mode} else 2 * x)")
    (tmp_path / "problem.py").write_text(other)
    record = judged(f"assert self.training, 'training only'\n{RIGHT}")
    assert (record.status is Status.PASSED) == (mode == "self.training"), record.message


@pytest.mark.parametrize(("rows", "buffers"), [(6, 1), (6, 2), (6, 8), (600, 2)])
def test_results_in_a_ring_of_buffers_fail(judged: Judged, tmp_path: Path, rows: int, buffers: int) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.replace("randn(6,", f"randn({rows},"))
    ring = f"ring = SHARED.setdefault('ring', [torch.empty_like(x) for _ in range({buffers})])\n"
    record = judged(
        f"{ring}out = {RIGHT.removeprefix('return ')}\nkept = ring[self.calls % {buffers}]\n"
        "kept.copy_(out.detach())\nout.data = kept\nreturn out"
    )
    assert record.status is Status.WRONG_OUTPUT, record.message
    assert "times more" in record.message


def test_an_input_that_needs_no_gradient_leaves_those_of_parameters(judged: Judged) -> None:
    record = judged("assert x.requires_grad or not torch.is_grad_enabled(), 'gradient wanted'\n" + RIGHT)
    assert record.status is Status.RUNTIME_ERROR
    assert "requires_grad=False" in record.message


def test_a_backward_that_changes_its_cotangent_fails(judged: Judged) -> None:
    record = judged(backward="grad = grad.contiguous(); kept = grad.clone()\nctx_grad = grad.zero_(); grad = kept")
    assert record.status is Status.WRONG_GRADIENT
    assert "grad_output in place" in record.message
