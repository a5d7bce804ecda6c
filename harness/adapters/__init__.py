"""Rewards from a server of ``serve`` for trainers: what their adapters share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from harness.errors import DeadlineExceeded
from harness.rewards import NO_KERNEL
from harness.server.client import Client, Verdict
from harness.system.text import MAX_CODE_CHARACTERS

#: The variable with the server's address, and the address without it.
VARIABLE, DEFAULT_URL = "HARNESS_SERVE_URL", "http://127.0.0.1:8077"


def client(url: str | None = None, token: str | None = None) -> Client:
    """Returns a client of the server at ``url``, else at ``HARNESS_SERVE_URL``, else on this machine.

    Raises:
        UsageError: The address is invalid.
    """
    return Client(url or os.environ.get(VARIABLE) or DEFAULT_URL, token)


def scores(
    asked: Client, problems: Sequence[str], answers: Sequence[str], *, cases: Iterable[str], deadline_s: float
) -> list[float | None]:
    """Returns the reward of each answer; None for one that is masked or has no verdict in time.

    An answer that is too long to be code is no request: it earns what an answer without code does.

    Args:
        asked: The client.
        problems: Name of the problem of each answer.
        answers: The models' whole answers.
        cases: Names of the cases to judge; empty for the device's default case.
        deadline_s: Seconds until the verdicts must be there.

    Raises:
        UsageError: The server refuses a request, such as one for an unknown problem.
    """
    found: list[float | None] = [NO_KERNEL] * len(answers)
    places = [place for place, answer in enumerate(answers) if len(answer) <= MAX_CODE_CHARACTERS]
    names = [*cases]
    requests = [{"problem": problems[place], "answer": answers[place], "cases": names} for place in places]
    for place in places:
        found[place] = None
    try:
        for place, verdict in zip(places, asked.stream(requests, deadline_s=deadline_s), strict=True):
            found[place] = _reward(verdict)
    except DeadlineExceeded:  # the others stay masked
        pass
    return found


def _reward(verdict: Verdict) -> float | None:
    return None if verdict.is_open else verdict.reward


def text_of(completion: Any) -> str:
    """Returns the text of a completion: a string, or the last message of the assistant in a list."""
    if isinstance(completion, str):
        return completion
    replies = [one for one in completion or () if isinstance(one, dict) and one.get("role", "assistant") == "assistant"]
    content = replies[-1].get("content") if replies else ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
