"""The digest of the harness's code: it changes with the code that verdicts depend on, and with no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import package
from harness.device.environment import code_digest


@pytest.mark.parametrize(
    ("changed", "is_another"),
    [
        ("judge/integrity.py", True),
        ("emulator/include/cuda.h", True),
        ("errors.py", True),
        ("commands/show.py", False),
        ("doctor/checks.py", False),
        ("answers/code.py", False),
        ("judge/__pycache__/integrity.pyc", False),
    ],
)
def test_only_code_that_verdicts_depend_on_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, is_another: bool
) -> None:
    monkeypatch.setattr(package, "FOLDER", tmp_path)
    path = tmp_path / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("before")
    before = code_digest.__wrapped__()
    path.write_text("after")
    assert (code_digest.__wrapped__() != before) is is_another
