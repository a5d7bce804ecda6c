"""Tests when TF32 is within a problem's precision class: by its operators and torch's flags, not by heuristics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.aten.torch_state import CONVOLUTION, MATMUL, kept_state, set_tf32, tf32_allowed
from harness.judge.reference.tf32 import Products, allowed_on, class_of_eager, judged_class
from harness.records.record import PrecisionClass, TensorReport

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
FP32, TEN_BIT, SEVEN_BIT = PrecisionClass
PROBLEM = """\
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.randn({shape})]
def get_init_inputs():
    return []
"""
LINEAR = PROBLEM.format(layer="torch.nn.Linear(64, 48)", shape="16, 64")
CONVOLUTION_PROBLEM = PROBLEM.format(layer="torch.nn.Conv2d(64, 64, 3)", shape="8, 64, 32, 32")
#: A forward whose operands keep the 10 bits of TF32.
ROUNDED = """\
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}
    def forward(self, x):
        def cut(t):
            return ((t.contiguous().view(torch.int32) + 4096) & -8192).view(torch.float32)
        return torch.nn.functional.{function}(cut(x), cut(self.layer.weight), self.layer.bias)
"""
#: A forward in TF32, whatever torch's flags say.
IN_TF32 = ROUNDED.format(layer="torch.nn.Conv2d(64, 64, 3)", function="conv2d")


@pytest.fixture(autouse=True)
def flags() -> Iterator[None]:
    with kept_state():
        yield


def test_a_default_device_that_is_not_there_is_put_back() -> None:
    with kept_state():
        torch.set_default_device("cuda")  # without an index torch would have to ask the GPU for it
    assert torch.get_default_device() == torch.device("cpu")
    assert torch.zeros(1).device.type == "cpu"
    with kept_state():
        pass


@pytest.mark.parametrize(
    ("declared", "products", "allowed", "judged"),
    [
        (FP32, {CONVOLUTION}, {CONVOLUTION}, TEN_BIT),  # torch's defaults: TF32 in convolutions alone
        (FP32, {MATMUL}, {CONVOLUTION}, FP32),
        (FP32, {MATMUL, CONVOLUTION}, {CONVOLUTION}, TEN_BIT),
        (FP32, {MATMUL}, {MATMUL, CONVOLUTION}, TEN_BIT),
        (FP32, {CONVOLUTION}, set(), FP32),
        (FP32, set(), {MATMUL, CONVOLUTION}, FP32),
        (TEN_BIT, {MATMUL}, set(), TEN_BIT),
        (SEVEN_BIT, {MATMUL}, {MATMUL}, SEVEN_BIT),
    ],
)
def test_the_class_follows_from_operators_and_flags(
    declared: PrecisionClass, products: set[str], allowed: set[str], judged: PrecisionClass
) -> None:
    assert judged_class(declared, products, frozenset(allowed)) is judged


def test_torch_s_flags_by_either_interface_and_the_user_s_choice() -> None:
    assert tf32_allowed() == {CONVOLUTION}  # torch's defaults
    set_tf32("")
    assert tf32_allowed() == {CONVOLUTION}
    torch.set_float32_matmul_precision("high")
    assert tf32_allowed() == allowed_on(GPU, "") == {MATMUL, CONVOLUTION}
    set_tf32("forbid")
    assert tf32_allowed() == allowed_on(GPU, "forbid") == set()
    torch.backends.cudnn.conv.fp32_precision = "tf32"  # type: ignore[attr-defined]
    assert tf32_allowed() == {CONVOLUTION}
    set_tf32("allow")
    assert tf32_allowed() == {MATMUL, CONVOLUTION}
    assert allowed_on(CPU, "") == allowed_on(CPU, "forbid") == set()  # a CPU has no TF32
    assert allowed_on(CPU, "allow") == {MATMUL, CONVOLUTION}


@pytest.mark.parametrize(
    ("compute", "found"),
    [
        (lambda x: torch.nn.functional.conv2d(x, x), {CONVOLUTION}),
        (lambda x: torch.nn.functional.conv_transpose2d(x, x), {CONVOLUTION}),
        (lambda x: torch.nn.functional.linear(x, x[0, 0]), {MATMUL}),
        (lambda x: x[0] @ x[0], {MATMUL}),
        (lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), {MATMUL}),
        (lambda x: torch.relu(x).sum() * x, set()),
        (lambda x: torch.nn.functional.conv2d(x.double(), x.double()), set()),
        (lambda x: x[0].bfloat16() @ x[0].bfloat16(), set()),
    ],
)
def test_only_products_of_float32_count(compute: Callable[[torch.Tensor], Any], found: set[str]) -> None:
    with Products() as products:
        compute(torch.ones(2, 2, 2, 2))
    assert products.found == found


def test_eager_s_error_tells_its_class() -> None:
    def report(eager_error: float | None, rounding: float | None, trial: int = 0) -> TensorReport:
        return TensorReport("output", (4,), "float32", True, trial=trial, rounding=rounding, eager_error=eager_error)

    assert class_of_eager([report(3e-4, 3e-4)]) is TEN_BIT
    assert class_of_eager([report(2e-7, 3e-4)]) is FP32
    assert class_of_eager([report(2e-7, 3e-4), report(2e-4, 3e-4, trial=2)]) is TEN_BIT
    assert class_of_eager([report(2e-7, 1e-9, trial=1)]) is None  # its inputs are cut
    assert class_of_eager([report(2e-7, None), report(None, 3e-4), report(1e-7, 0.0)]) is None


def judged(harness: Callable[..., Any], folder: Path, problem: str, answer: str, *options: str) -> dict[str, Any]:
    (folder / "problem.py").write_text(problem)
    (folder / "answer.py").write_text(answer)
    ran = harness("evaluate", folder / "answer.py", "--problem", folder / "problem.py", "--json", *options)
    (row,) = ran.rows
    found: dict[str, Any] = row
    return found


@pytest.mark.slow
def test_the_choice_decides_on_the_cpu(harness: Callable[..., Any], tmp_path: Path) -> None:
    answer = ROUNDED.format(layer="torch.nn.Linear(64, 48)", function="linear")
    options = ("--device", "cpu", "--forward-only")
    strict = judged(harness, tmp_path, LINEAR, answer, *options)
    assert (strict["status"], strict["precision_class"]) == ("WRONG_OUTPUT", "fp32")
    assert strict["tf32"] == {"products": [MATMUL], "allowed": [], "eager": None}
    allowed = judged(harness, tmp_path, LINEAR, answer, *options, "--tf32", "allow")
    assert (allowed["status"], allowed["precision_class"]) == ("PASSED", "10-bit")
    assert allowed["tf32"] == {"products": [MATMUL], "allowed": [CONVOLUTION, MATMUL], "eager": "fp32"}
    assert allowed["policy"]["tf32"] == "allow"
    lower = answer.replace("+ 4096) & -8192", "+ 32768) & -65536")  # bfloat16's bits
    assert judged(harness, tmp_path, LINEAR, lower, *options, "--tf32", "allow")["status"] == "WRONG_OUTPUT"


@pytest.mark.gpu
def test_tf32_in_a_convolution_is_allowed_by_torch_s_defaults(harness: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--device", "cuda:0", "--no-timing", "--forward-only")
    shapes = ("8, 64, 32, 32", "1, 64, 7, 7", "16, 64, 128, 128")  # cuDNN's heuristics may differ between them
    for shape in shapes:
        problem = CONVOLUTION_PROBLEM.replace("8, 64, 32, 32", shape)
        row = judged(harness, tmp_path, problem, IN_TF32, *options)
        assert (row["status"], row["precision_class"]) == ("PASSED", "10-bit"), (shape, row["message"])
        assert row["tf32"]["allowed"] == [CONVOLUTION]
        assert row["tf32"]["eager"] in ("fp32", "10-bit")


@pytest.mark.gpu
def test_tf32_that_is_forbidden_is_refused_and_eager_does_without(harness: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--device", "cuda:0", "--no-timing", "--forward-only", "--tf32", "forbid")
    row = judged(harness, tmp_path, CONVOLUTION_PROBLEM, IN_TF32, *options)
    assert (row["status"], row["precision_class"]) == ("WRONG_OUTPUT", "fp32")
    assert "10-bit" in row["message"]
    plain = IN_TF32.replace("cut(x), cut(self.layer.weight)", "x, self.layer.weight")  # torch's own, as the flags say
    row = judged(harness, tmp_path, CONVOLUTION_PROBLEM, plain, *options)
    assert row["status"] == "PASSED"
    assert row["outputs"][0]["l2_budget"] < 1e-5  # eager has no TF32 either


@pytest.mark.gpu
@pytest.mark.parametrize("choice", ["allow", "forbid"])
def test_the_choice_holds_in_matrix_products_too(harness: Callable[..., Any], tmp_path: Path, choice: str) -> None:
    answer = ROUNDED.format(layer="torch.nn.Linear(64, 48)", function="linear")
    options = ("--device", "cuda:0", "--no-timing", "--forward-only", "--tf32", choice)
    row = judged(harness, tmp_path, LINEAR, answer, *options)
    assert row["status"] == ("PASSED" if choice == "allow" else "WRONG_OUTPUT")
