"""Tests builds for the emulator: successful, failed, interrupted and simultaneous ones."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.compilation.elf import undefined_symbols
from harness.compilation.errors import BuildFailed, Unsupported
from harness.emulator import toolchain
from harness.emulator.diagnostics import SourceLocator
from harness.emulator.inline import InlineLoader
from harness.emulator.toolchain import InlineSources, build_key, build_library, build_runtime, find_compiler
from harness.errors import ToolchainError
from tests.emulator.running import start_python

RunSolution = Callable[..., dict[str, Any]]

STABLE = '''\
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cuda_runtime.h>
#include <cstdint>

__global__ void scale_kernel(const float* x, float* y, float factor, int64_t n) {
  __shared__ float tile[64];
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) tile[threadIdx.x] = x[i];
  __syncthreads();
  if (i < n) y[i] = tile[threadIdx.x] * factor;
  /* MORE */
}

extern "C" void launch_scale(const float* x, float* y, double factor, int64_t n) {
  scale_kernel<<<(n + 63) / 64, 64>>>(x, y, static_cast<float>(factor), n);
}
"""

CPP = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

extern "C" void launch_scale(const float* x, float* y, double factor, int64_t n);

torch::stable::Tensor scale(const torch::stable::Tensor& x, double factor) {
  STD_TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  torch::stable::Tensor y = torch::stable::empty_like(x);
  launch_scale(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), factor, x.numel());
  return y;
}

STABLE_TORCH_LIBRARY(scale_ops, m) { m.def("scale(Tensor x, float factor) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(scale_ops, CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""

load_inline(
    name="scale_ops",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    extra_cuda_cflags=["-O3", "--use_fast_math", "-gencode", "arch=compute_80,code=sm_80"],
    no_implicit_headers=True,
    is_python_module=False,
)
x = torch.arange(100.0, device="cuda")
y = torch.ops.scale_ops.scale(x, 2.0)
result = [y.is_cuda, y.tolist() == [2.0 * i for i in range(100)]]
'''


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_a_solution_on_the_stable_abi_builds_runs_and_is_found_again(run_solution: RunSolution) -> None:
    first = run_solution(STABLE)
    assert first.get("result") == [True, True], first
    assert first["events"] == [["begin", "scale_ops"], ["end", "scale_ops"]]
    assert len(first["built"]) == 1
    assert first["reports"] == []
    again = run_solution(STABLE)
    assert again["result"] == [True, True]
    assert again["events"] == []


EXTENSION = '''\
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda() && x.is_contiguous(), #x " must be contiguous and on CUDA")

template <typename scalar_t>
__global__ void add_kernel(torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> x,
                           scalar_t* __restrict__ y, float amount, int n) {
  extern __shared__ unsigned char raw[];
  scalar_t* tile = &reinterpret_cast<scalar_t&>(raw);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) tile[threadIdx.x] = x[i];
  __syncthreads();
  if (i < n) y[i] = tile[threadIdx.x] + static_cast<scalar_t>(amount);
}

torch::Tensor add(torch::Tensor x, double amount) {
  CHECK_INPUT(x);
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = torch::empty({x.size(0)}, torch::TensorOptions().dtype(x.dtype()).device(torch::kCUDA));
  const int n = x.numel(), threads = at::cuda::getCurrentDeviceProperties()->warpSize;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "add", ([&] {
    add_kernel<scalar_t><<<(n + threads - 1) / threads, threads, threads * sizeof(scalar_t),
                           at::cuda::getCurrentCUDAStream()>>>(
        x.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>(), y.data_ptr<scalar_t>(), amount, n);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

CPP = """
#ifdef TORCH_VERSION_MAJOR
#error torch's own headers, which take several times as long
#endif
torch::Tensor add(torch::Tensor x, double amount);
torch::Tensor arithmetic(torch::Tensor x) {
  torch::Tensor y = 1.0 + torch::exp(x) * 2.0 - x / 3 + 1 / (2 - -x);
  y += x[0];
  y *= 2;
  std::ostringstream told;
  told << x.sizes() << x;
  return torch::where((x > 0) & (x != y), y, x % 2);
}
"""
options = dict(cpp_sources=CPP, functions=["add", "arithmetic"])
module = load_inline(name="adding", cuda_sources=CUDA, **options)
x = torch.arange(70, dtype=torch.float64).cuda()
y = (1.0 + torch.exp(x) * 2.0 - x / 3 + 1 / (2 + x) + x[0]) * 2
assert torch.allclose(module.arithmetic(x), torch.where((x > 0) & (x != y), y, x % 2))
result = [torch.equal(module.add(x, 1.0), x + 1), module.__name__, module.add.__doc__.count("add") > 0]
try:
    module.add(x[::2], 1.0)
except RuntimeError as error:
    result.append("x must be contiguous" in str(error))
'''


def test_a_solution_with_torchs_headers_builds_without_them(run_solution: RunSolution) -> None:
    answer = run_solution(EXTENSION)
    assert answer.get("result") == [True, "adding", True, True], answer
    assert answer["reports"] == []


@pytest.fixture
def built(shared_emulator: Path, tmp_path: Path) -> Callable[..., Path]:
    """Builds an extension's library, with precompiled headers."""
    headers = build_runtime(shared_emulator, with_headers=True).headers

    def build(cpp: str = "int f();", **given: Any) -> Path:
        return build_library(InlineSources("m", (cpp,), **given), tmp_path, SourceLocator("s.py", ""), headers=headers)

    return build


def test_cuda_sources_have_the_limits_that_torchs_headers_bring_under_nvcc(built: Callable[..., Path]) -> None:
    cuda = "__global__ void k(float* p) { *p = FLT_MAX; }"
    assert built(cuda_sources=(cuda,)).is_file()


def test_flags_switch_operators_of_16_bit_floats_on(built: Callable[..., Path]) -> None:
    cuda = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void k(__half* h, __nv_bfloat16* b) { h[0] = h[0] * h[1] + __half(2.5f); b[0] = b[0] * b[1]; }
"""
    flags = ("-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__")
    assert built(cuda_sources=(cuda,), extra_cuda_cflags=flags).is_file()
    with pytest.raises(BuildFailed, match="no matching function"):
        built(cuda_sources=(cuda,), extra_cuda_cflags=flags[:1])


def test_torchs_functions_that_choose_a_device_are_there(built: Callable[..., Path]) -> None:
    cuda = """
#include <c10/cuda/CUDAFunctions.h>
int f() {
  c10::DeviceIndex device;
  int count;
  C10_CUDA_CHECK(c10::cuda::GetDeviceCount(&count));
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  C10_CUDA_CHECK(c10::cuda::SetDevice(device));
  return c10::cuda::MaybeSetDevice(-1);
}
"""
    assert built(cuda_sources=(cuda,)).is_file()


def test_handles_of_cublas_may_be_declared_and_functions_are_refused(built: Callable[..., Path]) -> None:
    cuda = "#include <cublasLt.h>\ncublasLtHandle_t handle; cublasComputeType_t kind = CUBLAS_COMPUTE_32F;\n"
    assert built(cuda_sources=(cuda,)).is_file()
    with pytest.raises(Unsupported, match="cuBLAS"):
        built(cuda_sources=(cuda + "int made = cublasLtCreate(&handle);\n",))


def test_a_header_of_torchs_with_launches_may_be_included_for_the_rest(built: Callable[..., Path]) -> None:
    cuda = """
#include <ATen/cuda/CUDAApplyUtils.cuh>
dim3 f(int n) { return dim3(at::ceil_div(n, 4), at::cuda::getApplyBlock().x); }
"""
    assert built(cuda_sources=(cuda,)).is_file()
    with pytest.raises(Unsupported, match="at::cuda::CUDA_tensor_apply2"):
        built(cuda_sources=(cuda + "auto g() { return at::cuda::CUDA_tensor_apply2<float, float>; }\n",))


ALIAS = """
template <typename T> struct Sum { T value; };
template <typename T> struct Row { using Sum = Sum<T>; Sum sum; };
int f() { Row<int> row{{3}}; return row.sum.value; }
"""


def test_a_class_may_give_a_templates_instance_the_templates_name(built: Callable[..., Path]) -> None:
    assert built(cuda_sources=(ALIAS,)).is_file()
    with pytest.raises(BuildFailed, match="invalid conversion"):
        built(cuda_sources=(ALIAS + "int* p = f();\n",))


def test_two_builds_of_one_name_live_in_one_process(run_solution: RunSolution) -> None:
    text = '''
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "same", nullptr, -1, nullptr};
int value() { static int kept = NUMBER; return kept; }
PyMODINIT_FUNC PyInit_same() {
  PyObject* module = PyModule_Create(&definition);
  PyModule_AddIntConstant(module, "value", value());
  return module;
}
"""
def build(number):
    return load_inline("same", SOURCE, extra_cflags=[f"-DNUMBER={number}"], no_implicit_headers=True)
result = [build(1).value, build(2).value, build(1).value]
'''
    answer = run_solution(text)
    assert answer.get("result") == [1, 2, 1], answer
    assert len(answer["built"]) == 2


def test_a_syntax_error_names_the_solutions_own_line(run_solution: RunSolution) -> None:
    text = STABLE.replace("  __syncthreads();", "  __syncthreads()  // no semicolon")
    answer = run_solution(text)
    expected = line_of(text, "no semicolon")
    assert re.search(rf"solution\.py:({expected}|{expected + 1}): error: expected ';'", answer["failed"]), answer
    assert "cuda.cu" not in answer["failed"]
    assert answer["events"][-1] == ["end", "scale_ops"]


def test_an_unknown_name_shows_its_source_line(run_solution: RunSolution) -> None:
    text = STABLE.replace("* factor;", "* facto;")
    answer = run_solution(text)
    assert f"solution.py:{line_of(text, '* facto;')}: error: 'facto'" in answer["failed"]
    assert "y[i] = tile[threadIdx.x] * facto;" in answer["failed"]


@pytest.mark.parametrize(
    ("part", "construct"),
    [
        ('asm volatile("tcgen05.wait::ld.sync.aligned;");', "inline PTX (tcgen05.wait::ld.sync.aligned)"),
        ("cublasHandle_t handle;", "cuBLAS"),
        ("} template <int n> __global__ void __cluster_dims__(n, 1, 1) pair() {", "this form of __cluster_dims__"),
    ],
)
def test_what_the_emulator_refuses_is_named_with_its_line(run_solution: RunSolution, part: str, construct: str) -> None:
    text = STABLE.replace("/* MORE */", part)
    answer = run_solution(text)
    named, file, line, remedy = answer["unsupported"]
    assert named == construct
    assert Path(file).name == "solution.py"
    assert line == line_of(text, part)
    assert remedy


def test_an_unsupported_header_is_named_with_the_line_that_includes_it(run_solution: RunSolution) -> None:
    text = STABLE.replace("#include <cstdint>", "#include <cub/device/device_adjacent_difference.cuh>", 1)
    named, file, line, remedy = run_solution(text)["unsupported"]
    assert "CUB" in named.upper()
    assert Path(file).name == "solution.py"
    assert line == line_of(text, "cub/device")
    assert remedy


def test_guarded_ptx_takes_the_plain_branch(run_solution: RunSolution) -> None:
    guarded = '\n#ifdef __CUDA_ARCH__\n  asm volatile("bar.sync 0;");\n#else\n  __syncthreads();\n#endif\n'
    answer = run_solution(STABLE.replace("/* MORE */", guarded))
    assert answer.get("result") == [True, True], answer


def loader(tmp_path: Path) -> InlineLoader:
    return InlineLoader("solution.py", "", {}, tmp_path, lambda *_: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"functions": ["__global__ void k(float* x)"]}, "functions must hold names of C"),
        ({"functions": 3}, "functions must be a name, a list of names or a dict"),
        ({"functions": [3]}, "functions must hold"),
        ({"cpp_sources": 3}, "cpp_sources must be a string or a list of strings, got int"),
        ({"cuda_sources": ["", None]}, "cuda_sources must be a string or a list of strings, got a list holding"),
        ({"extra_cflags": [3]}, "extra_cflags must be"),
        ({"name": "no-identifier"}, "must be a Python identifier"),
        ({"sycl_sources": "x"}, "SYCL"),
        ({"cpp_sources": [], "no_implicit_headers": True}, "no source given"),
    ],
)
def test_arguments_that_make_no_sense_are_a_failed_build(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"name": "x", "cpp_sources": "int f();", **arguments}
    with pytest.raises(BuildFailed, match=re.escape(message)):
        loader(tmp_path).load_inline(**given)


def test_a_missing_file_is_a_failed_build(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"nothing\.cu cannot be read.*A solution is one file"):
        loader(tmp_path).load("x", [str(tmp_path / "nothing.cu")])


PLAIN = InlineSources(
    name="plain", cpp_sources=('extern "C" int f() { return 1; }',), no_implicit_headers=True, is_python_module=False
)

BUILD_PLAIN = """
import pathlib, sys
from harness.emulator.diagnostics import SourceLocator
from harness.emulator.toolchain import InlineSources, build_library
sources = InlineSources("plain", ("extern \\"C\\" int f() { return 1; }",), no_implicit_headers=True)
print(build_library(sources, pathlib.Path(sys.argv[1]), SourceLocator("s.py", ""), key="plain"))
"""


def test_two_processes_build_the_same_at_once(tmp_path: Path) -> None:
    builders = [start_python(BUILD_PLAIN, tmp_path) for _ in range(2)]
    ended = [(*builder.communicate(), builder.returncode) for builder in builders]
    assert [code for *_, code in ended] == [0, 0], ended
    assert [path.name for path in tmp_path.iterdir()] == ["plain.so"]


def test_a_killed_build_takes_its_compiler_along_and_the_next_one_succeeds(tmp_path: Path) -> None:
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    stuck = tmp_path / "stuck-compiler"
    # Holds the pipe open for as long as it lives, its child included.
    stuck.write_text(
        '#!/bin/sh\ncase " $* " in *" -c "*) ;; *) exec g++ "$@" ;; esac\n'
        f'exec 9>"{pipe}"\necho started >&9\n( sleep 60; echo survived >&9 )\n'
    )
    stuck.chmod(0o755)
    out_dir = tmp_path / "out"
    builder = start_python(BUILD_PLAIN, out_dir, CXX=str(stuck))
    with pipe.open() as alive:
        assert alive.readline() == "started\n"
        builder.send_signal(signal.SIGKILL)
        assert alive.read() == ""
    builder.communicate()
    left = [path for path in out_dir.iterdir() if path.is_dir()]
    assert len(left) == 1
    os.utime(left[0], (0, 0))
    library = build_library(PLAIN, out_dir, SourceLocator("s.py", ""), key="plain")
    assert [path.name for path in out_dir.iterdir()] == [library.name]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    sources = replace(PLAIN, cpp_sources=("int f( { }",))
    with pytest.raises(BuildFailed, match=r"<cpp_sources\[0\]>:1: error"):
        build_library(sources, tmp_path, SourceLocator("s.py", ""))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"cpp_sources": ("int g();",)},
        {"cuda_sources": ("",)},
        {"functions": {"f": "f"}},
        {"extra_cflags": ("-DX",)},
        {"extra_cuda_cflags": ("-DX",)},
        {"extra_ldflags": ("-lm",)},
        {"extra_include_paths": ("/x",)},
        {"no_implicit_headers": False},
        {"is_python_module": True},
        {"with_pytorch_error_handling": False},
    ],
)
def test_everything_that_decides_a_build_is_in_its_key(change: dict[str, Any]) -> None:
    assert build_key(replace(PLAIN, **change), "fast") != build_key(PLAIN, "fast")
    assert build_key(PLAIN, "check") != build_key(PLAIN, "fast")
    assert build_key(replace(PLAIN), "fast") == build_key(PLAIN, "fast")


def test_torchs_cpp_runtime_is_used_where_the_compiler_would_link_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "g++ -static-libstdc++")  # as where libstdc++.a is the only one that is found
    throws = '#include <stdexcept>\nint f() { throw std::runtime_error(""); }'
    library = build_library(replace(PLAIN, cpp_sources=(throws,)), tmp_path, SourceLocator("s.py", ""))
    assert {"__cxa_throw", "__gxx_personality_v0"} <= (undefined_symbols(library) or frozenset())


def test_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_compiler().version
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(ToolchainError, match=r"CXX='no-such-compiler -O1'.*apt-get install g\+\+"):
        find_compiler()
    old = tmp_path / "old-compiler"
    old.write_text('#!/bin/sh\ncase "$*" in --version) echo "g++ 7.5.0" ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(ToolchainError, match=r"g\+\+ 7\.5\.0.*C\+\+20"):
        find_compiler()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"apt-get install g\+\+.*dnf install gcc-c\+\+.*gxx"):
        find_compiler()


def test_several_that_need_the_runtime_build_it_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builds: list[Path] = []

    def compile_slowly(compiler: object, torch: object, scratch: Path) -> None:
        builds.append(scratch)
        (scratch / "built").mkdir()
        time.sleep(0.2)
        for name in ("libcuemu.so", "libcuemu_torch.so"):
            (scratch / "built" / name).write_text("")

    monkeypatch.setattr(toolchain, "_compile_runtime", compile_slowly)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(toolchain.build_runtime, [tmp_path] * 3))
    assert len(builds) == 1
    assert len({libraries.core for libraries in found}) == 1
    assert found[0].core.is_file()
