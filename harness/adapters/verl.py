"""A reward function for verl: ``compute_score`` of ``pkg://harness.adapters.verl``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from harness.adapters import client, scores
from harness.errors import HarnessError


class MaskedReward(HarnessError):
    """A sample cannot be scored, and verl has no way to leave it out."""


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    deadline_s: float = 3600.0,
    masked_score: float | None = None,
    cases: Iterable[str] = (),
    **_: Any,
) -> dict[str, float]:
    """Returns the reward of an answer as ``score``, and ``masked``: 1 if there is no reward.

    Args:
        data_source: Name of the data set; not used.
        solution_str: The model's whole answer.
        ground_truth: Name of a problem that the server knows.
        extra_info: What verl adds; not used.
        url: The server's address; None for ``HARNESS_SERVE_URL``, else this machine.
        token: The client's token; None for ``HARNESS_SERVE_TOKEN``.
        deadline_s: Seconds that the verdict may take.
        masked_score: Score of a masked sample, for runs that filter by ``masked``.
        cases: Names of the cases to judge; empty for the device's default case.

    Raises:
        MaskedReward: The sample is masked, and no ``masked_score`` is given.
        UsageError: The server refuses the request.
    """
    (score,) = await asyncio.to_thread(
        scores, client(url, token), [ground_truth], [solution_str], cases=cases, deadline_s=deadline_s
    )
    if score is None and masked_score is None:
        raise MaskedReward("this sample has no reward, which is no fault of its own; give masked_score to go on")
    return {"score": masked_score or 0.0 if score is None else score, "masked": float(score is None)}
