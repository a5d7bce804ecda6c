"""Tests that a harness killed at random moments neither loses nor doubles a record."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from harness.emulator.toolchain import build_runtime

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kill_store.py"


@pytest.fixture
def script() -> ModuleType:
    """The script that kills."""
    spec = importlib.util.spec_from_file_location("kill_store", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_five_kills_lose_and_double_nothing(script: ModuleType, home: Path, tmp_path: Path) -> None:
    build_runtime(home / "emulator")
    batch = script.Batch(tmp_path, home / "emulator")
    assert script.kill_repeatedly(batch, moments=5, seed=7) == []
