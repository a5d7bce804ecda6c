"""Tests that ``evaluate --check`` compiles with nvcc: figures, refusals and failures that prove nothing.

Most of it against a stand-in for nvcc that prints what real ones printed, so that a machine without one tests it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.compilation.nvcc import cuda_home
from harness.compilation.ptxas import compiled_kernels, demangled
from harness.emulator.gpu_build import MAX_LOG_CHARACTERS

Harness = Callable[..., Any]
Rows = dict[str, dict[str, Any]]
REPOSITORY = Path(__file__).resolve().parents[2]
HONEST = REPOSITORY / "tests" / "faults" / "group_norm.py"
#: Prints the answer that the source names in a line of its own, with the solution's path where it has a mark.
NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; fi
for word; do case $word in *.cu) source=$word;; esac; done
answer=$(dirname "$0")/$(sed -n 's|^// answer: ||p' "$source")
solution=$(sed -n 's|^#line [0-9]* "\\(.*\\)"$|\\1|p' "$source" | head -n 1)
case $answer in
  */flags) echo "$@";;
  */endless) exec sleep 600;;
  */flood) yes "$solution(34): error: one of very many" | head -n 400000;;
esac
[ -f "$answer" ] && sed "s|@SOLUTION@|$solution|" "$answer"
case $(cat "$answer" 2>/dev/null) in *error*|*fatal*) exit 1;; esac
case $answer in */died) exit 139;; */flags|*/flood) exit 1;; esac
exit 0
"""
KERNELS = """\
ptxas info    : 0 bytes gmem, 256 bytes cmem[3]
ptxas info    : Compiling entry function '_ZN34_GLOBAL__N__02fb8928_5_ni_cu_spill1kILi3EEEvPfi' for 'sm_90'
ptxas info    : Function properties for _ZN34_GLOBAL__N__02fb8928_5_ni_cu_spill1kILi3EEEvPfi
    256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 34 registers, used 0 barriers, 256 bytes cumulative stack size
ptxas info    : Compile time = 16.691 ms
ptxas info    : Function properties for _ZN32_INTERNAL_02fb8928_5_ni_cu_spill1gEfi
    48 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'spill' for 'sm_90'
ptxas info    : Function properties for spill
    3024 bytes stack frame, 4864 bytes spill stores, 12036 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 4100+16 bytes smem, 364 bytes cmem[0]
"""
ANSWERS = {
    "kernels": KERNELS,
    "own_error": '@SOLUTION@(34): error: calling a __host__ function("f()") from a __global__ function("k") is not '
    'allowed\n\n@SOLUTION@(34): error: identifier "f" is undefined in device code\n\n@SOLUTION@(37): error: no\n',
    "instantiation": "/usr/include/c++/12/bits/allocator.h(156): error: calling a constexpr __host__ function\n"
    '          detected during:\n            instantiation of "void g(T *) [with T=float]" at line 159 of '
    '/usr/include/a.h\n            instantiation of "void k(T *)" at line 20 of @SOLUTION@\n',
    "shared": "ptxas error   : Entry function '_ZN1a1kILi4EEEvPf' uses too much shared data "
    "(0x13880 bytes, 0xc000 max)\n",
    "library": '@SOLUTION@(34): error: identifier "cublasSgemm" is undefined\n',
    "header": "@SOLUTION@:13:10: fatal error: cublas_v2.h: No such file or directory\ncompilation terminated.\n",
    "host_compiler": "/usr/local/cuda/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions "
    "later than 12 are not supported!\n",
    "arch": "nvcc fatal   : Unsupported gpu architecture 'compute_90'\n",
    "option": "nvcc fatal   : Unknown option '--no-such'\n",
    "killed": "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n",
}


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toolkit whose nvcc answers as the source says."""
    folder = tmp_path_factory.mktemp("toolkit")
    (folder / "bin").mkdir()
    (folder / "include").mkdir()
    (folder / "include" / "cuda_runtime.h").touch()
    (folder / "bin" / "nvcc").write_text(NVCC)
    (folder / "bin" / "nvcc").chmod(0o755)
    for name, text in ANSWERS.items():
        (folder / "bin" / name).write_text(text)
    return folder


def solution(folder: Path, answer: str, name: str = "", before: str = "", **changes: str) -> Path:
    """The honest file with changes, its CUDA naming an answer on a line of its own, the 22nd."""
    text = HONEST.read_text().replace("\n// One block per", f"\n// answer: {answer}\n// One block per", 1)
    for old, new in changes.items():
        text = text.replace(old, new)
    path = folder / f"{name or answer}.py"
    path.write_text(text.replace("import ctypes\n", f"import ctypes\n{before}"))
    return path


LIE = """
from harness.records.kernels import CompiledKernel
from harness.wire.replies import Compiled, Released
from harness.worker import platforms
"""
BOASTS = f"""{LIE}
KERNEL = CompiledKernel("k" * 900, "sm_90" * 99, 1 << 60, 0, 0, 0, 0, None)
SMALL = CompiledKernel("n" * 900, "sm_90" * 99, 7, 0, 0, 0, 0, None)
platforms.compile_for_gpu = lambda *_, **__: Compiled(
    (KERNEL, *[SMALL] * 1500), "machine", "words " * 9000, -5, "k" * 9000, "log" * 400_000, float("nan")
)
"""
ANSWERS_OUT_OF_TURN = f"{LIE}\nplatforms.compile_for_gpu = lambda *_, **__: Released()\n"


@pytest.fixture(scope="module")
def judged(harness: Harness, stand_in: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The records of all solutions, by their file's stem, judged in one command."""
    folder = tmp_path_factory.mktemp("answers")
    flags = {"no_implicit_headers=True,": 'no_implicit_headers=True, extra_cuda_cflags=["-O3 --ptxas-options=-v", '
             '"-gencode", "arch=compute_90a,code=sm_90a"],'}  # fmt: skip
    paths = [solution(folder, answer) for answer in (*ANSWERS, "died", "flood")]
    paths.append(solution(folder, "flags", **flags))
    paths.append(solution(folder, "kernels", "boasting", BOASTS))
    paths.append(solution(folder, "kernels", "out_of_turn", ANSWERS_OUT_OF_TURN))
    wrong = {"r * (g - a - (x[start + i] - m) * r * b)": "r * g"}
    paths.append(solution(folder, "own_error", "wrong_too", **wrong))
    refused = {
        "    float total = scratch[0];": '    float total = scratch[0]; asm volatile("pmevent 1;" ::: "memory");'
    }
    paths.append(solution(folder, "kernels", "inline_assembly", **refused))
    ran = harness(
        "evaluate", *paths, "--problem", "group_norm", "--case", "odd", "--check", "--json", "--device", "cpu",
        CUDA_HOME=str(stand_in),
    )  # fmt: skip
    assert ran.code == 1, ran.err
    return {Path(row["solution"]).stem: row for row in ran.rows}


def build_findings(row: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(finding["level"], finding["line"]) for finding in row["findings"] if finding["kind"] == "build"]


def test_what_kernels_take_is_in_the_record(judged: Rows) -> None:
    row = judged["kernels"]
    assert row["status"] == "PASSED"
    assert build_findings(row) == []
    compiled = row["compiled"]
    assert (compiled["arch"], compiled["compiler"], compiled["error"]) == ("sm_90", "13.0.88", "")
    figures = ("registers", "shared_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "constant_bytes")
    assert {kernel["name"]: [kernel[name] for name in figures] for kernel in compiled["kernels"]} == {
        "(anonymous namespace)::k<3>": [34, 0, 256, 0, 0, None],
        "spill": [32, 4116, 3024, 4864, 12036, None],
    }
    assert {kernel["arch"] for kernel in compiled["kernels"]} == {"sm_90"}


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("own_error", 34, "line 34: error: calling a __host__ function"),
        ("instantiation", 20, "line 20: error: calling a constexpr __host__ function"),
        ("shared", None, "Entry function 'a::k<4>' uses too much shared data"),
        ("option", None, "Unknown option '--no-such'"),
        ("flood", 34, "one of very many"),
    ],
)
def test_what_nvcc_refuses_is_no_pass(judged: Rows, name: str, line: int | None, words: str) -> None:
    row = judged[name]
    assert row["status"] == "BUILD_ERROR"
    assert build_findings(row) == [("error", line)]
    assert "right on the emulator" in row["message"]
    assert words in row["message"]
    assert words in row["compiled"]["error"]
    assert all(report["ok"] for report in row["outputs"])
    assert 0 < Path(row["build_log"]).stat().st_size <= MAX_LOG_CHARACTERS


def test_an_error_is_told_once_and_beside_the_solutions_line(judged: Rows) -> None:
    message = judged["own_error"]["message"].splitlines()
    assert message[1].strip() == HONEST.read_text().splitlines()[32].strip()
    assert [line for line in message if "line 34: " in line] == message[:1]
    assert any(line.startswith("line 37: error: no") for line in message)
    (finding,) = [finding for finding in judged["shared"]["findings"] if finding["kind"] == "build"]
    assert finding["kernel"] == "a::k<4>"


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("library", 34, "cublasSgemm"),
        ("header", 13, "this machine has no header cublas_v2.h"),
        ("host_compiler", None, "unsupported GNU version"),
        ("arch", None, "Unsupported gpu architecture"),
        ("killed", None, "died due to signal 9"),
        ("died", None, "nvcc failed without a message"),
    ],
)
def test_what_this_machine_lacks_is_no_word_against_a_solution(
    judged: Rows, name: str, line: int | None, words: str
) -> None:
    row = judged[name]
    assert row["status"] == "PASSED"
    assert build_findings(row) == [("report", line)]
    assert words in row["compiled"]["error"]
    assert row["compiled"]["kernels"] == []


def test_another_verdict_stays_and_what_the_emulator_refuses_is_compiled(judged: Rows) -> None:
    assert judged["wrong_too"]["status"] == "WRONG_GRADIENT"
    assert build_findings(judged["wrong_too"]) == [("error", 34)]
    assert judged["inline_assembly"]["status"] == "UNSUPPORTED"
    assert len(judged["inline_assembly"]["compiled"]["kernels"]) == 2


def test_flags_go_to_nvcc_but_for_those_that_choose_what_it_makes(judged: Rows) -> None:
    (said, *_) = Path(judged["flags"]["build_log"]).read_text().splitlines()
    words = said.split()
    assert {"-cubin", "-arch=sm_90a", "-O3", "--ptxas-options=-v", "-std=c++20", "--expt-relaxed-constexpr"} <= set(
        words
    )
    assert not {"-gencode", "arch=compute_90a,code=sm_90a", "-O3 --ptxas-options=-v"} & set(words)
    source, output = words[words.index("-o") - 1], words[words.index("-o") + 1]
    assert "harness-worker-" in source
    assert Path(output).parent == Path(source).parent


def test_a_worker_may_say_anything(judged: Rows) -> None:
    boasting = judged["boasting"]
    assert boasting["status"] == "PASSED"
    assert build_findings(boasting) == [("report", None)]
    kernels = boasting["compiled"]["kernels"]
    assert 0 < len(kernels) <= 1000
    assert {kernel["registers"] for kernel in kernels} == {7}
    assert all(len(kernel["name"]) <= 200 and len(kernel["arch"]) <= 20 for kernel in kernels)
    assert len(boasting["compiled"]["error"]) <= 5000
    assert boasting["compiled"]["seconds"] == 0.0
    assert len(json.dumps(boasting["findings"])) <= 20_000
    assert Path(boasting["build_log"]).stat().st_size <= MAX_LOG_CHARACTERS
    assert (judged["out_of_turn"]["status"], judged["out_of_turn"]["rule"]) == ("CHEATED", "protocol")


def test_an_endless_compiler_is_stopped_and_the_verdict_stays(harness: Harness, stand_in: Path, tmp_path: Path) -> None:
    arguments = ("evaluate", solution(tmp_path, "endless"), "--problem", "group_norm", "--json", "--forward-only")
    cases = ("--case", "odd", "--case", "small_variance")
    built = harness(*arguments, "--case", "odd", CUDA_HOME=str(stand_in))  # the emulator's own build takes time too
    assert built.rows[0]["compiled"] is None
    ran = harness(*arguments, *cases, "--check", "--build-timeout", "15", CUDA_HOME=str(stand_in))
    assert [row["status"] for row in ran.rows] == ["PASSED", "PASSED"], ran.err
    for row in ran.rows:
        assert build_findings(row) == [("report", None)]
        assert "still building after 15 s" in row["compiled"]["error"]
    assert ["nvcc" in row["stages_s"] for row in ran.rows] == [True, False]  # it is not tried again


def test_table_and_show_tell_it_and_an_answer_is_kept_for_the_same_nvcc(
    harness: Harness, home: Path, stand_in: Path, no_nvcc: Path, tmp_path: Path
) -> None:
    around = {"HARNESS_HOME": str(home), "CUDA_HOME": str(stand_in)}
    arguments = (
        "evaluate", solution(tmp_path, "kernels"), "--problem", "group_norm", "--case", "odd", "--forward-only",
    )  # fmt: skip
    ran = harness(*arguments, "--check", **around)
    assert "nvcc 13.0.88 sm_90: " in ran.out
    assert "spill 32 registers, 4.0 KB shared, spills 4.8 KB stored, 11.8 KB loaded; k 34 registers" in " ".join(
        ran.out.split()
    )
    (again,) = harness(*arguments, "--check", "--json", **around).rows
    assert again["stored"]
    shown = harness("show", again["record"], **around).out
    assert "nvcc 13.0.88 sm_90, " in shown
    assert "  (anonymous namespace)::k<3> 34 registers, no spills, stack 256 bytes\n" in shown
    assert "--check --arch sm_90" in shown
    (other,) = harness(*arguments, "--check", "--arch", "sm_80", "--json", **around).rows
    assert not other["stored"]
    (without,) = harness(*arguments, "--check", "--json", **{**around, "CUDA_HOME": str(no_nvcc)}).rows
    assert (without["status"], without["stored"], build_findings(without)) == ("PASSED", False, [])
    assert "pip install nvidia-cuda-nvcc" in without["compiled"]["error"]


def test_names_and_frames_are_a_kernels_own() -> None:
    kernels = compiled_kernels(KERNELS, 64)
    assert [(kernel.spill_store_bytes, kernel.constant_bytes) for kernel in kernels] == [(0, 64), (4864, 64)]
    assert demangled("_Z3addPKfPfi") == "add(float const*, float*, int)"
    assert demangled("_Znonsense") == "_Znonsense"
    assert demangled("plain") == "plain"


WITH_TORCH = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

__constant__ float factors[64];

template <typename scalar_t>
__global__ void scale(torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factors[i % 64];
}

torch::Tensor run(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
    scale<scalar_t><<<1, 64, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>(), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return x;
}
"""
load_inline(name="scaling", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"])
'''


@pytest.mark.skipif(cuda_home() is None, reason="needs nvcc, as from pip install nvidia-cuda-nvcc")
def test_a_real_nvcc_agrees(harness: Harness, tmp_path: Path) -> None:
    total = "    float total = scratch[0];"
    changes = {
        "honest": {},
        "host_function": {"__device__ float block_sum": "float block_sum"},
        "assembly": {
            total: f'{total}\n#ifdef __CUDA_ARCH__\n    asm("ad.f32 %0, %0, %0;" : "+f"(total));\n#else\n#endif'
        },
        "large": {
            total: f"{total}\n#ifdef __CUDA_ARCH__\n    __shared__ float tile[20000]; tile[threadIdx.x] = total;\n"
            "    __syncthreads(); total = tile[threadIdx.x ^ 1];\n#else\n#endif"
        },
        "header": {"#include <cassert>": "#ifdef __CUDA_ARCH__\n#include <no_such_library.h>\n#else\n#endif"},
        "with_torch": {"import torch\n": f"{WITH_TORCH}\nimport torch\n"},
    }
    paths = [solution(tmp_path, "", name, **change) for name, change in changes.items()]
    ran = harness(
        "evaluate", *paths, "--problem", "group_norm", "--case", "odd", "--check", "--json", "--device", "cpu",
        CUDA_HOME=str(cuda_home()),
    )  # fmt: skip
    rows = {Path(row["solution"]).stem: row for row in ran.rows}
    kernels = {kernel["name"]: kernel for kernel in rows["honest"]["compiled"]["kernels"]}
    assert set(kernels) == {"forward_kernel", "input_gradient_kernel", "affine_gradient_kernel"}
    for kernel in kernels.values():
        assert 8 <= kernel["registers"] <= 64
        assert kernel["shared_bytes"] >= 512
        assert (kernel["spill_store_bytes"], kernel["constant_bytes"]) == (0, 0)
    texts = {path.stem: path.read_text().splitlines() for path in paths}
    for name, part in {"host_function": "block_sum(sum", "assembly": "ad.f32", "large": "__global__ void"}.items():
        assert rows[name]["status"] == "BUILD_ERROR", rows[name]["compiled"]
        ((level, line),) = build_findings(rows[name])
        assert level == "error"
        assert line is not None
        assert part in texts[name][line - 1]
    assert (rows["header"]["status"], build_findings(rows["header"])) == ("PASSED", [("report", 11)])
    scale = [kernel for kernel in rows["with_torch"]["compiled"]["kernels"] if "scale" in kernel["name"]]
    assert {kernel["name"]: kernel["constant_bytes"] for kernel in scale} == {"scale<float>": 256, "scale<double>": 256}
