"""Tests which branch of ``#if __CUDA_ARCH__`` a rewritten source keeps."""

from __future__ import annotations

import subprocess

import pytest

from harness.emulator.compiler import find_compiler
from harness.emulator.rewrite import rewrite_cuda


@pytest.mark.parametrize(
    ("branches", "taken"),
    [
        ("#if __CUDA_ARCH__ >= 800\nNEW\n#endif", "NEW"),
        ("#ifdef __CUDA_ARCH__\nNEW\n#endif", "NEW"),
        ("#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900)\nNEW\n#endif", "NEW"),
        ("#if defined __CUDA_ARCH__ && \\\n  __CUDA_ARCH__ < 700\nOLD\n#endif", ""),
        ("#if __CUDA_ARCH__ >= 1000\nNEWEST\n#elif __CUDA_ARCH__ >= 700\nNEW\n#endif", "NEW"),
        ("#ifdef __CUDA_ARCH__\n#if __CUDA_ARCH__ < 600\nOLD\n#endif\nNEW\n#endif", "NEW"),
        ("#if __CUDA_ARCH__ < 800\nOLD\n#else\nNEW\n#endif", "NEW"),
        ("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\nNEW\n#else\nTRAP\n#endif", "NEW"),
        ("#ifdef __CUDA_ARCH__\n#if __CUDA_ARCH__ >= 900\nNEW\n#endif\n#else\nPLAIN\n#endif", "PLAIN"),
        ("#ifdef __CUDA_ARCH__\nNEW\n#else\nPLAIN\n#endif", "PLAIN"),
        ("#ifndef __CUDA_ARCH__\nHOST\n#endif", "HOST"),
        ("#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900\nBOTH\n#endif", "BOTH"),
        ("#if defined(OTHER_CUDA_ARCH__)\nNEW\n#endif", ""),
    ],
)
def test_a_branch_by_architecture_is_that_of_compute_capability_9(branches: str, taken: str) -> None:
    text = rewrite_cuda(f"{branches}\n")
    assert len(text.splitlines()) == len(branches.splitlines())
    command = [*find_compiler().command, "-E", "-P", "-x", "c++", "-"]
    assert subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout.strip() == taken


@pytest.mark.parametrize(
    ("head", "taken"),
    [
        ("__global__ void k()", "NEW"),
        ("DEVICE float f(float x)", "NEW"),
        ("__host__ __device__ float f(float x)", "NEW"),
        ("struct alignas(16) S { __device__ auto f() const -> int", "NEW"),
        ("namespace n { template <typename T> void launch(T* x)", "OLD"),
    ],
)
def test_with_an_else_a_branch_in_a_host_function_is_for_hosts(head: str, taken: str) -> None:
    branches = "#if __CUDA_ARCH__ >= 900\nNEW\n#else\nOLD\n#endif\n"
    text = rewrite_cuda(f"#define DEVICE inline __device__\nvoid other() {{ }}\n{head} {{ if (1) {{\n{branches}}} }}\n")
    command = [*find_compiler().command, "-E", "-P", "-x", "c++", "-"]
    output = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout
    assert [word for word in ("NEW", "OLD") if word in output] == [taken]
