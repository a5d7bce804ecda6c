"""Judges Triton kernels: in Triton's interpreter on the CPU, and as any other kernel on a GPU.

On a machine with a GPU: ``pytest -m gpu -n 0 tests/commands/test_triton.py``
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HAS_TRITON = all(importlib.util.find_spec(name) is not None for name in ("triton", "numpy"))
NEEDS_TRITON = pytest.mark.skipif(not HAS_TRITON, reason="needs Triton: pip install triton numpy")
DEVICES = [pytest.param("cpu", marks=NEEDS_TRITON), pytest.param("cuda:0", marks=[pytest.mark.gpu, NEEDS_TRITON])]

PROBLEM = """
import torch
import torch.nn as nn

rows = 4000
CASES = {"full": {}, "odd": {"rows": 33}, "large": {"rows": 200_000}}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1)


def get_inputs():
    return [torch.randn(rows, 511)]


def get_init_inputs():
    return []
"""
HONEST = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (1024, 2048)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def line_forward(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * 2 + 1
    tl.store(y + at, tl.maximum(value, 0.0), mask=at < n)


@triton.jit
def line_backward(dy, y, dx, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    open_ = tl.load(y + at, mask=at < n) > 0
    tl.store(dx + at, tl.where(open_, 2 * tl.load(dy + at, mask=at < n), 0.0), mask=at < n)


class Line(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.is_cuda
        x = x.contiguous()
        y = torch.empty_like(x)
        line_forward[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        line_backward[(triton.cdiv(y.numel(), 1024),)](dy.contiguous(), y, dx, y.numel(), BLOCK=1024)
        return dx


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Line.apply(x)
"""
# A kernel that adds to its output: trial runs of the autotuner add to it, too, unless it is reset.
ADDING = HONEST.replace(
    "    tl.store(y + at, tl.maximum(value, 0.0), mask=at < n)",
    "    tl.atomic_add(y + at, tl.maximum(value, 0.0), mask=at < n)",
).replace("y = torch.empty_like(x)", "y = torch.zeros_like(x)")
TOKEN = """
import torch
import triton
import triton.language as tl


@triton.jit
def line(x, y):
    tl.store(y, tl.load(x))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x * 2 + 1)
        line[(1,)](y, y)
        return y
"""


@pytest.fixture
def judged(tmp_path: Path, harness: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Judges an answer's text on one case."""

    def run(text: str, device: str, *options: str, case: str = "odd") -> dict[str, Any]:
        (tmp_path / "problem.py").write_text(PROBLEM)
        (tmp_path / "answer.py").write_text(text)
        files = (tmp_path / "answer.py", "--problem", tmp_path / "problem.py")
        ran = harness("evaluate", *files, "--case", case, "--device", device, "--json", *options)
        (row,) = ran.rows
        assert ran.code == (0 if row["status"] == "PASSED" else 1), ran.err
        return dict(row)

    return run


def passed(device: str) -> str:
    return "INTERPRETED" if device == "cpu" else "PASSED"


@pytest.mark.parametrize("device", DEVICES)
def test_own_kernels_of_triton_are_counted(judged: Callable[..., dict[str, Any]], device: str) -> None:
    row = judged(HONEST, device, "--require-own-kernel")
    assert row["status"] == passed(device), row["message"]
    own = {way: [use["name"] for use in uses if use["own"]] for way, uses in row["kernels"].items()}
    assert own == {"forward": ["line_forward"], "backward": ["line_backward"]}
    assert row["own_share"] > 0.5
    if device == "cpu":
        assert row["message"].startswith("interpreted: not judged")
        assert row["trials"] == 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("right", "wrong", "status"),
    [
        ("* 2 + 1", "* 2 + 1.01", "WRONG_OUTPUT"),
        ("2 * tl.load(dy", "tl.load(dy", "WRONG_GRADIENT"),
        ("BLOCK=1024)\n        return dx", "BLOCK=512)\n        return dx", "WRONG_GRADIENT"),
        ("y = torch.empty_like(x)", "raise ValueError('no')", "RUNTIME_ERROR"),
        ("return Line.apply(x)", "return Line.apply(x.detach())", "NO_GRADIENT"),
    ],
)
def test_a_wrong_kernel_fails(
    judged: Callable[..., dict[str, Any]], device: str, right: str, wrong: str, status: str
) -> None:
    assert right in HONEST
    row = judged(HONEST.replace(right, wrong), device)
    assert row["status"] == status, row["message"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_kernel_that_does_nothing_is_told(judged: Callable[..., dict[str, Any]], device: str) -> None:
    row = judged(TOKEN, device, "--forward-only", "--require-own-kernel", case="full" if device == "cpu" else "large")
    assert (row["status"], row["rule"]) == ("CHEATED", "no-own-kernel"), row["message"]
    assert row["own_share"] < 0.05


@pytest.mark.parametrize("device", DEVICES)
def test_who_asks_for_the_interpreter_gains_nothing(judged: Callable[..., dict[str, Any]], device: str) -> None:
    asking = f"import os\nos.environ['TRITON_INTERPRET'] = '1'\n{HONEST}"
    row = judged(asking, device, "--require-own-kernel")
    assert row["status"] == ("INTERPRETED" if device == "cpu" else "CHEATED"), row["message"]
    refusing = asking.replace("= '1'", "= '0'")
    assert judged(refusing, "cpu")["status"] == "RUNTIME_ERROR" if device == "cpu" else True


@NEEDS_TRITON
def test_a_replaced_compiler_gains_nothing(judged: Callable[..., dict[str, Any]]) -> None:
    patched = HONEST.replace(
        "import triton.language as tl\n",
        "import triton.language as tl\n"
        "class Fake:\n"
        "    def __init__(self, fn): self.fn = fn\n"
        "    def __getitem__(self, grid): return lambda x, y, n: y.copy_(torch.relu(x * 2 + 1))\n"
        "triton.jit = Fake\n"
        "triton.autotune = lambda configs, key: lambda fn: fn\n",
    )
    row = judged(patched, "cpu", "--forward-only", "--require-own-kernel")
    assert (row["status"], row["rule"]) == ("CHEATED", "no-own-kernel"), row["message"]


@NEEDS_TRITON
def test_what_the_interpreter_lacks_is_unsupported(judged: Callable[..., dict[str, Any]]) -> None:
    assembly = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [value], tl.float32, True, 1)'
    row = judged(HONEST.replace("tl.maximum(value, 0.0)", assembly), "cpu")
    assert row["status"] == "UNSUPPORTED", row["message"]
    assert "inline_asm not supported in interpreter mode" in row["message"]


def test_a_package_that_is_missing_is_unsupported(judged: Callable[..., dict[str, Any]]) -> None:
    if importlib.util.find_spec("tilelang") is not None:
        pytest.skip("tilelang is installed")
    row = judged(f"import tilelang\n{TOKEN}", "cpu")
    assert (row["status"], row["message"]) == ("UNSUPPORTED", "line 1: this machine has no tilelang; judge it on a GPU")
    assert row["confinement"] == {}  # nothing ran
    hidden = TOKEN.replace("    def forward(self, x):\n", "    def forward(self, x):\n        import tilelang\n")
    assert judged(hidden, "cpu")["status"] == "UNSUPPORTED"


def test_a_compiler_at_run_time_is_unsupported(judged: Callable[..., dict[str, Any]]) -> None:
    call = "torch.cuda._compile_kernel('extern \"C\" __global__ void k() {}', 'k')"
    row = judged(f"import torch\nkernel = {call}\nclass ModelNew(torch.nn.Module): pass\n", "cpu")
    assert row["status"] == "UNSUPPORTED", row["message"]
    assert "torch.cuda._compile_kernel is not supported on the CPU emulator" in row["message"]


COMPILING = """
import os, subprocess
import torch
from triton import compile, knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import build
from triton.runtime.jit import JITFunction
import triton.language as tl


def copy(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))


source = ASTSource(JITFunction(copy), {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 64})
kernel = compile(source, target=GPUTarget("cuda", 90, 32))
print("cubin", len(kernel.asm["cubin"]) > 0)
print("cache", os.path.realpath(knobs.cache.dir).startswith(os.path.realpath(os.environ["HOME"])))
print("ldconfig", len(subprocess.check_output(["/sbin/ldconfig", "-p"])) > 0)
stub = '''#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "stub", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_stub(void) { return PyModule_Create(&module); }'''
print("launcher", build.compile_module_from_src(src=stub, name="stub").__name__)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1)
"""


@NEEDS_TRITON
def test_triton_compiles_in_a_confined_worker(judged: Callable[..., dict[str, Any]]) -> None:
    row = judged(COMPILING, "cpu")
    assert row["status"] == "PASSED", row["message"] + row["log"]
    said = [line for line in row["log"].splitlines() if line.startswith(("cubin", "cache", "ldconfig", "launcher"))]
    assert said == ["cubin True", "cache True", "ldconfig True", "launcher stub"]


@pytest.mark.gpu
@NEEDS_TRITON
class TestOnAGpu:
    def test_compiling_is_building(self, judged: Callable[..., dict[str, Any]]) -> None:
        row = judged(HONEST, "cuda:0", case="full")
        assert row["status"] == "PASSED", row["message"]
        assert row["build_s"] > 0
        assert set(row["speedup"]) == {"forward", "forward_backward"}, row["message"]
        late = judged(HONEST, "cuda:0", "--build-timeout", "0.001")
        assert late["status"] == "TIMEOUT"
        assert "--build-timeout" in late["message"]

    def test_the_first_call_of_an_autotuner_counts(self, judged: Callable[..., dict[str, Any]]) -> None:
        assert judged(ADDING, "cuda:0")["status"] == "WRONG_OUTPUT"
        reset = ADDING.replace('key=["n"]', 'key=["n"], reset_to_zero=["y"]')
        row = judged(reset, "cuda:0")
        assert row["status"] == "PASSED", row["message"]

    def test_what_triton_refuses_is_a_build_error(self, judged: Callable[..., dict[str, Any]]) -> None:
        row = judged(HONEST.replace("tl.maximum(value, 0.0)", "math.sqrt(value)"), "cuda:0")
        assert row["status"] == "BUILD_ERROR", row["message"]
        assert "math is not defined" in row["message"]
