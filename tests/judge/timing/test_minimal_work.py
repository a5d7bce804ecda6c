"""Tests the harness's count of bytes and flops against counts by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import ProblemError
from harness.judge.timing.minimal_work import work_of
from harness.project.problems import read_problem
from harness.timing.floor import MinimalWork

PROBLEMS = Path(__file__).resolve().parents[3] / "problems"
#: Elements of the tensors of the problems at full size.
X, WEIGHT = 1024 * 8192, 8192 * 8192
PRODUCT = 2 * 1024 * 8192 * 8192
IMAGE, CONVOLVED, FILTER = 128 * 64 * 256**2, 128 * 64 * 258**2, 64 * 64 * 3 * 3


def linear(outputs: int) -> dict[str, int]:
    """A linear layer with three vectors, group normalisation with two more in it, and a cotangent like its output."""
    state = WEIGHT + 4 * 8192
    forward = X + state + outputs
    return {"forward": 4 * forward, "forward_backward": 4 * (forward + outputs + X + state + X + WEIGHT + 8192)}


@pytest.mark.parametrize(
    ("name", "moved", "flops"),
    [
        (
            "group_norm",
            {
                "forward": 4 * (2 * 112 * 64 * 512**2 + 2 * 64),
                "forward_backward": 4 * (5 * 112 * 64 * 512**2 + 5 * 64),
            },
            (0, 0),
        ),
        ("gemm_bias_add_hardtanh_mish_group_norm", linear(X), (PRODUCT, 3 * PRODUCT)),
        ("gemm_group_norm_min_bias_add", linear(X), (PRODUCT, 3 * PRODUCT)),
        (
            "conv_transpose2d_gelu_group_norm",
            {
                "forward": 4 * (IMAGE + CONVOLVED + FILTER + 3 * 64),
                "forward_backward": 4 * (3 * IMAGE + 2 * CONVOLVED + 3 * FILTER + 7 * 64),
            },
            (2 * IMAGE * 64 * 9, 6 * IMAGE * 64 * 9),
        ),
    ],
)
def test_the_work_of_the_problems(name: str, moved: dict[str, int], flops: tuple[int, int]) -> None:
    problem = read_problem(PROBLEMS / f"{name}.py")
    assert work_of(problem, problem.case("full")) == MinimalWork(
        moved, dict(zip(("forward", "forward_backward"), flops, strict=True))
    )


def test_a_case_has_work_of_its_own() -> None:
    problem = read_problem(PROBLEMS / "gemm_bias_add_hardtanh_mish_group_norm.py")
    work = work_of(problem, problem.case("odd"))
    assert work is not None
    assert work.flops == {"forward": 2 * 5 * 13 * 35, "forward_backward": 6 * 5 * 13 * 35}


PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

BIG, WIDE = (1000,), (10, 100)


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


@pytest.fixture
def work(tmp_path: Path) -> Callable[..., MinimalWork | None]:
    """The work of a problem of a few lines."""

    def of(
        forward: str, inputs: str = "torch.rand(BIG)", init: str = "pass", arguments: str = "x"
    ) -> MinimalWork | None:
        path = tmp_path / "small.py"
        path.write_text(PROBLEM.format(forward=forward, inputs=inputs, init=init, arguments=arguments))
        return work_of(read_problem(path), {})

    return of


@pytest.mark.parametrize(
    ("forward", "more", "forward_bytes", "forward_backward_bytes"),
    [
        # What backward needs of x is saved by eager, or not: x + 1 needs nothing, a square x, an exponential its own y.
        ("return x + 1", {}, 8000, 16000),
        ("return x * x", {}, 8000, 20000),
        ("return x.exp()", {}, 8000, 16000),
        # Intermediates are free.
        ("return (x + 1).sin().cos()", {}, 8000, 16000),
        # A saved tensor on a way that no gradient takes is not read again.
        ("return (x * x).detach() + x", {}, 8000, 16000),
        # An input passed twice, read once; each of its places has a gradient.
        ("return x * y", {"arguments": "x, y", "inputs": "*[torch.rand(BIG)] * 2"}, 8000, 24000),
        # One memory in two halves; a quarter of a memory; a memory that is read many times over.
        ("return x + y", {"arguments": "x, y", "inputs": "*torch.rand(2000).split(1000)"}, 12000, 24000),
        ("return x + 1", {"inputs": "torch.rand(4000)[::4]"}, 8000, 16000),
        ("return x + 1", {"inputs": "torch.rand(1, 100).expand(10, 100)"}, 400 + 4000, 400 + 3 * 4000),
        # A parameter that two layers share, and a buffer, which has no gradient.
        (
            "return x * self.a + self.b * self.c",
            {"init": "self.a = self.b = nn.Parameter(torch.rand(BIG)); self.register_buffer('c', torch.rand(BIG))"},
            4 * 4000,
            9 * 4000,
        ),
        # A parameter that is frozen; one that no output depends on.
        ("return x * self.a", {"init": "self.a = nn.Parameter(torch.rand(BIG), False)"}, 12000, 24000),
        ("return x + 1", {"init": "self.a = nn.Parameter(torch.rand(BIG))"}, 12000, 20000),
        # Other dtypes: half a tensor, and one that is not differentiated.
        ("return x + 1", {"inputs": "torch.rand(BIG, dtype=torch.float16)"}, 4000, 8000),
        ("return x * y", {"arguments": "x, y", "inputs": "torch.rand(BIG), torch.ones(BIG, dtype=torch.int64)"}, 16000,
         16000 + 8000 + 8000),
        # Several outputs: the integers have no cotangent, a second mention is no second output but has a cotangent.
        ("return x.view(WIDE).max(dim=1)", {}, 4000 + 10 * 12, 4000 + 10 * 12 + 10 * 4 + 4000),
        ("y = x + 1; return [y, y]", {}, 8000, 20000),
        # What is a view of an input is not written, unless the input was changed in place.
        ("return x.view(WIDE)", {}, 4000, 4000 + 8000),
        ("return x.mul_(2)", {}, 8000, 16000),
        # Values that are no tensors.
        ("return x * n", {"arguments": "x, n", "inputs": "torch.rand(BIG), 3"}, 8000, 16000),
    ],
)  # fmt: skip
def test_each_tensor_is_moved_as_often_as_it_must(
    work: Callable[..., MinimalWork | None],
    forward: str,
    more: dict[str, str],
    forward_bytes: int,
    forward_backward_bytes: int,
) -> None:
    found = work(forward, **more)
    assert found is not None
    assert found.bytes == {"forward": forward_bytes, "forward_backward": forward_backward_bytes}
    assert found.flops == {"forward": 0, "forward_backward": 0}


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x + 1", "torch.ones(BIG, dtype=torch.int64)"),
        ("return x > 0", "torch.rand(BIG)"),
        ("return x.detach() + 1", "torch.rand(BIG)"),
        ("with torch.no_grad(): return x + 1", "torch.rand(BIG)"),
    ],
)
def test_what_is_not_differentiable_has_no_backward(
    work: Callable[..., MinimalWork | None], forward: str, inputs: str
) -> None:
    found = work(forward, inputs)
    assert found is not None
    assert set(found.bytes) == set(found.flops) == {"forward"}


def test_products_of_drawing_and_constructing_are_no_work(work: Callable[..., MinimalWork | None]) -> None:
    found = work(
        "return x @ self.a", "torch.rand(WIDE) @ torch.rand(100, 100)", "self.a = torch.rand(WIDE).T @ torch.rand(WIDE)"
    )
    assert found is not None
    assert found.flops == {"forward": 2 * 10 * 100 * 100, "forward_backward": 4 * 10 * 100 * 100}


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return x[x > 0.5]", "pass"),
        ("return x * x.sum().item()", "pass"),
        ("raise ValueError('no')", "pass"),
        ("return x", "raise ValueError('no')"),
    ],
)
def test_what_meta_tensors_cannot_do_is_unknown(
    work: Callable[..., MinimalWork | None], forward: str, init: str
) -> None:
    assert work(forward, init=init) is None


def test_a_body_that_raises_is_a_bad_problem(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        PROBLEM.format(forward="return x", inputs="", init="pass", arguments="x") + "raise ValueError('no')"
    )
    with pytest.raises(ProblemError, match="the problem's body failed"):
        work_of(read_problem(path), {})
