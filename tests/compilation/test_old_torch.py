"""Tests ``--compat``: code for an older torch builds, and code that builds without it stays as it is."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from harness.compilation.cuda import CudaLoader
from harness.compilation.errors import BuildFailed, failed_build
from harness.compilation.nvcc import cuda_home
from harness.compilation.old_torch import COMPAT, removed_names
from harness.emulator.diagnostics import SourceLocator
from harness.emulator.gpu_build import compile_for_gpu
from harness.emulator.sources import InlineSources
from harness.emulator.toolchain import build_key, build_library

FLAGS = ["-O3", "-Xptxas", "-v"]  # the candidate's, and those that show the registers of kernels
OLD = """
#include <THC/THC.h>
#include <THC/THCAtomics.cuh>
extern THCState *state;
#define CHECK_CUDA(x) AT_CHECK(x.type().is_cuda(), #x " must be on a GPU")

template <typename scalar_t>
__global__ void twice_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
  int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

torch::Tensor twice(torch::Tensor x) {
  CHECK_CUDA(x);
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.type(), "twice", ([&] {
    twice_kernel<scalar_t><<<THCCeilDiv<int64_t>(x.numel(), 32), 32, 0, THCState_getCurrentStream(state)>>>(
        x.data<scalar_t>(), y.data<scalar_t>(), x.numel());
  }));
  THCudaCheck(cudaGetLastError());
  return y;
}
"""
#: Code that asks for what ``--compat`` would declare.
ASKING = """
#ifdef AT_CHECK
#error AT_CHECK exists
#endif
int f() { return 0; }
"""
NOWHERE = SourceLocator("solution.py", "")
DISPATCH = "a.h:36:63: error: cannot convert 'const at::DeprecatedTypeProperties' to 'c10::ScalarType'"
NVCC_DISPATCH = (
    'm.cu(4): error: no suitable conversion function from "const at::DeprecatedTypeProperties" to "c10::ScalarType"'
)


def sources(text: str) -> InlineSources:
    return InlineSources("m", cuda_sources=(text,))


@pytest.mark.slow
def test_code_for_an_older_torch_builds_with_compat(tmp_path: Path) -> None:
    assert build_library(sources(OLD), tmp_path, NOWHERE, compat=True).is_file()


@pytest.mark.slow
def test_what_builds_without_compat_does_not_see_it(tmp_path: Path) -> None:
    asking = InlineSources("m", cuda_sources=(ASKING,), no_implicit_headers=True)
    assert build_library(asking, tmp_path, NOWHERE, compat=True).is_file()
    old = replace(asking, cuda_sources=(ASKING + "void g() { AT_CHECK(true); }",))
    with pytest.raises(BuildFailed, match="`--compat` declares that again"):
        build_library(old, tmp_path, NOWHERE)
    with pytest.raises(BuildFailed, match="AT_CHECK exists"):  # only after a failure
        build_library(old, tmp_path, NOWHERE, compat=True)


def test_a_build_with_compat_has_a_key_of_its_own() -> None:
    assert (
        build_key(sources(OLD), "fast", True)
        != build_key(sources(OLD), "fast")
        == build_key(sources(OLD), "fast", False)
    )


@pytest.mark.slow
@pytest.mark.skipif(cuda_home() is None, reason="no nvcc")
def test_nvcc_compiles_code_for_an_older_torch(tmp_path: Path) -> None:
    def compiled(compat: bool) -> Any:
        return compile_for_gpu([sources(OLD)], NOWHERE, "sm_90", tmp_path, lambda *_: None, compat=compat)

    found = compiled(compat=True)
    assert (found.fault, found.error) == ("", "")
    assert {kernel.name.split("<")[0].split()[-1] for kernel in found.kernels} == {"twice_kernel"}
    assert compiled(compat=False).fault


@pytest.mark.parametrize(
    ("log", "names"),
    [
        (DISPATCH, ["an AT_DISPATCH macro on x.type()"]),
        (NVCC_DISPATCH, ["an AT_DISPATCH macro on x.type()"]),
        ("m.cpp:3:3: error: 'AT_CHECK' was not declared in this scope", ["AT_CHECK"]),
        ('m.cu(3): error: identifier "AT_CHECK" is undefined', ["AT_CHECK"]),
        ("m.cu:1:10: fatal error: THC/THC.h: No such file or directory", ["THC"]),
        ("m.cu:1:10: fatal error: THC/THCTensor.h: No such file or directory", []),
        ("m.cu:9:1: note: in expansion of macro 'AT_CHECK'", []),
        ("m.cu:9:1: error: 'MY_AT_CHECKS' was not declared in this scope", []),
        ("error: cannot convert 'at::DeprecatedTypeProperties' to 'int'", []),
    ],
)
def test_only_what_compat_mends_is_recognised(log: str, names: list[str]) -> None:
    assert removed_names(log) == names
    assert ("--compat" in failed_build("m does not build", log).message) == bool(names)


Build = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds for a GPU with a ``load_inline`` that compiles nothing; what it was called with."""
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    for name in ("CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "LIBRARY_PATH"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    monkeypatch.setenv("CXX", "true")  # knows no macros at all
    monkeypatch.setattr(cpp_extension, "JIT_EXTENSION_VERSIONER", cpp_extension.ExtensionVersioner())

    def run(*logs: str, compat: bool) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def load_inline(
            name: str,
            cpp_sources: list[str],
            cuda_sources: list[str],
            extra_cflags: list[str] | None = None,
            extra_cuda_cflags: list[str] | None = None,
            extra_include_paths: list[str] | None = None,
            build_directory: str = "",
            extra_ldflags: list[str] | None = None,
            verbose: bool = False,
        ) -> str:
            is_lean = bool(extra_include_paths)
            flags = [*(extra_cflags or []), *(extra_cuda_cflags or [])]
            versions = cpp_extension.JIT_EXTENSION_VERSIONER
            version = versions.bump_version_if_changed(name, [], [[str(len(calls))]], "", True, True, True, False)
            calls.append({"lean": is_lean, "flags": flags, "cpp": list(cpp_sources), "version": version})
            cpp_sources.append("bindings")  # as torch does with a list
            if len(calls) <= len(logs):
                cause = subprocess.CalledProcessError(1, "ninja", output=logs[len(calls) - 1].encode())
                raise RuntimeError(f"Error building extension '{name}'") from cause
            return "loaded"

        monkeypatch.setattr(cpp_extension, "load_inline", load_inline)
        solution = tmp_path / "solution.py"
        solution.write_text("")
        out = Path(tempfile.mkdtemp(dir=tmp_path))
        loader = CudaLoader(solution, {}, out, lambda *_: None, capability=(9, 0), compat=compat)
        arguments = {"cpp_sources": ["int f();"], "cuda_sources": ["#include <torch/types.h>"]}
        assert loader.load_inline(name="m", extra_cuda_cflags=["-O3"], **arguments) == "loaded"
        return calls

    return run


def test_a_gpu_build_repeats_with_compat_what_needs_it(build: Build) -> None:
    first, second = build(NVCC_DISPATCH, compat=True)
    assert [first["lean"], second["lean"]] == [True, True]
    assert first["flags"] == FLAGS
    assert [flag for flag in second["flags"] if str(COMPAT) in flag]
    assert second["cpp"] == first["cpp"]
    assert second["version"] == first["version"] == 0


def test_a_gpu_build_repeats_nothing_else_with_compat(build: Build) -> None:
    assert [call["flags"] for call in build(compat=True)] == [FLAGS]
    assert [call["flags"] for call in build("m.cu(1): error: no", compat=True)] == [FLAGS] * 2  # lean, then plain
    with pytest.raises(BuildFailed, match="`--compat` declares that again"):
        build(NVCC_DISPATCH, NVCC_DISPATCH, compat=False)
