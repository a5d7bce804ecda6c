"""A reward function for TRL's trainers, such as ``GRPOTrainer``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.adapters import client, scores, text_of
from harness.errors import UsageError


class KernelReward:
    """A reward function: ``GRPOTrainer(reward_funcs=[KernelReward()], ...)``.

    The dataset needs a column ``problem`` with the names of problems that the server knows. A
    masked sample gets None, which TRL leaves out.

    Args:
        url: The server's address; None for ``HARNESS_SERVE_URL``, else this machine.
        token: The client's token; None for ``HARNESS_SERVE_TOKEN``.
        deadline_s: Seconds that one call may take.
        cases: Names of the cases to judge; empty for the device's default case.

    Raises:
        UsageError: The address is invalid.
    """

    __name__ = "kernel_reward"

    def __init__(
        self, url: str | None = None, token: str | None = None, *, deadline_s: float = 3600.0, cases: Iterable[str] = ()
    ):
        self._client = client(url, token)
        self._deadline_s = deadline_s
        self._cases = tuple(cases)

    def __call__(
        self, completions: Sequence[Any], problem: Sequence[str] | None = None, **columns: Any
    ) -> list[float | None]:
        """Returns the reward of each completion, a text or a list of messages.

        Raises:
            UsageError: The dataset has no column ``problem``, or the server refuses a request.
        """
        if problem is None:
            raise UsageError("the dataset needs a column 'problem' with the name of each sample's problem")
        answers = [text_of(one) for one in completions]
        return scores(self._client, problem, answers, cases=self._cases, deadline_s=self._deadline_s)
