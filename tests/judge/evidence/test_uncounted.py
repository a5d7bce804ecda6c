"""Ways to have torch do the work on the emulator while nothing counts it, with an idle kernel of the solution's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.judge.evidence.test_ownership import HONEST, PROBLEM

#: An idle kernel, and a product of torch's that may be called past the dispatcher.
BUILT = """
import os
import shutil
import torch
from torch.utils.cpp_extension import load_inline

CUDA = '''
#include <torch/extension.h>
__global__ void idle() {}
void run() { idle<<<1000, 128>>>(); }
BODY
'''
own = load_inline("own", "void run(); MORE", CUDA, functions=["run" NAMES])
"""
HONEST_BUILD = BUILT.replace("BODY", "").replace("MORE", "").replace(" NAMES", "")
DIRECT_BUILD = (
    BUILT.replace(
        "BODY", "torch::Tensor product(torch::Tensor a, torch::Tensor b) { return at::native::matmul(a, b); }"
    )
    .replace("#include <torch/extension.h>", "#include <torch/extension.h>\n#include <ATen/ops/matmul_native.h>")
    .replace("MORE", "torch::Tensor product(torch::Tensor a, torch::Tensor b);")
    .replace(" NAMES", ', "product"')
)
SWITCHED = """        own.run()
        for switch in (torch.autograd._enable_record_function, torch._C._autograd._enable_record_function):
            switch(False)
        try:
            return torch.tanh(self.linear(x))
        finally:
            switch(True)
"""
EXCHANGED = """        own.run()
        return torch.tanh(own.product(x, self.linear.weight.t()) + self.linear.bias)
"""
#: The new file is a copy, so that a second process that imports the solution can load it.
EXCHANGE = """
shutil.copy(own.__file__, own.__file__ + ".new")
os.replace(own.__file__ + ".new", own.__file__)
"""
#: An idle kernel in either direction.
HOOKED = """        own.run()
        y = torch.tanh(self.linear(x))
        if y.requires_grad:
            y.register_hook(lambda gradient: own.run())
        return y
"""
FORWARD = "        return torch.tanh(self.linear(x))\n"
SOLUTIONS = {
    "switched": HONEST_BUILD + HONEST.replace(FORWARD, SWITCHED),
    "direct": DIRECT_BUILD + HONEST.replace(FORWARD, EXCHANGED),
    "hidden": HONEST_BUILD + EXCHANGE + HONEST.replace(FORWARD, HOOKED),
    "exchanged": DIRECT_BUILD + EXCHANGE + HONEST.replace(FORWARD, EXCHANGED),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, harness: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("uncounted")
    (folder / "problem.py").write_text(PROBLEM)
    for name, text in SOLUTIONS.items():
        (folder / f"{name}.py").write_text(text)
    paths = [folder / f"{name}.py" for name in SOLUTIONS]
    ran = harness("evaluate", *paths, "--problem", folder / "problem.py", "--device", "cpu", "--json")
    assert "Traceback" not in ran.err
    return {Path(row["solution_path"]).stem: row for row in ran.rows}


def told(row: dict[str, Any]) -> str:
    return "\n".join(one["message"] for one in row["findings"] if one["kind"] == "library-operators")


def test_the_switch_of_the_counting_does_nothing(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["switched"]
    assert row["status"] == "PASSED", row["message"]
    assert row["operators"]["forward"] == {"addmm": 1}
    assert "torch's heavy operators ran" in told(row)


def test_a_library_that_was_exchanged_after_it_was_loaded_is_told(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["exchanged"]
    assert row["status"] == "PASSED", row["message"]
    assert "a library that was removed or replaced after it was loaded" in told(row)
    assert row["own_share"] is None


def test_who_must_have_kernels_of_its_own_may_not_hide_what_they_do(
    rows: dict[str, dict[str, Any]], harness: Callable[..., Any]
) -> None:
    known = rows["hidden"]
    assert (known["status"], known["own_share"]) == ("PASSED", None), known["message"]
    assert "nothing tells how much" in next(
        one["message"] for one in known["findings"] if one["kind"] == "no-own-kernel"
    )
    path = Path(known["solution_path"])
    words = ("--problem", path.with_name("problem.py"), "--device", "cpu", "--json", "--require-own-kernel")
    (row,) = harness("evaluate", path, *words).rows
    assert (row["status"], row["rule"]) == ("CHEATED", "no-own-kernel"), row["message"]


def test_an_honest_library_is_there(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["direct"]
    assert row["status"] == "PASSED", row["message"]
    assert "at::native::matmul" in told(row)
    assert "removed or replaced" not in told(row)
    assert 0 < row["own_share"] < 1
