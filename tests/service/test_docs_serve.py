"""Tests the example of the page about serving."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.test_docs import REPOSITORY
from tests.test_docs_examples import block


def test_the_page_s_program_prints_verdicts_and_rewards(home: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block("docs/serve.md", "python"))
    variables = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-W", "error", "program.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    first, *others = ran.stdout.splitlines()
    assert first == "PASSED 0.0"
    assert sorted(others) == ["AnswerError -1.0", "WRONG_OUTPUT -0.5"]
