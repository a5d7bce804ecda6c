"""Tests the proposers without an endpoint: a program, and a folder of answers."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.generation.attempts import MAX_ANSWER_BYTES, Kind, Outcome, ProposerFailed, Turn
from harness.generation.programs import Answers, Program
from harness.project.problems import read_problem
from tests.generation.kernels import PROBLEM

PROMPT = "Write é.\n" * 30_000  # more than a pipe holds


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    (tmp_path / "problem.py").write_text(PROBLEM)
    return Turn(1, Kind.WRITE, PROMPT, read_problem(tmp_path / "problem.py"))


def python(code: str, timeout_s: float = 300) -> Program:
    return Program(shlex.join([sys.executable, "-c", code]), timeout_s)


def test_a_program_reads_the_prompt_and_writes_an_answer(turn: Turn) -> None:
    reply = python("import sys; text = sys.stdin.read(); print(len(text), text[:7])").propose(turn)
    assert reply.text == f"{len(PROMPT)} Write é\n"
    assert reply.tokens is not None
    assert (reply.tokens.sent, reply.tokens.estimated) == (len(PROMPT) // 4, True)


def test_a_program_need_not_read_the_prompt(turn: Turn) -> None:
    assert python("print('done')", 1e308).propose(turn).text == "done\n"


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        ("import sys; sys.exit('no key\\nnot \\x1b[31mtoday')", Outcome.REFUSED, r"ended with 1: not \\x1b\[31mtoday"),
        (f"print('x' * {10 << 20})", Outcome.TOO_LONG, f"more than {MAX_ANSWER_BYTES:,} bytes"),
        ("import sys; sys.stderr.write('e' * 9999999)\nprint('x')\nexit(3)", Outcome.REFUSED, "ended with 3"),
    ],
    ids=["fails", "10 MB", "complains"],
)
def test_a_program_that_fails_is_told(turn: Turn, code: str, outcome: Outcome, words: str) -> None:
    with pytest.raises(ProposerFailed, match=words) as failed:
        python(code).propose(turn)
    assert failed.value.outcome is outcome


@pytest.mark.parametrize("closes", [False, True])
def test_a_program_that_does_not_end_is_ended(turn: Turn, closes: bool) -> None:
    code = f"import os, time\n{'os.close(1); os.close(2)' if closes else ''}\ntime.sleep(600)"
    with pytest.raises(ProposerFailed) as failed:
        python(code, 0.3).propose(turn)
    assert failed.value.outcome is Outcome.TIMED_OUT


def test_what_a_program_leaves_behind_ends_with_it(turn: Turn, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    begin = "subprocess.Popen(['sleep', '600'], stdout=held, stderr=held)"
    code = f"import subprocess\nheld = open({str(tmp_path / 'held')!r}, 'w')\n{begin}\nprint('x')"
    assert python(code).propose(turn).text == "x\n"
    os.set_blocking(held, True)
    assert os.read(held, 1) == b""  # waits until nobody holds the other end
    os.close(held)


def test_the_end_of_a_run_ends_its_programs(turn: Turn, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    program = python(f"open({str(tmp_path / 'begun')!r}, 'w').close()\nimport time; time.sleep(600)")
    outcomes: list[Outcome] = []

    def ask() -> None:
        try:
            program.propose(turn)
        except ProposerFailed as failed:
            outcomes.append(failed.outcome)

    thread = threading.Thread(target=ask)
    thread.start()
    (tmp_path / "begun").read_bytes()  # waits for the program
    program.close()
    thread.join(300)
    assert outcomes == [Outcome.REFUSED]


def test_a_program_that_is_not_there_is_told(turn: Turn) -> None:
    with pytest.raises(ProposerFailed, match="cannot run no-such-program"):
        Program("no-such-program --x", 5).propose(turn)


def test_answers_come_in_the_order_of_their_names(turn: Turn, tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    for name in ("b.md", "a.txt", "c.py", "notes.pdf"):
        (folder / name).write_text(name)
    (folder / "d.txt").write_text("x" * (MAX_ANSWER_BYTES + 1))
    (folder / "e.txt").symlink_to("nowhere")
    answers = Answers(folder)

    def asked(number: int) -> str:
        try:
            return answers.propose(Turn(number, Kind.WRITE, "", turn.problem)).text
        except ProposerFailed as failed:
            return str(failed.outcome)

    found = [asked(number) for number in range(1, 7)]
    assert found == ["a.txt", "b.md", "c.py", "too long", "refused", "no more answers"]
    with pytest.raises(UsageError, match="no such folder"):
        Answers(folder / "a.txt")
