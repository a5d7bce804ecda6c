"""Tests ``generate`` from the command line, with a server on the loopback as the model."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from harness.__main__ import main
from harness.errors import UsageError
from tests.generation.chat_server import (
    KEY,
    block,
    by_prompt,
    dies,
    fails,
    never_ends,
    says,
    says_much,
    says_nonsense,
    serving,
)
from tests.generation.kernels import BROKEN, OUT_OF_BOUNDS, OVERFITTED, PROBLEM, RIGHT, TORCH, WRONG, WRONG_GRADIENT

Harness = Callable[..., Any]
#: Looks for the key of the endpoint.
CURIOUS = """\
import os, torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        print(dict(os.environ))
        raise RuntimeError(f"the key is {os.environ.get('OPENAI_API_KEY')}")
"""
REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = ("--device", "cpu", "--case", "small", "--timeout", "600", "--json")


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "hyperbolic.py"
    path.write_text(PROBLEM)
    return path


def test_every_fault_has_its_outcome_and_the_run_goes_on(harness: Harness, problem: Path, tmp_path: Path) -> None:
    right = says(block(RIGHT), 29, 17)
    script = [
        (says("I would rather not.", 11, 3), "no code"),
        (fails(429, retry_after="0"), "rate limited"),
        (says(block(RIGHT)[:500], 13, 5, finish="length"), "no code"),
        (fails(500), "server error"),
        (says_nonsense(), "malformed"),
        (says_much, "too long"),
        (never_ends, "timed out"),
        (says(block(WRONG), 17, 7), "judged"),
        (dies, "connection lost"),
        (fails(401), "refused"),
        (says(block(WRONG + "# once more\n"), 19, 11), "duplicate"),
        (says(block(TORCH), 23, 13), "judged"),
        (says(block(CURIOUS), 31, 19), "judged"),
        (right, "judged"),
    ]
    with serving(*[step for step, _ in script]) as server:
        ran = harness(
            *("generate", problem, "--model", "scripted", "--strategy", "best-of-n", "--run", tmp_path / "run"),
            *("--retries", 0, "--answer-timeout", 10, "--price", 10, 100, *QUICK),
            **server.environment,
        )
    assert ran.code == 0, ran.err
    *searched, last = ran.rows
    assert [row["outcome"] for row in searched] == [outcome for _, outcome in script]
    assert [row["status"] for row in searched if row["records"]] == [
        *("WRONG_OUTPUT", "CHEATED", "RUNTIME_ERROR", "PASSED"),
    ]
    assert [row["reward"] for row in searched if row["records"]] == [-0.5, -1.0, -0.5, 0.0]
    assert (last["attempt"], last["winner"], last["gate"]["passed"]) == (14, True, True)
    counted = [row["tokens"] for row in searched if not row["tokens"]["estimated"]]
    assert (sum(one["sent"] for one in counted), sum(one["received"] for one in counted)) == (143, 75)
    total = sum(row["tokens"]["sent"] + row["tokens"]["received"] for row in searched)
    assert f"14 attempts, {total:,} tokens (estimated), cost" in ran.err
    assert sum(row["cost"] for row in searched) == pytest.approx(
        sum(10 * row["tokens"]["sent"] + 100 * row["tokens"]["received"] for row in searched) / 1e6
    )
    told = harness("show", searched[-2]["records"][0]).out
    assert "the key is None" in told
    assert KEY not in told
    written = (tmp_path / "run" / "transcript.jsonl").read_text() + ran.out + ran.err
    assert KEY not in written
    assert server.environment["OPENAI_BASE_URL"] not in written


def test_a_model_that_needs_the_feedback_passes_by_its_third_turn(
    harness: Harness, problem: Path, tmp_path: Path
) -> None:
    def repair(prompt: str) -> str:
        told = prompt.partition("# Its result")[2]
        if "no member named 'nothing'" in told and "threadIdx.nothing" in told:
            return block(WRONG_GRADIENT)
        if "WRONG_GRADIENT" in told and "gradient of x" in told and "received" in told:
            return block(RIGHT)
        return block(BROKEN)

    with serving(*[by_prompt(repair)] * 4) as server:
        ran = harness("generate", problem, "--model", "m", "--run", tmp_path / "run", *QUICK, **server.environment)
    assert ran.code == 0, ran.err
    assert [row["status"] for row in ran.rows] == ["BUILD_ERROR", "WRONG_GRADIENT", "PASSED", "PASSED"]
    assert [row["kind"] for row in ran.rows] == ["write", "repair", "repair", "repair"]
    assert len(server.asked) == 3
    first, _, last = server.prompts
    assert "secret_size" not in first + last
    assert "dx[i] = dy[i] * (1.0f - y[i]);" in last


def test_a_winner_that_fails_at_the_gate_is_overfitted_and_the_next_is_tried(
    harness: Harness, problem: Path, tmp_path: Path
) -> None:
    with serving(says(block(OVERFITTED)), says(block(RIGHT))) as server:
        ran = harness(
            *("generate", problem, "--model", "m", "--run", tmp_path / "run", *QUICK[:-1]), **server.environment
        )
    assert ran.code == 0, ran.err
    results = [line.split(None, 1) for line in ran.out.splitlines() if line[:4].strip().isdecimal()]
    assert [number for number, _ in results] == ["1", "1", "2", "2"]
    assert "OVERFITTED: case secret_size: " in ran.out
    assert "winner: attempt 2, record " in ran.out
    assert "secret_size" not in "".join(server.prompts)


def test_a_killed_run_sends_nothing_twice_and_judges_nothing_twice(
    harness: Harness, problem: Path, home: Path, tmp_path: Path
) -> None:
    words = ["generate", str(problem), "--model", "m", "--run", str(tmp_path / "run"), *QUICK]
    with serving(says(block(OUT_OF_BOUNDS)), never_ends, says(block(RIGHT))) as server:
        environment = {
            **os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY), **server.environment,
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *words],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        for _ in range(2):
            assert server.arrived.acquire(timeout=300)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        again = harness(*words, **server.environment)
        assert again.code == 0, again.err
        assert [row["attempt"] for row in again.rows] == [2, 2]
        assert again.rows[-1]["winner"]
        assert len(server.asked) == 3  # the second had no answer, and was sent again
        assert server.prompts[1] == server.prompts[2]
        assert first["status"] == "UNSAFE"
        assert "tanh_kernel, line 9" in server.prompts[1]
        assert "thread [8, 0, 0]" in server.prompts[1]
        over = harness(*words, **server.environment)
        assert (over.code, over.out, len(server.asked)) == (0, "", 3)
    changed = harness(*words, "--strategy", "refine", **server.environment)
    assert changed.code == 2
    assert "the run has another strategy: tree, not refine" in changed.err


def test_several_answers_are_waited_for_at_once_and_an_interrupt_loses_none(
    harness: Harness, problem: Path, home: Path, tmp_path: Path
) -> None:
    words = ["generate", str(problem), "--model", "a", "--model", "b", "--concurrency", "3", "--candidates", "3"]
    words += ["--run", str(tmp_path / "run"), *QUICK]
    answers = [says(block(WRONG + f"x = {number}\n")) for number in range(3)]
    with serving(*[never_ends] * 3, *answers) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *words],
            env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY), **server.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3):
            assert server.arrived.acquire(timeout=300)
        # A signal at another thread ends no wait of the main one, as one that comes just before the wait does not.
        *_, other = sorted(int(thread.name) for thread in Path(f"/proc/{process.pid}/task").iterdir())
        assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGINT) == 0
        _, err = process.communicate(timeout=300)  # an answer may take 600 s
        assert (process.returncode, "Traceback" in err) == (130, False), err
        assert f"--run {tmp_path / 'run'}" in err
        again = harness(*words, **server.environment)
    assert again.code == 1, again.err
    assert sorted(row["attempt"] for row in again.rows) == [1, 2, 3]
    assert {body["model"] for body in server.asked[:3]} == {"a", "b"}
    assert sorted(body["model"] for body in server.asked[:3]) == sorted(body["model"] for body in server.asked[3:])
    told = r"no winner; 3 attempts, 330 tokens, \d+\.\d s of the device: the budget of 3 candidates is spent"
    assert re.search(told, again.err), again.err


def test_a_model_that_never_answers_ends_the_run(harness: Harness, problem: Path, tmp_path: Path) -> None:
    with serving(*[fails(401)] * 5) as server:
        ran = harness("generate", problem, "--model", "m", "--run", tmp_path / "run", *QUICK, **server.environment)
    assert (ran.code, len(server.asked)) == (2, 3)
    assert "no answers any more: m: refused: " in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "say who answers"),
        (("--model", "a", "--command", "cat"), "say who answers"),
        (("--command", "'"), "No closing quotation"),
        (("--command", " "), "--command is empty"),
        (("--from-files", "nowhere"), "there is no such folder"),
        (("--from-files", "."), "no answer that ends in .txt"),
        (("--command", "cat", "--candidates", "0"), "0 is not in the range"),
        (("--command", "cat", "--minutes", "nan"), "finite"),
        (("--command", "cat", "--price", "1", "inf"), "not a finite number"),
        (("--command", "cat", "--cost", "1"), "--cost needs --price"),
        (("--command", "cat", "--temperature", "nan"), "nan is not"),
        (("--command", "cat", "--case", "smal"), "no case 'smal'"),
        (("--command", "cat", "--device", "tpu"), "a search takes one device"),
        (("--command", "cat", "--device", "all"), "a search takes one device"),
        (("--model", " "), "--model is empty"),
        (("--command", "cat", "--run", "taken"), "cannot use the folder"),
        (("--model", "a"), "set OPENAI_API_KEY"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told(
    problem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "taken").write_text("a file")
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("HARNESS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    with pytest.raises((UsageError, click.ClickException)) as refused:
        main.main(["generate", str(problem), *options], standalone_mode=False)
    assert refused.value.exit_code == 2
    told = refused.value.format_message() if isinstance(refused.value, click.ClickException) else str(refused.value)
    assert words in told
    assert not (tmp_path / "home").exists()  # no run was begun


def test_the_prompt_is_what_would_be_sent(harness: Harness, problem: Path, tmp_path: Path) -> None:
    first = harness("prompt", problem, "--device", "cpu", "--case", "small")
    assert first.code == 0, first.err
    assert "def get_inputs()" in first.out
    assert "secret_size" not in first.out
    assert "tokens" in first.err
    (tmp_path / "bad.py").write_text(BROKEN)
    options = ("--problem", problem, "--device", "cpu", "--case", "small", "--json")
    (row,) = harness("evaluate", tmp_path / "bad.py", *options).rows
    second = harness("prompt", problem, "--feedback", row["record"])
    assert second.code == 0, second.err
    assert "has no member named 'nothing'" in second.out
    assert row["seed"] not in second.out
    assert str(tmp_path) not in second.out
    other = harness("prompt", "group_norm", "--feedback", row["record"])
    assert (other.code, "is of problem hyperbolic" in other.err) == (2, True)
    rewrite = harness("prompt", problem, "--feedback", row["record"], "--rewrite")
    assert (rewrite.code, "only a solution that passed" in rewrite.err) == (2, True)


def test_forward_only_asks_for_and_judges_outputs_alone(harness: Harness, problem: Path, tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "one.py").write_text(WRONG_GRADIENT)
    harness("evaluate", tmp_path / "answers" / "one.py", "--problem", problem, "--device", "cpu")  # a known mistake
    ran = harness(
        *("generate", problem, "--from-files", tmp_path / "answers", "--run", tmp_path / "run", "--forward-only"),
        *QUICK,
    )
    assert ran.code == 0, ran.err
    *_, gate = ran.rows
    assert gate["winner"]
    asked = harness("prompt", problem, "--forward-only", "--device", "cpu").out
    assert "no gradients are asked for" in asked
    assert "autograd.Function" not in asked.split("# Example")[0]
    record = gate["records"][0]
    assert "no gradients are asked for" in harness("prompt", problem, "--feedback", record).out
