# ruff: noqa: E501 - the table of faults keeps one fault a line

"""Tests every status: each test plants one fault in an honest group norm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HONEST = Path(__file__).parent / "group_norm.py"
Evaluate = Callable[..., dict[str, Any]]


class Fault(NamedTuple):
    """A replacement in the honest file and what must come of it."""

    name: str
    old: str
    new: str
    case: str
    statuses: str
    words: str
    gpu: str = ""  # the status on a GPU; empty where the fault shows on the emulator alone, or on both alike


FAULTS = [
    Fault("gamma_by_group", "* weight[channel] + bias", "* weight[group] + bias", "odd", "WRONG_OUTPUT", "output", "WRONG_OUTPUT"),
    Fault(
        "tail_not_written",
        "int channel = group * (channels / groups) + i / spatial;",
        "int channel = group * (channels / groups) + i / spatial; if (i >= count / 4 * 4) break;",
        "odd",
        "WRONG_OUTPUT",
        "NaN",
        "WRONG_OUTPUT",
    ),
    Fault("eps_ignored", "/ count + eps)", "/ count)", "small_variance", "WRONG_OUTPUT", "output"),
    Fault("nan", "return y\n", "return y * float('nan')\n", "odd", "WRONG_OUTPUT", "NaN"),
    Fault("one_nan", "        ctx.sizes = sizes\n", "        ctx.sizes = sizes; y.view(-1)[7] = float('nan')\n", "odd", "WRONG_OUTPUT", "1 of"),
    Fault("wrong_shape", "return y\n", "return y[:1]\n", "odd", "WRONG_OUTPUT", "shape"),
    Fault("wrong_dtype", "return y\n", "return y.double()\n", "odd", "WRONG_OUTPUT", "float64", "WRONG_OUTPUT"),
    Fault("tuple", "return GroupNorm.apply(x, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps)", "return (GroupNorm.apply(x, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps), None)", "odd", "WRONG_OUTPUT", "a sequence of 2"),
    Fault("none", "return GroupNorm.apply(x", "return None and GroupNorm.apply(x", "odd", "WRONG_OUTPUT", "None"),
    Fault("missing_syncthreads", "        __syncthreads();  // after each step\n", "", "odd", "UNSAFE WRONG_OUTPUT", ""),
    Fault("missing_first_syncthreads", "scratch[threadIdx.x] = value;\n    __syncthreads();", "scratch[threadIdx.x] = value;", "odd", "UNSAFE", "right in reverse order"),
    Fault("dropped_reduction", "r * (g - a - (x[start + i] - m) * r * b)", "r * g", "odd", "WRONG_GRADIENT", "gradient of x", "WRONG_GRADIENT"),
    Fault("zero_gradient", "return dx, dweight", "return dx * 0, dweight", "odd", "WRONG_GRADIENT", "gradient of x"),
    Fault("missing_weight_gradient", "return dx, dweight", "return dx, None", "odd", "WRONG_GRADIENT", "gn.weight"),
    Fault("no_gradient", "return GroupNorm.apply(x, self", "return GroupNorm.apply(x.detach(), *(p.detach() for p in (self.gn.weight, self.gn.bias)), self.gn.num_groups, self.gn.eps) if True else (x, self", "odd", "NO_GRADIENT", "autograd.Function", "NO_GRADIENT"),
    Fault("no_backward", "    @staticmethod\n    def backward(ctx, dy):", "    @staticmethod\n    def backwards(ctx, dy):", "odd", "NO_GRADIENT", "backward"),
    Fault("build_error", "float sum = 0.f;", "flaot sum = 0.f;", "odd", "BUILD_ERROR", "flaot", "BUILD_ERROR"),
    Fault("no_model", "class ModelNew(", "class ModelOld(", "odd", "LOAD_ERROR", "ModelNew"),
    Fault("exit_at_import", "def pointers", "raise SystemExit(0)\ndef pointers", "odd", "LOAD_ERROR", "sys.exit"),
    Fault("unmatched_parameter", "self.gn = nn.GroupNorm(num_groups, num_features)", "self.gn = nn.GroupNorm(num_groups, num_features, affine=False)", "odd", "LOAD_ERROR", "gn.weight"),
    Fault("raises", "        x = x.contiguous()\n", "        raise ValueError('no such size')\n", "odd", "RUNTIME_ERROR", "no such size"),
    Fault("launch_too_large", "<<<samples * groups, 128>>>(x, weight", "<<<samples * groups, 2048>>>(x, weight", "odd", "RUNTIME_ERROR", "invalid configuration argument", "RUNTIME_ERROR"),
    Fault("memory", "        x = x.contiguous()\n", "        hog = torch.empty(1 << 40, device=x.device)\n", "odd", "OUT_OF_MEMORY", "allocate", "OUT_OF_MEMORY"),
    Fault("endless_kernel", "    float sum = 0.f;", "    volatile float sum = 0.f; while (eps > 0) sum = sum + 1.f;", "odd", "TIMEOUT", "--timeout", "TIMEOUT"),
    Fault("endless_import", "def pointers", "while True: pass\ndef pointers", "odd", "TIMEOUT", "importing"),
    Fault("segfault", "float sum = 0.f;", "float sum = *(volatile float*)(4ll * threadIdx.x);", "odd", "CRASHED", "SIGSEGV", "RUNTIME_ERROR"),
    Fault("exit_in_forward", "        x = x.contiguous()\n", "        import os; os._exit(0)\n", "odd", "CRASHED", "exit code 0", "CRASHED"),
    Fault("killed", "        x = x.contiguous()\n", "        import os; os.kill(os.getpid(), 9)\n", "odd", "CRASHED", "SIGKILL"),
    Fault("input_changed", "return y\n", "x.data.mul_(2); return y\n", "odd", "CHEATED", "input_mutation", "CHEATED"),
    Fault("forged_message", "        x = x.contiguous()\n", "        import os; [os.write(fd, b'\\0\\0\\0\\2{}') for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}') and 'socket' in os.readlink(f'/proc/self/fd/{fd}')]\n", "odd", "CHEATED", "protocol"),
    Fault("written_past_the_end", "if (threadIdx.x == 0) { mean", "out[count + 5] = 3.f; if (threadIdx.x == 0) { mean", "odd", "UNSAFE", "out-of-bounds"),
    Fault("diverging_barrier", "        __syncthreads();  // after each step\n", "        if (threadIdx.x < half) __syncthreads(); else\n__syncthreads();\n", "odd", "UNSAFE", "divergence"),
    Fault("device_assert", "float sum = 0.f;", "float sum = 0.f; assert(count < 0);", "odd", "RUNTIME_ERROR", "assert", "RUNTIME_ERROR"),
    Fault("misaligned", "float sum = 0.f;", "float4 v = *reinterpret_cast<const float4*>(x + 1); float sum = v.x + v.y + v.z + v.w;", "odd", "WRONG_OUTPUT", "output", "RUNTIME_ERROR"),
    Fault("inline_ptx", "float sum = 0.f;", 'float sum = 0.f; asm volatile("pmevent 1;");', "odd", "UNSUPPORTED", "inline PTX (pmevent)"),
]  # fmt: skip


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
def test_planted_fault_gets_its_status(fault: Fault, tmp_path: Path, evaluate_row: Evaluate) -> None:
    text = HONEST.read_text()
    assert fault.old in text
    path = tmp_path / f"{fault.name}.py"
    path.write_text(text.replace(fault.old, fault.new, 1))
    limit = "5" if fault.statuses == "TIMEOUT" else "60"
    row = evaluate_row(path, "group_norm", "--case", fault.case, "--timeout", limit)
    assert row["status"] in fault.statuses.split(), row["message"]
    assert fault.words in row["message"] + str(row["rule"])
    if row["status"] == "UNSAFE":
        assert {finding["kind"] for finding in row["findings"]}
        assert all(set(finding) >= {"kind", "kernel", "line", "accesses", "remedy"} for finding in row["findings"])


@pytest.mark.parametrize("case", ["odd", "small_variance", "flat_2d"])
def test_the_honest_file_passes(case: str, evaluate_row: Evaluate) -> None:
    row = evaluate_row(HONEST, "group_norm", "--case", case)
    assert row["status"] == "PASSED", row["message"]
    assert {gradient["name"] for gradient in row["gradients"]} == {"x", "gn.weight", "gn.bias"}
    assert all(report["share"] <= 1 for report in row["outputs"] + row["gradients"])


def test_a_loud_but_honest_candidate_passes_with_its_log_cut(tmp_path: Path, evaluate_row: Evaluate) -> None:
    path = tmp_path / "loud.py"
    noise = "        global told\n        if 'told' not in globals(): told = print('loud ' * 20_000_000)\n"
    old = "        x = x.contiguous()\n"
    path.write_text(HONEST.read_text().replace(old, noise + old, 1))
    row = evaluate_row(path, "group_norm", "--case", "odd")
    assert row["status"] == "PASSED", row["message"]
    assert "loud loud" in row["log"]  # a torch for CUDA warns first where there is no driver
    assert "bytes cut" in row["log"]
    assert len(row["log"]) < 50_000


def test_a_remembered_answer_fails_on_the_second_trial(tmp_path: Path, evaluate_row: Evaluate) -> None:
    path = tmp_path / "remembers.py"
    old = "        return GroupNorm.apply("
    new = "        if hasattr(self, 'kept'): return self.kept\n        self.kept = y = GroupNorm.apply("
    text = HONEST.read_text().replace(old, new, 1).rstrip() + "\n        return y\n"
    path.write_text(text)
    row = evaluate_row(path, "group_norm", "--case", "odd", "--forward-only")
    assert row["status"] == "WRONG_OUTPUT", row["message"]
    assert row["outputs"][0]["trial"] == 1
    assert row["gradients"] == []


def test_a_bad_candidate_does_not_affect_the_next(tmp_path: Path, harness: Callable[..., Any]) -> None:
    text = HONEST.read_text()
    (tmp_path / "a.py").write_text(text.replace("        x = x.contiguous()\n", "        import os; os._exit(7)\n"))
    (tmp_path / "b.py").write_text(text)
    ran = harness(
        "evaluate", tmp_path / "a.py", tmp_path / "b.py", "--problem", "group_norm", "--case", "odd",
        "--case", "flat_2d", "--json",
    )  # fmt: skip
    assert ran.code == 1
    assert sorted((Path(row["solution"]).stem, row["status"]) for row in ran.rows) == [
        *(("a", "CRASHED"), ("a", "CRASHED")),
        *(("b", "PASSED"), ("b", "PASSED")),
    ]
    assert all("exit code 7" in row["message"] for row in ran.rows if row["status"] == "CRASHED")


@pytest.fixture(scope="module")
def gpu_rows(tmp_path_factory: pytest.TempPathFactory, harness: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """All faults that a GPU shows, and an honest file after each, in one command; rows by file name."""
    folder = tmp_path_factory.mktemp("gpu-faults")
    text = HONEST.read_text()
    paths = []
    for fault in FAULTS:
        if fault.gpu:
            paths.append(folder / f"{fault.name}.py")
            paths[-1].write_text(text.replace(fault.old, fault.new, 1))
    paths.append(folder / "honest.py")
    paths[-1].write_text(text)
    ran = harness(
        "evaluate", *paths, "--problem", "group_norm", "--case", "odd", "--device", "cuda:0", "--timeout", "10",
        "--json",
    )  # fmt: skip
    assert ran.code == 1, ran.err
    return {Path(row["solution"]).stem: row for row in ran.rows}


GPU_WORDS = {
    "segfault": "illegal memory access",
    "misaligned": "misaligned address",
    "device_assert": "assert",
    "launch_too_large": "CUDA error: invalid argument",  # CUDA 13's words on an H200
    "memory": "out of memory",
    "endless_kernel": "--timeout",
    "build_error": "flaot",
}


@pytest.mark.gpu
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS if fault.gpu])
def test_planted_fault_gets_its_status_on_a_gpu(fault: Fault, gpu_rows: dict[str, dict[str, Any]]) -> None:
    row = gpu_rows[fault.name]
    assert row["status"] == fault.gpu, row["message"]
    assert GPU_WORDS.get(fault.name, "") in row["message"]


@pytest.mark.gpu
def test_the_honest_file_passes_on_a_gpu_after_all_the_others(gpu_rows: dict[str, dict[str, Any]]) -> None:
    assert gpu_rows["honest"]["status"] == "PASSED", gpu_rows["honest"]["message"]
    assert gpu_rows["honest"]["speedup"].keys() == {"forward", "forward_backward"}
