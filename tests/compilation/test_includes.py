"""Tests which missing headers are refused before any compiler runs, and what is left to the compiler."""

from __future__ import annotations

from typing import Any

import pytest

from harness.compilation.errors import BuildFailed
from harness.compilation.includes import check_includes

HEAD = "#include <torch/extension.h>\n#include <cuda_runtime.h>\n#include <vector>\n"
CALL = "void f() { k<<<1, 1>>>(); C10_CUDA_KERNEL_LAUNCH_CHECK(); }\n"


@pytest.mark.parametrize(
    ("source", "header"),
    [
        (HEAD + CALL, "c10/cuda/CUDAException.h"),
        ([HEAD, CALL], "c10/cuda/CUDAException.h"),
        (CALL, "c10/cuda/CUDAException.h"),
        (HEAD + "// #include <c10/cuda/CUDAException.h>\n" + CALL, "c10/cuda/CUDAException.h"),
        (HEAD + "void f() { k<<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>(); }", "ATen/cuda/CUDAContext.h"),
        (HEAD + "void f() { AT_CUDA_CHECK(cudaGetLastError()); }", "ATen/cuda/Exceptions.h"),
    ],
)
def test_a_helper_without_its_header_is_refused(source: Any, header: str) -> None:
    with pytest.raises(BuildFailed, match=f"add #include <{header}>"):
        check_includes("m", source)


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (HEAD, ()),
        (HEAD + "#include <c10/cuda/CUDAException.h>\n" + CALL, ()),
        (HEAD + "#include <ATen/cuda/CUDAContext.h>\n" + CALL, ()),
        (HEAD + "#include <c10/cuda/CUDAStream.h>\n" + CALL, ()),  # it includes the other one
        (HEAD + '#include "mine.h"\n' + CALL, ()),
        (HEAD + "#include MINE\n" + CALL, ()),
        (HEAD + "#include <cutlass/cutlass.h>\n" + CALL, ()),
        (HEAD + "#define C10_CUDA_KERNEL_LAUNCH_CHECK() do {} while (0)\n" + CALL, ()),
        (HEAD + "#if 0\n" + CALL + "#endif\n", ()),
        (HEAD + "void C10_CUDA_KERNEL_LAUNCH_CHECK() {}\n" + CALL, ()),
        (HEAD + "// C10_CUDA_KERNEL_LAUNCH_CHECK();\nvoid f() {}\n", ()),
        (HEAD + 'const char* s = "; C10_CUDA_KERNEL_LAUNCH_CHECK();";\n', ()),
        (HEAD + "namespace at { namespace cuda { int getCurrentCUDAStream(); } }\n" + CALL, ()),
        (HEAD + CALL, (["-DC10_CUDA_KERNEL_LAUNCH_CHECK()="],)),
        (HEAD + CALL, (["-include", "mine.h"],)),
        (HEAD + CALL, (None, None, ["/my/include"])),
        (None, ()),
        (3, ()),
    ],
)
def test_whatever_could_declare_it_is_left_to_the_compiler(source: Any, flags: Any) -> None:
    check_includes("m", source, flags)
