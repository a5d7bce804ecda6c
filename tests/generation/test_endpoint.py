"""Tests the proposer that asks an endpoint, against a server on the loopback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.generation.attempts import MAX_ANSWER_BYTES, Kind, Outcome, ProposerFailed, Tokens, Turn
from harness.generation.endpoint import EndpointModel, Sampling, retry_after
from harness.project.problems import read_problem
from tests.generation.chat_server import (
    KEY,
    Server,
    Step,
    dies,
    ends_early,
    fails,
    never_ends,
    says,
    says_much,
    says_nonsense,
    serving,
)
from tests.generation.kernels import PROBLEM

QUICK = Sampling(timeout_s=60, retries=2, first_pause_s=0.001)


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    (tmp_path / "problem.py").write_text(PROBLEM)
    return Turn(1, Kind.WRITE, "Write it.", read_problem(tmp_path / "problem.py"))


def model_at(server: Server, sampling: Sampling = QUICK) -> EndpointModel:
    os.environ.update(server.environment)  # taken back behind the test
    return EndpointModel("a-model", sampling)


def test_an_answer_comes_with_its_tokens(turn: Turn) -> None:
    with serving(says("x" * 2500, 7, 9), says("cut", finish="length")) as server:
        model = model_at(server, Sampling(temperature=0.5, max_tokens=123, timeout_s=1e308))
        reply = model.propose(turn)
        assert (reply.text, reply.tokens, reply.note) == ("x" * 2500, Tokens(7, 9), "")
        assert "cut off" in model.propose(turn).note
    assert server.prompts == ["Write it."] * 2
    assert (server.asked[0]["model"], server.asked[0]["temperature"]) == ("a-model", 0.5)
    assert server.asked[0]["max_completion_tokens"] == 123


@pytest.mark.parametrize(
    ("step", "outcome", "asked"),
    [
        (fails(500), Outcome.SERVER_ERROR, 3),
        (fails(429), Outcome.RATE_LIMITED, 3),
        (fails(429, retry_after="100000"), Outcome.RATE_LIMITED, 1),
        (fails(400), Outcome.REFUSED, 1),
        (fails(404), Outcome.REFUSED, 1),
        (dies, Outcome.LOST, 3),
        (ends_early, Outcome.LOST, 3),
        (says_nonsense(), Outcome.MALFORMED, 1),
        (says_nonsense("[1, 2]"), Outcome.MALFORMED, 1),
        (says_nonsense('{"choices": "none"}'), Outcome.MALFORMED, 1),
        (says_nonsense('{"choices": [{"delta": {"content": 3}}]}'), Outcome.MALFORMED, 1),
        (says_nonsense('{"error": {"message": "overloaded"}}'), Outcome.MALFORMED, 1),
        (says_much, Outcome.TOO_LONG, 1),
    ],
    ids=[
        *("500", "429", "429 for a day", "400", "404", "dies", "ends early", "no JSON", "list", "choices", "content"),
        *("error", "10 MB"),
    ],
)
def test_a_fault_has_its_outcome(turn: Turn, step: Step, outcome: Outcome, asked: int) -> None:
    with serving(*[step] * 3) as server:
        with pytest.raises(ProposerFailed) as failed:
            model_at(server).propose(turn)
        assert (failed.value.outcome, len(server.asked)) == (outcome, asked), failed.value
    tokens = failed.value.tokens
    assert tokens is None or MAX_ANSWER_BYTES / 4 < tokens.received < MAX_ANSWER_BYTES


@pytest.mark.parametrize("step", [fails(500), fails(429, retry_after="0"), fails(503, retry_after="junk"), dies])
def test_a_fault_that_passes_is_tried_again(turn: Turn, step: Step) -> None:
    with serving(step, step, says("at last")) as server:
        assert model_at(server).propose(turn).text == "at last"


def test_a_server_that_says_nothing_more_is_not_waited_for(turn: Turn) -> None:
    with serving(never_ends) as server:
        with pytest.raises(ProposerFailed, match="in 0") as failed:
            model_at(server, Sampling(timeout_s=0.2)).propose(turn)
        assert failed.value.outcome is Outcome.TIMED_OUT


def test_a_closed_model_waits_for_no_retry(turn: Turn) -> None:
    with serving(fails(429, retry_after="500")) as server:
        model = model_at(server)
        model.close()
        with pytest.raises(ProposerFailed):
            model.propose(turn)


def test_neither_key_nor_address_is_told(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody")
        with pytest.raises(ProposerFailed) as failed:
            EndpointModel("a-model", QUICK).propose(turn)
    assert failed.value.outcome is Outcome.REFUSED
    assert "Incorrect API key" in str(failed.value)
    assert "sk-of-somebody" not in str(failed.value)
    assert KEY not in str(failed.value)


@pytest.mark.parametrize("address", ["nonsense", "ftp://host/v1", "http://", "http://[", "http://host:port"])
def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
        EndpointModel("a-model")


def test_without_key_and_address_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="set OPENAI_API_KEY"):
        EndpointModel("a-model")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("nan", None),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
        ("1e400", float("inf")),
    ],
)
def test_the_pause_that_a_server_asks_for_is_read(header: str | None, seconds: float | None) -> None:
    assert retry_after(header) == seconds
