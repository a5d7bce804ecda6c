"""Tests the search for nvcc: the order of places, and the message when there is none."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import pytest

from harness.compilation import nvcc
from harness.errors import ToolchainError
from harness.executors.tools import tools_for


def toolkit(folder: Path, version: str = "release 13.0, V13.0.88") -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "nvcc"
    program.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, {version}'\n")
    program.chmod(0o755)
    (folder / "include").mkdir()
    (folder / "include" / "cuda_runtime.h").touch()
    return folder


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No toolkit in the environment, on the path, in the usual place or among the packages."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(nvcc, "USUAL_PLACE", tmp_path / "usual")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path / "packages")})
    return tmp_path


def test_without_nvcc_the_remedy_is_named(empty_machine: Path) -> None:
    assert nvcc.cuda_home() is None
    with pytest.raises(ToolchainError, match="pip install nvidia-cuda-nvcc"):
        nvcc.nvcc_version()


def test_pypi_then_the_usual_place_then_the_path_then_the_environment(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = toolkit(empty_machine / "packages" / "nvidia" / "cu13")
    assert nvcc.cuda_home() == packaged
    usual = toolkit(empty_machine / "usual")
    assert nvcc.cuda_home() == usual
    on_path = toolkit(empty_machine / "elsewhere")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert nvcc.cuda_home() == on_path
    chosen = toolkit(empty_machine / "chosen", "release 12.9, V12.9.1")
    monkeypatch.setenv("CUDA_HOME", str(chosen))
    assert nvcc.cuda_home() == chosen
    assert "12.9" in nvcc.nvcc_version()


def test_a_wrapper_without_a_toolkit_around_it_comes_last(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = toolkit(empty_machine / "wrapper")
    (wrapper / "include" / "cuda_runtime.h").unlink()
    monkeypatch.setenv("PATH", str(wrapper / "bin"))
    assert nvcc.cuda_home() == wrapper
    usual = toolkit(empty_machine / "usual")
    assert nvcc.cuda_home() == usual


def test_a_gpu_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(ToolchainError, match=re.escape('pip install -e ".[gpu]"')):
        tools_for("cuda:0", tmp_path)


def test_an_nvcc_that_does_not_run_is_told(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = toolkit(empty_machine / "broken")
    (broken / "bin" / "nvcc").write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setenv("CUDA_HOME", str(broken))
    with pytest.raises(ToolchainError, match="does not run"):
        nvcc.nvcc_version()
