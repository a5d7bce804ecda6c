"""Tests how compiler messages name the solution's own lines."""

from __future__ import annotations

import pytest

from harness.compilation.errors import BuildFailed, Unsupported
from harness.emulator.diagnostics import SourceLocation, SourceLocator, build_error

SOLUTION = '''\
import torch
A = """
int a;
int b;
"""
B = "int c;" + """int d;
int e;"""
ESCAPED = "int f;\\nint g;\\nint h;"
'''


def test_sources_are_located_in_the_solution() -> None:
    locator = SourceLocator("s.py", SOLUTION)
    assert locator.places("\nint a;\nint b;\n", "<x>") == [SourceLocation("s.py", line) for line in (2, 3, 4, 5)]
    joined = "\nint a;\nint b;\n" + "int d;\nint e;"
    assert locator.places(joined, "<x>") == [SourceLocation("s.py", line) for line in (2, 3, 4, 6, 7)]
    assert locator.places("int f;\nint g;\nint h;", "<x>") == [SourceLocation("<x>", line) for line in (1, 2, 3)]
    assert locator.places("unknown", "<x>") == [SourceLocation("<x>", 1)]
    assert SourceLocator("s.py", "not python (").places("a\nb", "<x>") == [
        SourceLocation("<x>", 1),
        SourceLocation("<x>", 2),
    ]


def test_what_a_template_refuses_is_told_where_it_is_used() -> None:
    log = "In file included from s.py:3:\n/x/mma.h: In instantiation of 'class fragment<u4>':\n"
    log += "s.py:5:9:   required from here\n"
    log += "/x/mma.h:9:1: error: static assertion failed: cuemu-unsupported: small integers: use larger ones\n"
    refusal = build_error(log, SourceLocator("s.py", SOLUTION))
    assert isinstance(refusal, Unsupported)
    assert (refusal.construct, refusal.line, refusal.remedy) == ("small integers", 5, "use larger ones")


def test_long_logs_are_cut_to_the_telling_lines() -> None:
    log = "In file included from s.py:3:\n/x/deep.h:9:1: error: bad T\n"
    log += "".join(f"s.py:{line}:1: error: wrong {line}\n" for line in range(4, 40))
    failure = build_error(log, SourceLocator("s.py", SOLUTION))
    assert isinstance(failure, BuildFailed)
    assert failure.message.splitlines()[:2] == ["s.py:3: error: bad T (in deep.h:9)", "    int a;"]
    assert len(failure.message.splitlines()) < 10
    assert failure.log == log


def test_a_header_of_cudas_that_is_missing_is_unsupported() -> None:
    log = "s.py:5:10: fatal error: cutlass/gemm/device/gemm.h: No such file or directory\n"
    refusal = build_error(log, SourceLocator("s.py", SOLUTION))
    assert isinstance(refusal, Unsupported)
    assert (refusal.construct, refusal.line) == ("<cutlass/gemm/device/gemm.h>", 5)
    other = build_error(log.replace("cutlass/gemm/device/gemm.h", "own.h"), SourceLocator("s.py", SOLUTION))
    assert isinstance(other, BuildFailed)


@pytest.mark.parametrize(
    ("message", "construct"),
    [
        ("'__isConstant' was not declared in this scope", "__isConstant"),
        ("'__nv_atomic_load_n' was not declared in this scope; did you mean 'x'?", "__nv_atomic_load_n"),
        ("there are no arguments to '__pm0' that depend on a template parameter, so ...", "__pm0"),
        ("'cudaGraphCreate' was not declared in this scope", "cudaGraphCreate (CUDA graphs)"),
        ("'cudaGraphExec_t' does not name a type", "cudaGraphExec_t (CUDA graphs)"),
        ("'tex2D' was not declared in this scope", "tex2D (textures)"),
        ("'cudaLaunchKernelEx' was not declared in this scope", "cudaLaunchKernelEx (a launch in a C++ source)"),
        ("use of undeclared identifier 'cudaMemPoolCreate'", "cudaMemPoolCreate (memory pools)"),
        ("'cub::DeviceMemcpy' has not been declared", "cub::DeviceMemcpy"),
        ("'cub' has not been declared", "CUB"),
        ("'set_union' is not a member of 'thrust'", "thrust::set_union"),
    ],
)
def test_a_name_of_cudas_that_the_emulator_lacks_is_unsupported(message: str, construct: str) -> None:
    refusal = build_error(f"s.py:4:9: error: {message}\n", SourceLocator("s.py", SOLUTION))
    assert isinstance(refusal, Unsupported)
    assert (refusal.construct, refusal.line) == (construct, 4)
    assert refusal.remedy


@pytest.mark.parametrize("name", ["__isConstants", "tex", "any", "cudaMallocs", "my_surf2D", "double2"])
def test_a_name_that_cuda_does_not_declare_is_the_authors_mistake(name: str) -> None:
    failure = build_error(
        f"s.py:4:9: error: '{name}' was not declared in this scope\n", SourceLocator("s.py", SOLUTION)
    )
    assert isinstance(failure, BuildFailed)


@pytest.mark.parametrize(
    "message", ["'{}' is not a member of 'at::cuda'", "no member named '{}' in namespace 'at::cuda'"]
)
@pytest.mark.parametrize(
    ("name", "is_torchs"),
    [("getPinnedMemoryAllocator", True), ("getCurrentCUDAStream", False), ("getCurrentCUDAStreams", False)],
)
def test_a_name_of_torchs_that_the_emulator_lacks_is_unsupported(message: str, name: str, is_torchs: bool) -> None:
    refusal = build_error(f"s.py:4:9: error: {message.format(name)}\n", SourceLocator("s.py", SOLUTION))
    assert isinstance(refusal, Unsupported if is_torchs else BuildFailed)
    assert name in str(refusal)
