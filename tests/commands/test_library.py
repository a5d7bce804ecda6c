"""``from harness import Evaluator``: what a program is told, and what stays its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from benchmarks.kills import HONEST, PROBLEM, WRONG
from harness import Entry, Evaluator
from harness.errors import HarnessError, UsageError
from harness.records import Status

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "problem.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def evaluator(home: Path) -> Iterator[Evaluator]:
    with Evaluator("cpu", home) as evaluator:
        yield evaluator


def test_a_candidate_is_judged_and_a_wrong_question_raises(evaluator: Evaluator, problem: Path) -> None:
    answer = evaluator.evaluate(HONEST, problem, cases=["small", "large"], tag={"step": 3})
    assert answer.has_passed
    assert [(record.case, record.status) for record in answer.records] == [("small", "PASSED"), ("large", "PASSED")]
    assert answer.entry.tag == {"step": 3}
    with pytest.raises(UsageError, match="no case 'smal'"):
        evaluator.evaluate(HONEST, problem, cases=["smal"])
    with pytest.raises(UsageError, match="which problem"):
        evaluator.evaluate(HONEST)
    assert not evaluator.evaluate(WRONG, problem, cases=["small"]).has_passed


def test_a_stream_is_read_as_there_is_room_and_faults_end_nothing(evaluator: Evaluator, problem: Path) -> None:
    taken: list[int] = []

    def entries() -> Iterator[Entry]:
        for number, text in enumerate((HONEST + "# 0\n", HONEST + "# 1\n", WRONG + "# 2\n", "no_such_file.py")):
            taken.append(number)
            yield Entry(text, problem, cases=["small"], tag=number)

    answered = []
    for answer in evaluator.stream(entries(), ahead=0):
        answered.append((answer.entry.tag, answer.records[0].status if answer.records else type(answer.error)))
        assert len(taken) == len(answered)
    assert answered == [(0, Status.PASSED), (1, Status.PASSED), (2, Status.WRONG_OUTPUT), (3, UsageError)]
    assert sorted(answer.entry.tag for answer in evaluator.stream(entries())) == [0, 1, 2, 3]


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from harness import Evaluator

before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
child = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")
evaluator = Evaluator("cpu", sys.argv[1])
answer = evaluator.evaluate(Path(sys.argv[2]).read_text(), sys.argv[3], cases=["small"])
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
assert answer.has_passed and "torch" not in sys.modules
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
assert len(children) == 2 and str(child) in children, children
os.kill(child, signal.SIGKILL)
print(evaluator._process.pid, flush=True)
time.sleep(60)
"""


def test_a_program_keeps_what_is_its_own_and_takes_the_judge_with_it(home: Path, problem: Path, tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text(HONEST + "# a program's\n")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, home, tmp_path / "solution.py", problem],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        judge = int(program.stdout.readline())
        program.kill()
    deadline = time.monotonic() + 20
    while not _has_ended(judge) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _has_ended(judge)


def _has_ended(number: int) -> bool:
    """Whether a process is gone, or nothing but a number that its last parent has not asked about: it may be ours."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_judge_that_is_lost_is_told(home: Path, problem: Path) -> None:
    with Evaluator("cpu", home) as evaluator:
        os.kill(evaluator._process.pid, signal.SIGKILL)
        with pytest.raises(HarnessError, match="has ended"):
            evaluator.evaluate(HONEST, problem, cases=["small"])
    with pytest.raises(HarnessError, match="closed"):
        evaluator.evaluate(HONEST, problem, cases=["small"])
    with pytest.raises(UsageError, match="--device"):
        Evaluator("gpu", home)
    assert "Evaluator" in harness.__all__
