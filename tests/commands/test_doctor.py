"""Tests ``doctor``: what it reports, what it calls missing, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.commands import doctor
from harness.device import devices, environment
from harness.doctor import host_checks
from harness.doctor.checks import MachineCheck
from harness.doctor.diagnosis import self_test
from harness.doctor.gpu_checks import check_ceilings, check_nvcc
from harness.doctor.host_checks import check_temporary
from harness.timing import ceilings
from harness.timing.ceilings import Ceilings

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
EVERYWHERE = {
    *("Python", "torch", "NVIDIA driver", "nvcc", "C++ compiler", "Python headers", "ninja", "cuda-bindings", "numpy"),
    *("memory", "HARNESS_HOME", "TMPDIR", "confinement", "emulator self-test"),
}


def by_name(ran: Any) -> dict[str, dict[str, Any]]:
    (row,) = ran.rows
    return {check["name"]: check for check in row["checks"]}


def line_of(ran: Any, name: str) -> str:
    (line,) = [line for line in ran.out.splitlines() if f"  {name}  " in line]
    return str(line)


def test_the_cpu_works_and_nothing_is_left_behind(harness: Harness, tmp_path: Path) -> None:
    ran = harness("doctor", "--device", "cpu", "--json", TMPDIR=str(tmp_path))
    assert ran.code == 0, ran.out
    (row,) = ran.rows
    assert (row["device"], row["ok"]) == ("cpu", True)
    checks = by_name(ran)
    assert set(checks) >= EVERYWHERE
    assert checks["emulator self-test"]["ok"] is True
    assert checks["C++ compiler"]["ok"] is True
    assert "GPU self-test" not in checks
    for check in checks.values():
        assert set(check) == {"name", "ok", "found", "remedy", "needed_for"}
        assert check["ok"] is not False
        assert bool(check["remedy"]) == (check["ok"] is None), check
    assert list(tmp_path.iterdir()) == []


def test_a_missing_compiler_and_an_unwritable_home_are_told_with_their_remedies(
    harness: Harness, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    ran = harness("doctor", "--device", "cpu", PATH=str(tmp_path), CXX="", HARNESS_HOME=str(home))
    assert ran.code == 3, ran.out
    assert line_of(ran, "C++ compiler").startswith("MISSING")
    assert "apt-get install g++" in line_of(ran, "C++ compiler")
    assert line_of(ran, "HARNESS_HOME").startswith("MISSING")
    assert "export HARNESS_HOME=" in line_of(ran, "HARNESS_HOME")
    assert "not run: needs C++ compiler, HARNESS_HOME" in line_of(ran, "emulator self-test")
    want = "C++ compiler, HARNESS_HOME, emulator self-test"
    assert ran.out.splitlines()[-1] == f"cpu: does not work: missing {want}"
    assert ran.err == ""


def test_a_temporary_folder_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_temporary().ok
    monkeypatch.setattr(host_checks, "MIN_FREE_BYTES", 1 << 60)
    check = check_temporary()
    assert check.ok is False
    assert "export TMPDIR=" in check.remedy


def test_a_gpu_that_torch_does_not_find_is_missing(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): pass\n"
        "def nvmlInit(): pass\n"
        "def nvmlShutdown(): pass\n"
        "def nvmlSystemGetDriverVersion(): return '999.12.03'\n"
    )
    options = {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "CUDA_VISIBLE_DEVICES": "", "PATH": str(tmp_path), "CXX": ""}
    ran = harness("doctor", "--device", "cuda:0", "--json", **options)
    assert ran.code == 3, ran.out
    assert (ran.rows[0]["device"], ran.rows[0]["ok"]) == ("cuda:0", False)
    checks = by_name(ran)
    assert checks["GPU"]["ok"] is False
    assert "torch finds no GPU" in checks["GPU"]["found"]
    assert checks["GPU self-test"]["ok"] is False
    assert "GPU" in checks["GPU self-test"]["found"]
    assert checks["exchange self-test"]["ok"] is False
    assert checks["emulator self-test"]["ok"] is None
    assert checks["NVIDIA driver"]["found"].startswith("999.12.03")


def test_a_torch_that_cannot_be_imported_is_missing(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cpu.so: no such file')")
    ran = harness("doctor", PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    assert ran.code == 3
    assert "libtorch_cpu.so: no such file" in line_of(ran, "torch")
    assert "pip install torch" in line_of(ran, "torch")
    assert "Traceback" not in ran.err


def test_an_unknown_device_is_wrong_usage(harness: Harness) -> None:
    ran = harness("doctor", "--device", "tpu")
    assert ran.code == 2
    assert "'tpu'" in ran.err
    assert ran.out == ""


def test_help_has_an_example(harness: Harness) -> None:
    ran = harness("doctor", "--help")
    assert ran.code == 0
    assert "python -m harness doctor --device cuda:0 --json" in ran.out


@pytest.mark.parametrize(("limit_s", "words"), [(120.0, "cannot be loaded"), (0.0, "no result within 0 s")])
def test_a_self_test_that_fails_or_hangs_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float, words: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    missing = str(tmp_path / "missing.so")
    check = self_test("emulator self-test", "kernel", "cpu", {"core": missing, "torch": missing}, limit_s)
    assert check.ok is False
    assert words in check.found
    assert check.remedy
    assert list(tmp_path.iterdir()) == []
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in _text(path)]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # that process has ended
        return ""


GPU = {"gpu": "NVIDIA H200", "gpu_memory_gib": "139.8", "capability": "9.0", "cuda": "13.0"}
FOUND = MachineCheck("GPU 1", True, "NVIDIA H200", "", "cuda")
CEILINGS = Ceilings(
    copy=4.28e12,
    read=4.35e12,
    write=4.68e12,
    fp32=51e12,
    tf32=340e12,
    fp16=698e12,
    bf16=None,
    device="NVIDIA H200",
    software=f"torch {torch.__version__}, CUDA 13.0",
    measured_at="2026-11-21T10:00:00+00:00",
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose ceilings are known by being asked for."""
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(devices, "choose", lambda _: torch.device("cuda", 1))
    monkeypatch.setattr(environment, "describe_gpu", lambda: GPU)
    monkeypatch.setattr(ceilings, "measure", lambda _: CEILINGS)


@pytest.mark.usefixtures("gpu")
def test_calibrating_keeps_the_ceilings_that_doctor_then_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (before,) = check_ceilings("cuda:1", [FOUND], tmp_path)
    assert (before.ok, before.found) == (None, "not measured")
    assert before.remedy == "`python -m harness doctor --calibrate --device cuda:1`"
    arguments = ["--calibrate", "--device", "cuda:1", "--home", str(tmp_path)]
    assert doctor.command.main(arguments, standalone_mode=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"NVIDIA H200, torch {torch.__version__}, CUDA 13.0",
        "copy   4.28 TB/s",
        "read   4.35 TB/s",
        "write  4.68 TB/s",
        "fp32   51 TFLOP/s",
        "tf32   340 TFLOP/s",
        "fp16   698 TFLOP/s",
        "measured 2026-11-21T10:00:00+00:00",
    ]
    assert doctor.command.main([*arguments, "--json"], standalone_mode=False) == 0
    assert Ceilings(**json.loads(capsys.readouterr().out)) == CEILINGS
    (after,) = check_ceilings("cuda:1", [FOUND], tmp_path)
    assert after.ok is True
    assert after.found.startswith("copy 4.28 TB/s, read 4.35 TB/s, write 4.68 TB/s, fp32 51 TFLOP/s, tf32 340 TFLOP/s")
    assert after.found.endswith("; measured 2026-11-21T10:00:00+00:00")


@pytest.mark.parametrize(
    ("device", "checks"), [("cuda:0", [FOUND]), ("cpu", []), ("cuda:1", [MachineCheck("GPU 1", False, "", "", "cuda")])]
)
def test_of_a_gpu_that_is_not_there_nothing_is_said(tmp_path: Path, device: str, checks: list[MachineCheck]) -> None:
    assert check_ceilings(device, checks, tmp_path) == []


@pytest.mark.parametrize(
    ("device", "code", "words"),
    [
        ("cpu", 2, "--device cpu selects the CPU emulator here, which is never timed"),
        ("auto", 2, "--device auto selects the CPU emulator here, which is never timed"),
        ("cuda:0", 3, "torch finds no GPU"),
        ("tpu", 2, "'tpu'"),
    ],
)
def test_only_a_gpu_can_be_calibrated(harness: Harness, tmp_path: Path, device: str, code: int, words: str) -> None:
    options = {"CUDA_VISIBLE_DEVICES": "", "HARNESS_HOME": str(tmp_path)}
    ran = harness("doctor", "--calibrate", "--device", device, **options)
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert list(tmp_path.iterdir()) == []


def test_calibrating_without_torch_says_how_to_get_it(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cpu.so: no such file')")
    ran = harness("doctor", "--calibrate", PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    assert ran.code == 3
    assert "--calibrate needs torch" in ran.err
    assert "pip install torch" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.gpu
def test_a_gpu_is_calibrated_and_its_ceilings_are_shown(harness: Harness, tmp_path: Path) -> None:
    options = {"HARNESS_HOME": str(tmp_path)}
    assert by_name(harness("doctor", "--device", "cuda:0", "--json", **options))["ceilings"]["ok"] is None
    ran = harness("doctor", "--device", "cuda:0", "--calibrate", "--json", **options)
    assert ran.code == 0, ran.err
    (measured,) = ran.rows
    shown = by_name(harness("doctor", "--device", "cuda:0", "--json", **options))["ceilings"]
    assert shown["ok"] is True
    assert shown["found"].endswith(f"measured {measured['measured_at']}")


@pytest.mark.gpu
def test_a_gpu_works(harness: Harness) -> None:
    ran = harness("doctor", "--device", "cuda:0", "--json")
    assert ran.code == 0, ran.out
    checks = by_name(ran)
    assert checks["GPU self-test"]["ok"] is True
    assert checks["exchange self-test"]["ok"] is True


def test_an_nvcc_that_compiles_no_kernel_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime.h").touch()
    told = "echo 'Cuda compilation tools, release 13.0, V13.0.88'"
    lacks = "echo 'cuda_fp16.h:4504:10: fatal error: nv/target: No such file or directory' >&2; exit 1"
    program.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {told}; else {lacks}; fi\n')
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    check = check_nvcc(None)
    assert (check.ok, check.needed_for) == (False, "cuda")
    assert "it does not compile a kernel: cuda_fp16.h:4504:10: fatal error: nv/target" in check.found
    assert "pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl" in check.remedy
    program.write_text(f"#!/bin/sh\n{told}\n")
    assert check_nvcc("13.0").ok
    assert "apt-get install cuda-toolkit-12-8" in check_nvcc("12.8").remedy
