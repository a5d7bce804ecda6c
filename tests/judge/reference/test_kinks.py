"""Tests cases where rounding decides a branch: honest kernels pass, and wrong ones still fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

from harness.judge.compare.comparison import Comparison
from harness.judge.compare.received import ReceivedGradients
from harness.judge.compare.trial_result import TrialResult
from harness.judge.inputs.draws import Draw, draw, draw_inputs
from harness.judge.reference.kink_modes import Bounds, Counter, Mover, Reach, Watching
from harness.judge.reference.kinks import Kinks, Settled
from harness.judge.reference.reference import Reference
from harness.project import problems

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

n = {batch}
run = 0
CASES = {cases}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear({features}, {width})

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn(n, {features})]


def get_init_inputs():
    return []
"""
#: Sums in chunks, and rounds nearly as badly as the L2 budget of 3.8e-6 lets it.
SOLUTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        ctx.save_for_backward(y)
        return y.clamp(-0.5, 0.5)

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return {mask}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear({features}, {width})

    def forward(self, x):
        x = {before}
        half = x.shape[1] // 2
        y = x[:, half:] @ self.linear.weight[:, half:].T + self.linear.bias
        y = (y + x[:, :half] @ self.linear.weight[:, :half].T) * (1 + 2.5e-6)
        return Clip.apply(y)
"""
CASES = {"full": {}, **{f"again_{k}": {"run": k} for k in range(1, 10)}}
RIGHT = "gradient * ((y > -0.5) & (y < 0.5))"
SQUARE = {"batch": 256, "features": 32, "width": 512}
SMALL = {"batch": 256, "features": 32, "width": 256}
#: So many elements in a sample that each draw has several near an edge.
WIDE = {"batch": 4, "features": 8, "width": 262144}
HALF = {"batch": 4, "features": 8, "width": 131072}
CLIPPED = "F.hardtanh(self.linear(x), -0.5, 0.5)"
CENTRED = "F.hardtanh(self.linear(x - x.mean(0)), -0.5, 0.5)"


class Bench(NamedTuple):
    """A problem and one of its draws, without a worker."""

    reference: Reference
    kinks: Kinks
    draw: Draw
    precision: Any

    def settle(self, seed: int) -> Settled:
        return self.kinks.settle(self.draw, seed)


def write_problem(folder: Path, forward: str, sizes: dict[str, int]) -> Path:
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(forward=forward, cases=CASES, **sizes))
    return path


def write_solution(folder: Path, sizes: dict[str, int], mask: str = RIGHT, before: str = "x") -> Path:
    path = folder / "answer.py"
    path.write_text(SOLUTION.format(mask=mask, before=before, features=sizes["features"], width=sizes["width"]))
    return path


def bench(path: Path, seed: int, memory_bytes: int = 1 << 40) -> Bench:
    problem = problems.read_problem(path)
    module = problems.load(problem, {})
    reference = Reference(problem, True, memory_bytes)
    kinks = Kinks(reference, problem.precision, lambda other: draw_inputs(problem, module, other))
    return Bench(reference, kinks, draw(problem, module, [], seed), problem.precision)


def judged(set_up: Bench, solution: Path, drawn: Draw, settled: Settled | None, are_apart: bool = False) -> TrialResult:
    """The verdict on a solution that runs right here."""
    namespace: dict[str, Any] = {}
    exec(solution.read_text(), namespace)
    model = namespace["ModelNew"]()
    model.load_state_dict(drawn.model.state_dict())
    x = drawn.inputs[0].clone().requires_grad_()
    leaves = {"x": x, **dict(model.named_parameters())}
    output = model(x)
    comparison = Comparison(set_up.reference, drawn, 0, list(leaves), set_up.precision, trial=0, settled=settled)
    answers = []
    for name, cotangent in (("normal", torch.randn_like(output)), ("ones", torch.ones_like(output))):
        gradients = torch.autograd.grad(output, list(leaves.values()), cotangent, retain_graph=True)
        answers.append(ReceivedGradients(name, [cotangent], dict(zip(leaves, gradients, strict=True))))
    if are_apart:
        comparison.add([output.detach()])
        for answer in answers:
            comparison.add(None, [answer])
    else:
        comparison.add([output.detach()], answers)
    return comparison.result()


def test_an_honest_kernel_passes_whatever_is_drawn(tmp_path: Path, harness: Callable[..., Any]) -> None:
    problem, solution = write_problem(tmp_path, CLIPPED, SMALL), write_solution(tmp_path, SMALL)
    cases = [option for case in range(1, 10) for option in ("--case", f"again_{case}")]
    chosen = ("--problem", problem, "--device", "cpu", "--seed", "5eed", "--case", "full", *cases)
    ran = harness("evaluate", solution, *chosen, "--json")
    assert [row["status"] for row in ran.rows] == ["PASSED"] * 10, ran.out
    assert all(row["kinks"]["redrawn"] > 0 and row["kinks"]["remaining"] == 0 for row in ran.rows)


def test_without_settling_the_same_kernel_fails_in_some_draws(tmp_path: Path) -> None:
    problem, solution = write_problem(tmp_path, CLIPPED, SQUARE), write_solution(tmp_path, SQUARE)
    for seed in range(60):
        set_up = bench(problem, seed)
        if not judged(set_up, solution, set_up.draw, None).failed:
            continue
        settled = set_up.settle(0)
        assert not judged(set_up, solution, settled.draw, settled).failed
        return
    pytest.fail("no draw had an element that the kernel rounds to the other side")


@pytest.mark.parametrize("memory_bytes", [1 << 40, 64 * SQUARE["features"] * 64])
def test_settling_leaves_no_near_element(tmp_path: Path, memory_bytes: int) -> None:
    set_up = bench(write_problem(tmp_path, CLIPPED, SQUARE), 3, memory_bytes)
    settled = set_up.settle(0)
    again = Kinks(set_up.reference, set_up.precision, lambda _: []).settle(settled.draw, 0)
    changed = (settled.draw.inputs[0] != set_up.draw.inputs[0]).any(1)
    assert settled.redrawn >= int(changed.sum()) > 0
    assert (settled.remaining, again.redrawn, again.remaining) == (0, 0, 0)


def test_settling_repeats_itself(tmp_path: Path) -> None:
    path = write_problem(tmp_path, CLIPPED, SQUARE)
    first, second = bench(path, 3).settle(5), bench(path, 3).settle(5)
    assert torch.equal(first.draw.inputs[0], second.draw.inputs[0])


def test_rows_are_replaced_in_all_inputs_that_carry_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(
        PROBLEM.format(forward="self.linear(x).relu() + other.sum(1, True) + scale.sum()", cases=CASES, **SQUARE)
        .replace("forward(self, x)", "forward(self, x, other, scale)")
        .replace("return [torch.randn(n, 32)]", "x = torch.randn(n, 32); return [x, 3 * x, torch.randn(7)]")
    )
    set_up = bench(path, 0)
    settled = set_up.settle(0)
    x, other, scale = settled.draw.inputs
    assert settled.redrawn > 0
    assert torch.equal(other, 3 * x)
    assert torch.equal(scale, set_up.draw.inputs[2])


WRONG = [
    "gradient * ((y > -0.499) & (y < 0.5))",
    "gradient * (y < 0.5)",
    "gradient * 1.001 * ((y > -0.5) & (y < 0.5))",
]
SETTINGS = [(CLIPPED, "x", SQUARE), (CENTRED, "x - x.mean(0)", SQUARE), (CLIPPED, "x", HALF)]


@pytest.mark.parametrize(("forward", "before", "sizes"), SETTINGS)
def test_a_wrong_backward_is_found(tmp_path: Path, forward: str, before: str, sizes: dict[str, int]) -> None:
    set_up = bench(write_problem(tmp_path, forward, sizes), 2)
    settled = set_up.settle(0)
    for mask in WRONG:
        solution = write_solution(tmp_path, sizes, mask, before)
        assert judged(set_up, solution, settled.draw, settled).failed, mask


def test_a_wrong_backward_is_a_wrong_gradient(tmp_path: Path, evaluate_row: Callable[..., Any]) -> None:
    problem, solution = write_problem(tmp_path, CLIPPED, SQUARE), write_solution(tmp_path, SQUARE, WRONG[0])
    assert evaluate_row(solution, problem, "--case", "full")["status"] == "WRONG_GRADIENT"


def test_what_cannot_be_redrawn_is_explained(tmp_path: Path, evaluate_row: Callable[..., Any]) -> None:
    problem, solution = (
        write_problem(tmp_path, CENTRED, SQUARE),
        write_solution(tmp_path, SQUARE, before=SETTINGS[1][1]),
    )
    row = evaluate_row(solution, problem, "--case", "full")
    assert row["status"] == "PASSED", row["message"]
    remaining = row["kinks"]["remaining"]
    assert remaining > 0
    assert f"note: {remaining} elements" in row["message"]


@pytest.mark.parametrize(("forward", "before", "sizes"), SETTINGS[1:])
def test_an_honest_kernel_passes_beside_what_remains(
    tmp_path: Path, forward: str, before: str, sizes: dict[str, int]
) -> None:
    problem, solution = write_problem(tmp_path, forward, sizes), write_solution(tmp_path, sizes, before=before)
    for seed in range(2):
        set_up = bench(problem, seed)
        settled = set_up.settle(seed)
        result = judged(set_up, solution, settled.draw, settled)
        assert not result.failed
        assert any(report.sensitivity for report in result.gradients) == bool(settled.remaining)


def test_without_its_sensitivity_an_honest_kernel_fails_in_some_draws(tmp_path: Path) -> None:
    problem, solution = write_problem(tmp_path, CLIPPED, WIDE), write_solution(tmp_path, WIDE)
    set_up = bench(problem, 1)
    settled = set_up.settle(0)
    assert settled.remaining > 0
    assert judged(set_up, solution, settled.draw, None).failed
    assert not judged(set_up, solution, settled.draw, settled).failed


def test_answers_compared_together_and_apart_get_the_same_report(tmp_path: Path) -> None:
    problem, solution = write_problem(tmp_path, CLIPPED, WIDE), write_solution(tmp_path, WIDE)
    set_up = bench(problem, 1, memory_bytes=2 * WIDE["features"] * 64)
    settled = set_up.settle(0)
    assert settled.remaining > 0
    torch.manual_seed(0)
    together = judged(set_up, solution, settled.draw, settled)
    torch.manual_seed(0)
    assert judged(set_up, solution, settled.draw, settled, are_apart=True) == together


def test_pieces_explain_what_the_whole_does(tmp_path: Path) -> None:
    problem, solution = write_problem(tmp_path, CLIPPED, WIDE), write_solution(tmp_path, WIDE)
    set_up = bench(problem, 1, memory_bytes=2 * WIDE["features"] * 64)
    settled = set_up.settle(0)
    result = judged(set_up, solution, settled.draw, settled)
    assert result.pieces == 2
    assert settled.remaining > 0
    assert not result.failed


TIES = "torch.randint(0, 3, (n, 6)).float()"


@pytest.mark.parametrize(
    ("inputs", "reference", "candidate", "status", "kinks"),
    [
        ("torch.randn(n, 6)", "x.relu()", "x * (x > 0)", "PASSED", {"redrawn": 0, "remaining": 0}),
        ("torch.randn(n, 6)", "F.group_norm(x, 2)", "F.group_norm(x, 2)", "PASSED", {}),
        (TIES, "x.max(1).values", "x.max(1).values", "PASSED", {"redrawn": 0, "remaining": 0}),
        (TIES, "x.max(1).values", "x.amax(1)", "WRONG_GRADIENT", {"redrawn": 0, "remaining": 0}),
        (TIES, "(3 * x).argmin(1)", "(3 * x).argmin(1)", "PASSED", {"redrawn": 0, "remaining": 0}),
        (TIES, "(3 * x).argmin(1)", "5 - (3 * x).flip(1).argmin(1)", "WRONG_OUTPUT", {"redrawn": 0, "remaining": 0}),
    ],
)
def test_what_is_not_rounded_is_not_redrawn(
    tmp_path: Path,
    evaluate_row: Callable[..., Any],
    inputs: str,
    reference: str,
    candidate: str,
    status: str,
    kinks: dict[str, int],
) -> None:
    text = PROBLEM.format(forward=reference, cases=CASES, batch=40, features=6, width=1).replace(
        "torch.randn(n, 6)", inputs
    )
    problem, solution = tmp_path / "problem.py", tmp_path / "answer.py"
    problem.write_text(text)
    solution.write_text(text.replace("class Model(", "class ModelNew(").replace(reference, candidate))
    row = evaluate_row(solution, problem, "--case", "full")
    assert (row["status"], row["kinks"]) == (status, kinks), row["message"]


class Wide(Bounds):
    """Bounds of one width everywhere."""

    def of(self, place: int, name: str, edges: Any) -> list[Reach]:
        return [Reach(0.1, 0.1, math.inf, 0.1)] * len(edges)


def slopes(operate: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[int, list[torch.Tensor]]:
    """Near elements, and where the gradient jumps when they are moved with either sign."""
    counter = Counter(Wide(0.0), x.shape[0])
    found = []
    for watcher in (counter, Mover(Wide(0.0), 7, 0, 2), Mover(Wide(0.0), 7, 1, 2)):
        leaf = x.clone().requires_grad_()
        computed = leaf * 1.0
        with Watching(watcher):
            output = operate(computed)
        found += torch.autograd.grad(output.sum(), leaf)
    near = int(counter.by_sample().sum()) + counter.of_no_sample()
    return near, [(moved - found[0]).abs() > 0.5 for moved in found[1:]]


CHECKERS = 9 * torch.tensor([[1.0, -1, 1], [-1, 1, -1], [1, -1, 1]]).double()[None, None]


def sampled(x: torch.Tensor, mode: str, align_corners: bool) -> torch.Tensor:
    """A board's values along a line, at places from -1 to 1."""
    grid = torch.stack([x, torch.full_like(x, 0.45)], -1)[None]
    return F.grid_sample(CHECKERS, grid, mode, align_corners=align_corners)[0, 0]


def uniform(*shape: int) -> torch.Tensor:
    return 8 * torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 4


@pytest.mark.parametrize(
    "operate",
    [
        F.relu,
        F.relu_,
        F.relu6,
        lambda x: F.hardtanh(x, inplace=True),
        lambda x: x.clamp_(0.4, 1.5),
        lambda x: x.clamp(max=0.4),
        lambda x: x.clamp_min(0.4),
        lambda x: torch.clamp(x, min=torch.full((60,), 0.4).double()),
        lambda x: x.abs_(),
        lambda x: F.leaky_relu(x, inplace=True),
        lambda x: F.prelu(x, torch.tensor([0.2]).double()),
        lambda x: F.elu(x, 2.0, inplace=True),
        lambda x: F.selu(x) * 2,
        lambda x: F.threshold(x, 0.7, 3.0),
        lambda x: 4 * F.hardswish(x, inplace=True),
        lambda x: 6 * F.hardsigmoid(x),
        lambda x: F.hardshrink(x, 0.7),
        lambda x: F.softshrink(x, 0.7),
        lambda x: torch.where(x > 0.7, x, -x),
        lambda x: torch.where(x > 0, x, -x) + x.relu(),
        lambda x: torch.maximum(x, torch.full((60,), 0.4).double()),
        lambda x: x * x.floor(),
        lambda x: x * x.round(),
        lambda x: x * x.long(),
        lambda x: x * x.sign(),
        lambda x: torch.linalg.vector_norm(x, 1, dim=1),
        lambda x: x * torch.bucketize(x, torch.arange(-3.5, 4.0).double()),
        lambda x: x * torch.searchsorted(torch.arange(-3.5, 4.0).double().expand(40, -1).contiguous(), x),
        lambda x: x * torch.frexp(x + 4.25).exponent,
        lambda x: x * torch.fake_quantize_per_tensor_affine(x.float(), 1.0, 0, -9, 9).detach(),
        lambda x: sampled(x / 4, "bilinear", True),
        lambda x: x * sampled(x / 4, "nearest", False),
    ],
)
def test_every_near_element_crosses_in_one_of_two_runs(operate: Callable[[torch.Tensor], torch.Tensor]) -> None:
    near, (first, second) = slopes(operate, uniform(40, 60))
    assert int((first | second).sum()) >= 8
    assert not bool((first & second).any())
    # Truncation has no edge at zero, where rounding down has one; a double comparison is counted twice.
    assert near * 0.4 <= int((first | second).sum()) <= near


@pytest.mark.parametrize(
    ("operate", "shape"),
    [
        (lambda x: x.max(1).values, (300, 20)),
        (lambda x: x.amin((1, 2)), (300, 4, 5)),
        (lambda x: x.median(1).values, (300, 5)),
        (lambda x: x.kthvalue(1, 0).values, (20, 300)),
        (lambda x: x.topk(1, 1).values, (300, 20)),
        (lambda x: F.max_pool1d(x, 4), (10, 30, 20)),
        (lambda x: F.max_pool2d(x, 2, padding=1, ceil_mode=True), (4, 8, 9, 7)),
        (lambda x: F.max_pool2d(x, 2, stride=4, dilation=2), (4, 8, 12, 12)),
        (lambda x: F.max_pool3d(x, 2), (4, 8, 4, 4, 4)),
        (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (4, 30, 4, 9)),
    ],
)
def test_a_winner_and_its_runner_up_change_places_in_one_of_two_runs(
    operate: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> None:
    near, (first, second) = slopes(operate, uniform(*shape))
    assert near >= 4
    assert int(first.sum()) + int(second.sum()) == 2 * near


def test_a_leaf_is_never_moved() -> None:
    leaf = uniform(40, 60).requires_grad_()
    before = leaf.detach().clone()
    with Watching(Mover(Wide(0.0), 7, 1, 2)):
        leaf.relu()
    assert torch.equal(leaf, before)


@pytest.mark.parametrize(
    "operate", [F.silu, F.gelu, F.celu, torch.tanh, lambda x: F.huber_loss(x, -x), lambda x: x / 3, lambda x: x.float()]
)
def test_smooth_operators_have_no_kink(operate: Callable[..., torch.Tensor]) -> None:
    counter = Counter(Wide(0.0), 40)
    with Watching(counter):
        operate(uniform(40, 60))
    assert not counter.found


def test_integers_have_no_kink() -> None:
    counter = Counter(Wide(0.0), 40)
    whole = torch.arange(80).view(40, 2)
    with Watching(counter):
        torch.where(whole > 3, whole, 0).relu().max(1)
    assert not counter.found


@pytest.mark.parametrize("answer", ["0 * right", "right + 1", "right.flip(0)"])
def test_a_near_tie_excuses_no_integer_but_its_own(tmp_path: Path, answer: str) -> None:
    sizes = {"batch": 20000, "features": 8, "width": 64}
    set_up = bench(write_problem(tmp_path, "self.linear(x - x.mean(0)).argmax(1)", sizes), 3)
    settled = set_up.settle(5)
    assert settled.remaining > 0
    (right,) = set_up.reference.eager(settled.draw, 5).outputs
    comparison = Comparison(set_up.reference, settled.draw, 5, (), set_up.precision, trial=0, settled=settled)
    comparison.add([eval(answer, {"right": right})])
    (report,) = comparison.result().outputs
    assert not report.ok


@pytest.mark.parametrize("forward", ["torch.where(3 * x > 0.5, 1.0, 0.5)", "F.hardtanh(3 * x, -0.5, 0.5)"])
def test_a_near_element_excuses_no_other_one(tmp_path: Path, forward: str) -> None:
    set_up = bench(write_problem(tmp_path, forward, {"batch": 4, "features": 262144, "width": 1}), 1)
    settled = set_up.settle(0)
    assert settled.remaining > 0
    x = settled.draw.inputs[0].clone().requires_grad_()
    output = eval(forward, {"x": x, "F": F, "torch": torch})
    cotangent = torch.randn_like(output)
    right = torch.autograd.grad(output, x, cotangent)[0] if output.requires_grad else output
    near = (3 * x.detach() - 0.5).abs()
    for place, passes in ((near.argmin(1), True), (near.argmax(1), False)):
        answer, rows = right.detach().clone(), torch.arange(4)
        answer[rows, place] = torch.where(answer[rows, place] == 0, 1.0, 0.5 * answer[rows, place])
        leaves = ("x",) if output.requires_grad else ()
        comparison = Comparison(set_up.reference, settled.draw, 0, leaves, set_up.precision, trial=0, settled=settled)
        outputs = [output.detach() if leaves else answer]
        comparison.add(outputs, [ReceivedGradients("normal", [cotangent], {"x": answer})] if leaves else [])
        result = comparison.result()
        assert bool(result.failed) != passes
        if not passes:
            assert [report.wrong for report in result.failed] == [4]


def test_inputs_of_another_form_in_another_draw_are_told(tmp_path: Path, harness: Callable[..., Any]) -> None:
    path = write_problem(tmp_path, CLIPPED, SQUARE)
    text = path.read_text().replace("torch.randn(n,", "torch.randn(n - int(torch.randint(0, 99, ())),")
    path.write_text(text)
    solution = write_solution(tmp_path, SQUARE)
    ran = harness("evaluate", solution, "--problem", path, "--device", "cpu", "--case", "full", "--json")
    assert ran.code == 2
    assert "change from draw to draw" in ran.err
    assert "Traceback" not in ran.err
