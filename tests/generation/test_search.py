"""Tests the library: a search with proposers of one's own, its transcript, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError, UsageError
from harness.generation import Budget, Outcome, ProposerFailed, Reply, Tokens, Turn, Verdict, search
from harness.generation.attempts import MAX_ANSWER_BYTES
from harness.generation.judging import Court
from harness.generation.strategies import BestOfN
from harness.records.store import Store
from tests.generation.kernels import BROKEN, PROBLEM, RIGHT, TORCH, WRONG

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class Scripted:
    """Gives its answers in order, and keeps the turns."""

    answers: list[str | Exception]
    name: str = "scripted"
    turns: list[Turn] = field(default_factory=list)

    def propose(self, turn: Turn) -> Reply:
        self.turns.append(turn)
        answer = self.answers.pop(0) if self.answers else ProposerFailed(Outcome.EXHAUSTED, "no more")
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer, Tokens(5, 2))


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Callable[..., list[Verdict]]:
    """Searches to the end, in the run's folder ``run`` of the test."""
    path = tmp_path / "hyperbolic.py"
    path.write_text(PROBLEM)

    def run(proposer: Any, budget: Budget | None = None, **more: Any) -> list[Verdict]:
        settings = {"device": "cpu", "cases": ["small"], "home": home, "folder": tmp_path / "run", **more}
        return list(search(path, proposer, budget or Budget(10), **settings))

    return run


@pytest.fixture
def run_unjudged(run: Callable[..., list[Verdict]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Verdict]]:
    """The same without a judge, for answers that have no code."""
    monkeypatch.setattr(Court, "judge", lambda _: contextlib.nullcontext())
    return run


def test_a_search_that_was_killed_goes_on(run: Callable[..., list[Verdict]], tmp_path: Path, home: Path) -> None:
    whole = run(Scripted([WRONG, "prose", RIGHT]), strategy=BestOfN())
    assert [one.attempt.outcome for one in whole[:-1]] == [Outcome.JUDGED, Outcome.NO_CODE, Outcome.JUDGED]
    assert whole[-1].is_winner
    path = tmp_path / "run" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    events = [json.loads(line)["event"] for line in lines]
    assert events == ["begun", *["asked", "answered", "settled"] * 3, "gated"]
    with Store(home) as store:
        known = sum(1 for _ in store.records("hyperbolic"))
    path.write_bytes(b"".join(lines[:3]))  # behind an answer that was not judged
    proposer = Scripted(["prose", RIGHT])
    again = run(proposer, strategy=BestOfN())
    assert again[-1].is_winner
    assert [turn.number for turn in proposer.turns] == [2, 3]
    with Store(home) as store:
        assert sum(1 for _ in store.records("hyperbolic")) == known + 2  # the gate's, on two cases


def test_a_rule_from_one_problem_s_failures_is_told_on_another(
    run: Callable[..., list[Verdict]], own_home: Path, tmp_path: Path
) -> None:
    """Nothing that a solution wrote goes along, and a solution counts once."""
    racy = RIGHT.replace("i < n", "i <= n + (0 * 1234567)")  # reads and writes behind the end
    assert racy != RIGHT
    first = Scripted([racy, racy + "again = 1\n"])
    run(first, Budget(2), home=own_home, folder=tmp_path / "first")
    assert "# Mistakes of earlier answers" not in first.turns[0].prompt
    second = Scripted(["prose"])
    list(search("group_norm", second, Budget(1), device="cpu", home=own_home, folder=tmp_path / "second"))
    rules = second.turns[0].prompt.partition("# Mistakes of earlier answers")[2].partition("# Device")[0]
    assert "Accessed memory beyond an array: 2." in rules
    assert rules.count("\n- ") == 1
    assert "1234567" not in second.turns[0].prompt


def test_answers_that_repeat_themselves_end_a_search(run: Callable[..., list[Verdict]]) -> None:
    same = [WRONG + f"# {number}\n" for number in range(20)]
    assert [one.attempt.outcome for one in run(Scripted([*same[:3], "prose", *same[3:]]), Budget(20))] == [
        Outcome.JUDGED,
        *[Outcome.DUPLICATE] * 2,
        Outcome.NO_CODE,
        *[Outcome.DUPLICATE] * 5,
    ]


def test_budgets_end_a_search(run: Callable[..., list[Verdict]], tmp_path: Path) -> None:
    spent = run(Scripted([WRONG + f"x = {number}\n" for number in range(9)]), Budget(3))
    assert [one.attempt.number for one in spent] == [1, 2, 3]
    more = run(Scripted([TORCH]), Budget(9, tokens=22))  # a larger budget goes on
    assert [(one.attempt.number, one.attempt.records[0].status.value) for one in more] == [(4, "CHEATED")]
    assert run(Scripted([RIGHT]), Budget(9, minutes=1e-9)) == []


def test_what_the_store_has_lost_is_judged_again_and_not_asked_again(
    run: Callable[..., list[Verdict]], own_home: Path
) -> None:
    run(Scripted([WRONG]), Budget(1))
    proposer = Scripted([])
    (verdict,) = run(proposer, Budget(1), home=own_home)
    assert verdict.attempt.records[0].status == "WRONG_OUTPUT"
    assert proposer.turns == []


def test_an_answer_that_is_too_long_is_not_kept(run_unjudged: Callable[..., list[Verdict]], tmp_path: Path) -> None:
    (verdict,) = run_unjudged(Scripted(["x" * (MAX_ANSWER_BYTES + 1)]), Budget(1, minutes=1e308))
    assert verdict.attempt.outcome is Outcome.NO_CODE
    assert "more than 262,144 characters" in verdict.attempt.message
    assert (tmp_path / "run" / "transcript.jsonl").stat().st_size < MAX_ANSWER_BYTES


def test_a_proposer_gets_its_parent_with_the_verdict(run: Callable[..., list[Verdict]]) -> None:
    proposer = Scripted([BROKEN, "prose"])
    run(proposer, Budget(2))
    first, second = proposer.turns
    assert (first.parent, first.best, second.number, second.kind) == (None, None, 2, "repair")
    assert second.parent is not None
    assert second.parent.records[0].status == "BUILD_ERROR"
    assert second.parent.source == BROKEN


def test_an_error_of_a_proposer_of_one_s_own_is_raised(run_unjudged: Callable[..., list[Verdict]]) -> None:
    with pytest.raises(ZeroDivisionError):
        run_unjudged(Scripted([ZeroDivisionError("a slip")]))


def test_a_proposer_that_never_answers_is_asked_three_times(run_unjudged: Callable[..., list[Verdict]]) -> None:
    proposer = Scripted([ProposerFailed(Outcome.SERVER_ERROR, "busy")] * 9)
    with pytest.raises(HarnessError, match="no answers any more: scripted: server error: busy"):
        run_unjudged(proposer)
    assert len(proposer.turns) == 3


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"not json\n", "line 1 is not an event"),
        (b'{"event": "begun", "layout": 99}\n', "no transcript of this version"),
        (b'{"event": "begun", "layout": 1, "facts": {}}\n', "has another problem"),
        (b"[" * 100_000 + b"\n", "line 1 is not an event"),
        (
            b'{"event": "begun", "layout": 1, "facts": {}}\n'
            b'{"event": "asked", "number": 1, "kind": "write", "parent": null, "proposer": "p", "prompt": "q"}\n'
            b'{"event": "gated", "number": 1, "gate": {"passed": true, "message": "", "records": []}, '
            b'"elapsed_s": 1' + b"0" * 400 + b"}\n",
            "line 3 is not an event",
        ),
    ],
)
def test_a_folder_with_something_else_is_refused(
    run_unjudged: Callable[..., list[Verdict]], tmp_path: Path, damage: bytes, words: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "transcript.jsonl").write_bytes(damage)
    with pytest.raises(UsageError, match=words):
        run_unjudged(Scripted([]))
    assert (tmp_path / "run" / "transcript.jsonl").read_bytes() == damage


def test_a_budget_of_cost_ends_a_run(run_unjudged: Callable[..., list[Verdict]]) -> None:
    proposer = Scripted(["prose"] * 9)
    run_unjudged(proposer, Budget(9, cost=0.0002, price=(10.0, 20.0)))  # an answer costs 0.00009
    assert len(proposer.turns) == 3
    with pytest.raises(UsageError, match="needs the price"):
        Budget(cost=1.0)


def test_two_processes_do_not_share_a_run(run_unjudged: Callable[..., list[Verdict]]) -> None:
    def ask_too(turn: Turn) -> Reply:
        with pytest.raises(UsageError, match="another process works on the run"):
            run_unjudged(Scripted([]))
        return Reply("prose")

    proposer = Scripted([])
    proposer.propose = ask_too  # type: ignore[method-assign]
    (verdict,) = run_unjudged(proposer, Budget(1))
    assert verdict.attempt.outcome is Outcome.NO_CODE


@pytest.mark.parametrize(
    "budget", [{"candidates": 0}, {"candidates": 1.5}, {"tokens": -1}, {"minutes": float("nan")}, {"cost": 0}]
)
def test_a_budget_that_means_nothing_is_refused(budget: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be a positive number"):
        Budget(**budget)


def test_the_page_s_proposer_finds_a_winner_that_can_be_adopted(harness: Harness, home: Path, tmp_path: Path) -> None:
    for words in ("new problem my_op", "new template my_op --problem my_op", "render my_op"):
        assert harness(*words.split(), cwd=tmp_path).code == 0
    page = (REPOSITORY / "docs" / "generate.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(code.splitlines()) <= 30
    (tmp_path / "blocks.py").write_text(code)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "blocks.py"],
        cwd=tmp_path,
        env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "".join(f"    {line}\n" for line in ran.stdout.splitlines()) in page
    with Store(home) as store:
        record = next(one for one in store.records("my_op") if one.status == "PASSED")
        wrong = next(one for one in store.records("my_op") if one.status != "PASSED")
    adopted = harness("adopt", record.record, "--name", "by_program", cwd=tmp_path)
    assert adopted.code == 0, adopted.err
    text = (tmp_path / "solutions" / "my_op" / "by_program.py").read_text()
    assert "# attempt 1, write, by block sizes: UNSAFE (record " in text
    assert f"# attempt 2, repair, by block sizes: PASSED (record {record.record})\n" in text
    for options, words in (
        ((record.record, "--name", "my_op"), "rendering would overwrite"),
        ((wrong.record, "--name", "x"), "only a solution that passed"),
        ((record.record, "--name", "../x"), "not a valid name"),
        ((record.record, "--name", "x", "--run", "nowhere"), "holds no run with record"),
        ((record.record, "--name", "x", "--root", str(REPOSITORY)), "no problem 'my_op'"),
    ):
        refused = harness("adopt", *options, cwd=tmp_path)
        assert (refused.code, words in refused.err) == (2, True), refused.err
