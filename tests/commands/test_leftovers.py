"""What a problem starts does not outlive the command that judges."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import HONEST, PROBLEM

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


def living(mark: str) -> list[str]:
    """Returns the numbers of the processes that have a mark among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.parametrize("command", ["validate", "evaluate", "profile"])
@pytest.mark.parametrize("own_session", [False, True], ids=["child", "daemon"])
def test_a_problem_s_children_end_with_the_command(
    harness: Callable[..., Any], tmp_path: Path, command: str, own_session: bool
) -> None:
    mark = uuid.uuid4().hex
    program = [sys.executable, "-c", "import time; time.sleep(1e6)", mark]
    start = f"import subprocess\n    subprocess.Popen({program!r}, start_new_session={own_session})\n    return"
    problem, answer = tmp_path / "problem.py", tmp_path / "answer.py"
    problem.write_text(PROBLEM.replace("return [torch", f"{start} [torch"))
    answer.write_text(HONEST)
    what = (problem,) if command == "validate" else (answer, "--problem", problem)
    ran = harness(command, *what, "--device", "cpu", "--case", "small")
    assert ran.code == 0, ran.err
    assert living(mark) == []
