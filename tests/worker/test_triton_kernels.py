"""Tests what the worker prepares in Triton, in a process of its own, since nothing takes it back."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton: pip install triton numpy"),
]


def printed(program: str) -> Any:
    """Runs a program and returns the JSON value in its last line."""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def test_nested_builds_are_told_once() -> None:
    program = """
import json
from harness.worker.triton_kernels import note_builds
events = []
note_builds(lambda event, name: events.append(event))
import triton.compiler
from triton.runtime import build
from triton.runtime.autotuner import Autotuner, Config

def refused():
    try:
        triton.compiler.compile(None, target=None)
    except Exception:
        events.append("refused")

def kernel(a):
    pass

class Kernel:
    fn = staticmethod(kernel)
    def run(self, *args, **kwargs):
        refused()

refused()
tuned = Autotuner(Kernel(), ["a"], [Config({}), Config({}, num_warps=8)], [], None, None,
                  do_bench=lambda call, quantiles: [call(), 0.0, 0.0])
tuned.nargs = {}
tuned._bench(config=tuned.configs[0])
print(json.dumps(events))
"""
    assert printed(program) == ["begin", "end", "refused", "begin", "refused", "end"]


KERNELS = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def scaled(x, y, n, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0) < 99
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row & (at < n)
    tl.store(y + at, tl.load(x + at, mask=mask) * factor.to(tl.float32), mask=mask)

@triton.jit
def misnamed(x):
    tl.store(x, tl.no_such_function(x))

@triton.jit
def misshaped(x):
    tl.store(x + tl.arange(0, 4) + tl.arange(0, 8), 0.0)

@triton.jit
def assembled(x):
    tl.store(x, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x)], tl.float32, True, 1))
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], Any]:
    """Runs lines behind the kernels above, which are interpreted."""
    (tmp_path / "kernels.py").write_text(KERNELS)

    def ran(lines: str) -> Any:
        before = f"import json, os, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        interpreting = "from harness.worker.triton_kernels import Interpreted\nfound = Interpreted.from_now_on()\n"
        return printed(f"{before}{interpreting}import torch\nfrom kernels import *\n{lines}")

    return ran


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs NumPy: pip install triton numpy")
def test_the_interpreter_counts_takes_the_first_configuration_and_knows_a_device(run: Callable[[str], Any]) -> None:
    found = run("""
x = torch.arange(6.0)
y = torch.zeros(6)
scaled[lambda meta: (triton.cdiv(6, meta["BLOCK"]),)](x, y, 6, 0.5)
count = triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
print(json.dumps([y.tolist(), dict(found.launches), found.elements, os.environ["TRITON_INTERPRET"], count]))
""")
    halves = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert found == [halves, {"scaled": 1}, 2 * 2 * 4, "1", 132]  # two programs load and store blocks of four


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs NumPy: pip install triton numpy")
def test_a_fault_of_a_kernel_is_told_from_a_limit_of_the_interpreter(run: Callable[[str], Any]) -> None:
    found = run("""
from harness.worker.failures import kind_of
kinds = []
for kernel in (misnamed, misshaped, assembled):
    try:
        kernel[(1,)](torch.zeros(8))
    except Exception as error:
        kinds.append(kind_of(error, "runtime"))
kinds.append(kind_of(ModuleNotFoundError("No module", name="cupy.cuda"), "load"))
try:
    triton.compiler.compile(None, target=None)
except Exception as error:
    kinds.append(kind_of(error, "runtime"))
from triton.compiler.errors import CompileTimeAssertionFailure
kinds.append(kind_of(CompileTimeAssertionFailure("", None, "static_assert"), "runtime"))
print(json.dumps(kinds))
""")
    assert found == ["runtime", "runtime", "unsupported", "unsupported", "runtime", "build"]
