"""Tests what a search takes over from the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from harness.device.environment import code_digest
from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.records.store import Store
from harness.tuning.known import known_points
from harness.tuning.space import Point
from harness.tuning.template import Searched, searched


def keep(store: Store, text: str, speedup: float | None, *, code: str = "", device: str = "cuda:0") -> None:
    """Stores a record of a text; without a speedup it failed."""
    number = sum(1 for _ in store.records())
    store.add(
        EvaluationRecord(
            problem="tanh", solution="s", case="small", device=device, message="", seed="00",
            status=Status.CRASHED if speedup is None else Status.PASSED,
            digest=hashlib.sha256(text.encode()).hexdigest(), problem_digest="p", precision_class=PrecisionClass.FP32,
            speedup=None if speedup is None else {"forward": speedup}, record=f"{number:012x}", run="run-1",
            created_at=f"2026-01-01T00:00:{number:02}", environment={"harness_code": code or code_digest()},
        ),
        text,
    )  # fmt: skip


def text_of(found: Searched, point: Point) -> str:
    return found.text(point, found.body(point))


def test_known_settings_come_fastest_first_and_then_a_few_older_ones(
    make_project: Callable[..., Path], tmp_path: Path
) -> None:
    found = searched(make_project(), "tanh", {"kind": "right"})
    points = [found.space.at(number) for number in range(found.space.size)]
    with Store(tmp_path, writable=True) as store:
        assert known_points(store, found, "cuda:0") == ([], [])
        keep(store, text_of(found, points[0]), 1.0)
        keep(store, text_of(found, points[1]), None)
        keep(store, text_of(found, points[2]), 2.0)
        for number in range(3, 8):  # of an older harness: only the fastest three, and none that failed
            keep(store, text_of(found, points[number]), None if number == 7 else float(number), code="older")
        keep(store, text_of(found, points[8]), 9.0, device="cpu")
        keep(store, text_of(found, points[9]) + "# edited\n", 9.0)
        keep(store, "# by hand\n", 9.0)
        keep(store, "# template: tanh\n# parameters: {}\n", 9.0)
        known = known_points(store, found, "cuda:1")
        assert known.answered == [points[2], points[0], points[1]]
        assert known.older == [points[8], points[6], points[5]]
    narrowed = searched(make_project(), "tanh", {"kind": "wrong"})
    with Store(tmp_path) as store:
        assert known_points(store, narrowed, "cuda:0") == ([], [])
