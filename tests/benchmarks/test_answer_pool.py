"""Tests the pool of answers from which the strategies are replayed, with a judge that answers by a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks import answer_pool
from benchmarks.answer_pool import Member, read_pool, work
from harness.entries import Answer, Entry
from harness.errors import HarnessError, UsageError
from harness.records.record import Status
from tests.generation.test_rewards import BLANK, failed, passed

RIGHT = Member("p", "one", {"threads": 32}, lines=2, source="right\n")
POOL = [RIGHT, replace(RIGHT, defect="slip", source="wrong\n"), replace(RIGHT, defect="same", source="right too\n")]


class Judge:
    """Judges by the first word of a text, and keeps what it was asked."""

    asked: ClassVar[list[tuple[str, str, int | None]]] = []
    lost = False

    def __init__(self, device: str, home: str | None, *, check: bool):
        assert check is (device == "cpu")
        self.device = device

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stream(self, entries: Iterable[Entry], ahead: int) -> Iterator[Answer]:
        for entry in entries:
            text = str(entry.candidate)
            self.asked.append((self.device, text, entry.trials))
            record = passed(2.0) if text.startswith("right") else failed(Status.WRONG_OUTPUT)
            lost = Answer(entry, (), HarnessError("lost"))
            yield (
                lost
                if self.lost
                else Answer(entry, (record if self.device != "cpu" else replace(BLANK, status=record.status),))
            )


def run(monkeypatch: pytest.MonkeyPatch, *words: Any) -> list[tuple[str, str, int | None]]:
    monkeypatch.setattr(answer_pool, "members", lambda: list(POOL))
    monkeypatch.setattr(answer_pool, "Evaluator", Judge)
    monkeypatch.setattr(sys, "argv", ["answer_pool", *map(str, words)])
    Judge.asked = []
    assert work() == 0
    return Judge.asked


def test_a_gpu_times_what_is_right_and_passed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pool = tmp_path / "pool.json"
    with pytest.raises(UsageError, match="has no verdicts of the emulator"):
        run(monkeypatch, pool, "--device", "cuda:0")
    monkeypatch.setattr(Judge, "lost", True)
    assert len(run(monkeypatch, pool)) == 3
    assert not pool.exists()  # nothing has a verdict
    monkeypatch.setattr(Judge, "lost", False)
    assert len(run(monkeypatch, pool)) == 3
    assert [one.status for one in read_pool(pool)] == ["PASSED", "WRONG_OUTPUT", "PASSED"]
    assert run(monkeypatch, pool) == []
    assert run(monkeypatch, pool, "--device", "cuda:0", "--minutes", 1e-9) == []
    assert run(monkeypatch, pool, "--device", "cuda:0") == [("cuda:0", "right\n", 1)]
    assert [one.speedup for one in read_pool(pool)] == [2.0, None, None]
    assert run(monkeypatch, pool, "--device", "cuda:0") == []
    assert set(json.loads(pool.read_text())["environments"]) == {"cpu", "cuda:0"}


def test_every_member_of_the_pool_is_another_text() -> None:
    made = answer_pool.members()
    assert len({one.key for one in made}) == len({one.source for one in made}) == len(made)
