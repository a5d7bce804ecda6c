"""``doctor`` as a user types it: what it reports, what it calls missing, and what it leaves behind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.doctor import self_test

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
EVERYWHERE = {
    *("Python", "torch", "NVIDIA driver", "nvcc", "C++ compiler", "Python headers", "ninja", "cuda-bindings", "numpy"),
    *("memory", "HARNESS_HOME", "confinement", "emulator self-test"),
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
    assert "not run: it takes C++ compiler, HARNESS_HOME" in line_of(ran, "emulator self-test")
    want = "C++ compiler, HARNESS_HOME, emulator self-test"
    assert ran.out.splitlines()[-1] == f"cpu: does not work, for want of {want}"
    assert ran.err == ""


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


@pytest.mark.gpu
def test_a_gpu_works(harness: Harness) -> None:
    ran = harness("doctor", "--device", "cuda:0", "--json")
    assert ran.code == 0, ran.out
    checks = by_name(ran)
    assert checks["GPU self-test"]["ok"] is True
    assert checks["exchange self-test"]["ok"] is True
