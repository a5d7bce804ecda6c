"""Tests which packages of kernels count as installed, and how a record names them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.device import kernel_packages
from harness.device.environment import describe
from harness.records.identity import KERNEL_PACKAGES


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_checkout").mkdir()
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert not kernel_packages.is_installed("a_checkout")
    assert not kernel_packages.is_installed("absent_altogether")
    assert kernel_packages.is_installed("a_package")
    assert "a_package" not in sys.modules


def test_a_verdict_depends_on_the_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_packages, "is_installed", lambda name: name in ("triton", "numpy"))
    monkeypatch.setattr(kernel_packages, "_version", lambda name: {"triton": "3.9.0"}.get(name, ""))
    assert describe("a compiler")[KERNEL_PACKAGES] == "triton 3.9.0, numpy"
