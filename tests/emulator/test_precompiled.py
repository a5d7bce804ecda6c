"""Tests builds that begin with precompiled headers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.emulator import toolchain
from harness.emulator.diagnostics import SourceLocator
from harness.emulator.toolchain import InlineSources, RuntimeLibraries, build_library, build_runtime
from harness.executors.tools import tools_for
from tests.conftest import Ran

CUDA = """\
__global__ void twice(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}

torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  twice<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
CPP = "torch::Tensor forward(torch::Tensor x);"
SOLUTION = f"""\
import torch
from torch.utils.cpp_extension import load_inline

module = load_inline("twice", {CPP!r}, r'''{CUDA}''', functions=["forward"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x)
"""
PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + x

def get_inputs():
    return [torch.randn(7, 129)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def runtime(shared_emulator: Path, tmp_path: Path) -> RuntimeLibraries:
    """The emulator's runtime in a folder of the test, whose headers' texts are errors: only the precompiled ones do."""
    known = build_runtime(shared_emulator, with_headers=True)
    folder = tmp_path / "home" / "emulator" / known.core.parent.name
    folder.mkdir(parents=True)
    for library in (known.core, known.torch):
        shutil.copy(library, folder / library.name)
    own = RuntimeLibraries(folder / known.core.name, folder / known.torch.name)
    own.headers.mkdir()
    for header in known.headers.glob("*.gch"):
        os.link(header, own.headers / header.name)
        (own.headers / header.stem).write_text("#error read as text\n")
    return own


def build(runtime: RuntimeLibraries, folder: Path, cuda: str = CUDA, **given: Any) -> Path:
    sources = InlineSources("twice", (CPP,), (cuda,), {"forward": ""}, **given)
    return build_library(sources, folder, SourceLocator("s.py", ""), headers=runtime.headers)


def test_both_units_begin_with_precompiled_headers(runtime: RuntimeLibraries, tmp_path: Path) -> None:
    assert build(runtime, tmp_path).is_file()


def test_a_unit_without_torchs_headers_begins_with_the_prelude(runtime: RuntimeLibraries, tmp_path: Path) -> None:
    plain = "#include <cuda_runtime.h>\n__global__ void set(float* x) { x[0] = 1.0f; }\n"
    sources = InlineSources("plain", (), (plain,), None, no_implicit_headers=True, is_python_module=False)
    for mode in ("fast", "check"):
        where = SourceLocator("s.py", "")
        assert build_library(sources, tmp_path, where, None, mode, headers=runtime.headers).is_file()


def test_an_unknown_macro_keeps_precompiled_headers(runtime: RuntimeLibraries, tmp_path: Path) -> None:
    assert build(runtime, tmp_path, extra_cuda_cflags=("-DMINE=1",), extra_cflags=("-DMINE=1",)).is_file()


def test_what_a_unit_names_is_added_to_a_precompiled_header(runtime: RuntimeLibraries, tmp_path: Path) -> None:
    bound = CUDA.replace("forward", "doubled").replace("return y;", "return torch::relu(y) - torch::relu(-y);")
    bound += "\nint words(py::str text) { return static_cast<int>(py::len(text)); }\n"
    bound += "\ntorch::Tensor forward(torch::Tensor x) { return doubled(x); }\n"
    assert build(runtime, tmp_path, bound).is_file()


def test_a_unit_that_includes_the_headers_itself_does_without(runtime: RuntimeLibraries, tmp_path: Path) -> None:
    own = "#define CHANGED 1\n#include <torch/types.h>\n#include <cuda_runtime.h>\n" + CUDA
    cpp = "#include <torch/extension.h>\n" + CPP
    sources = InlineSources("twice", (cpp,), (own,), {"forward": ""}, no_implicit_headers=True)
    (runtime.headers / "host.h").write_text("#include <torch/extension.h>\n")
    assert build_library(sources, tmp_path, SourceLocator("s.py", ""), headers=runtime.headers).is_file()


def test_a_confined_worker_reaches_them(harness: Callable[..., Ran], runtime: RuntimeLibraries, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(SOLUTION)
    (tmp_path / "problem.py").write_text(PROBLEM)
    words = ("--problem", tmp_path / "problem.py", "--device", "cpu", "--json", "--forward-only")
    ran = harness("evaluate", tmp_path / "twice.py", *words, HARNESS_HOME=str(tmp_path / "home"))
    assert [row["status"] for row in ran.rows] == ["PASSED"], ran.out + ran.err


def test_workers_hear_only_of_headers_that_are_there(runtime: RuntimeLibraries, tmp_path: Path) -> None:
    """A worker may read what was there when it began; another process with this home may make headers any time."""
    there = runtime.headers.rename(tmp_path / "later")
    assert tools_for("cpu", tmp_path / "home").libraries.keys() == {"core", "torch"}
    there.rename(runtime.headers)
    assert tools_for("cpu", tmp_path / "home").libraries["headers"] == str(runtime.headers)


def test_only_the_newest_runtime_keeps_its_headers(
    shared_emulator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def precompiled(compiler: object, torch: object, scratch: Path) -> Path:
        (scratch / "headers").mkdir()
        (scratch / "headers" / "fast.h.gch").touch()
        return scratch / "headers"

    monkeypatch.setattr(toolchain, "precompile", precompiled)  # which takes a minute
    for number in (1, 2):
        headers = tmp_path / f"runtime-{number}" / "headers"
        headers.mkdir(parents=True)
        (headers / "fast.h.gch").touch()
        os.utime(headers, (number, number))
    known = build_runtime(shared_emulator)
    mine = tmp_path / known.core.parent.name
    mine.mkdir()
    for library in (known.core, known.torch):
        shutil.copy(library, mine / library.name)
    assert build_runtime(tmp_path, with_headers=True).headers == mine / "headers"
    kept = {path.parent.parent.name for path in tmp_path.glob("runtime-*/headers/*.gch")}
    assert kept == {"runtime-2", mine.name}


def test_headers_that_another_process_has_precompiled_meanwhile_are_taken(
    shared_emulator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = build_runtime(shared_emulator)
    mine = tmp_path / known.core.parent.name
    mine.mkdir()
    for library in (known.core, known.torch):
        shutil.copy(library, mine / library.name)

    def precompiled(compiler: object, torch: object, scratch: Path) -> Path:
        for folder in (mine, scratch):
            (folder / "headers").mkdir()
            (folder / "headers" / "fast.h.gch").write_text(folder.name)
        return scratch / "headers"

    monkeypatch.setattr(toolchain, "precompile", precompiled)  # which takes a minute
    headers = build_runtime(tmp_path, with_headers=True).headers
    assert (headers / "fast.h.gch").read_text() == mine.name
