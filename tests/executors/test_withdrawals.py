"""Tests that a withdrawal is seen whenever it arrives, also while the feed reads requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from harness.executors.lanes import Lanes


class Feed:
    """A queue with one candidate, and the source of its requests; the withdrawal is read at a given moment."""

    def __init__(self, moment: str):
        self._moment = moment
        self._tags: list[str] = []
        self.is_over = False

    def _arrive(self, moment: str) -> None:
        if moment == self._moment:
            self._moment = ""
            self._tags.append("7")

    def fill(self, _: int) -> Iterator[Any]:
        self._arrive("fill")
        yield from ()

    def take(self) -> None:
        return None

    def can_read(self, _: int) -> bool:
        self._arrive("can_read")
        return False

    def has_room(self, _: int) -> bool:
        return True

    def read(self) -> None:
        self._arrive("read")

    def withdrawn(self) -> list[str]:
        tags, self._tags = self._tags, []
        return tags

    def withdraw(self, tag: str) -> bool:
        self.is_over = tag == "7"
        return True


def wait(_watched: object, _seconds: object) -> list[object]:
    raise AssertionError("it waits although a withdrawal was read")


@pytest.mark.parametrize("moment", ["fill", "read", "can_read"])
def test_a_withdrawal_that_is_read_beside_requests_is_not_forgotten(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.executors.lanes.connection.wait", wait)
    lanes = Lanes("cpu", {}, *cast(Any, [None] * 3))  # neither builds nor starts a lane
    feed = cast(Any, Feed(moment))
    assert list(lanes.judge(feed, lambda _: None, None, feed, withdrawals=feed)) == []
    assert feed.is_over
