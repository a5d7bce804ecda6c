"""Tests what the worker prepares in Triton, in a process of its own, since nothing takes it back."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
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


def test_the_interpreter_counts_and_tunes_nothing() -> None:
    program = """
import json, os
from harness.worker.triton_kernels import Interpreted
found = Interpreted.from_now_on()
import torch, triton
import triton.language as tl

print(json.dumps([dict(found.launches), found.elements, os.environ["TRITON_INTERPRET"],
                  triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]]))
"""
    assert printed(program) == [{}, 0, "1", 132]
