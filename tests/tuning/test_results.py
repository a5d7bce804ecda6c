"""Tests the file of a search: it is read back as it was written, and a wrong one is refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.tuning.results import Recorded, Trial, read_recorded
from harness.tuning.simulation import replays
from harness.tuning.strategies import STRATEGIES

TRIALS = (
    Trial({"a": 1, "b": "x"}, "PASSED", 0.5, 1.25, ("r1",)),
    Trial({"a": 2, "b": "x"}, "CRASHED", records=("r2",), message="it ended"),
    Trial({"a": 4, "b": "y"}, "PASSED", 0.75, None, ("r3", "r4")),
)
SEARCH = Recorded("t", "p", "a device", ("full",), ("a", "b"), {"a": 1, "b": "x"}, TRIALS)


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    told = json.loads(SEARCH.to_json())
    change(told)
    return json.dumps(told)


def put(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda told: told.update({key: value})


def put_first(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda told: told["trials"][0].update({key: value})


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(SEARCH.to_json())
    assert read_recorded(path) == SEARCH
    path.write_text("\ufeff" + SEARCH.to_json())
    assert read_recorded(path) == SEARCH


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no file of a search"),
        ('{"format": "other"}', "is no file of a search"),
        ('{"problem": "p", "status": "PASSED"}\n{"problem": "p"}', "is not JSON"),
        (changed(lambda told: told.pop("device")), "'device' is missing"),
        (changed(put("trials", {})), "trials must be a list"),
        (changed(put("parameters", [1])), "lists of names"),
        (changed(put("template", None)), "must be a text"),
        (changed(put("start", {"a": 1})), "exactly the parameters a, b"),
        (changed(put("trials", [1])), "trial 1: it is not an object"),
        (changed(put_first("settings", {"a": 1, "b": "x", "c": 1})), "trial 1: .*exactly the parameters"),
        (changed(put_first("settings", {"a": [1], "b": "x"})), "trial 1: the value of a must be"),
        (changed(put_first("settings", {"a": float("nan"), "b": "x"})), "trial 1: the value of a must be"),
        (changed(put_first("cost", -1.0)), "trial 1: cost must be a positive number"),
        (changed(put_first("cost", float("inf"))), "trial 1: cost must be a positive number"),
        (changed(put_first("cost", 10**400)), "trial 1: cost must be a positive number"),
        (changed(put_first("cost", True)), "trial 1: cost must be a positive number"),
        (changed(put_first("cost", "0.5")), "trial 1: cost must be a positive number"),
        (changed(put_first("status", "CRASHED")), "trial 1: it has a cost and the status CRASHED"),
        (changed(lambda told: told["trials"][2].pop("status")), "trial 3: 'status' is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_recorded(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(UsageError, match=r"cannot read|is not JSON"):
            read_recorded(path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not JSON"):
        read_recorded(tmp_path / "bytes")


def test_a_search_that_cannot_be_replayed_is_refused() -> None:
    again = Recorded("t", "p", "d", (), ("a", "b"), SEARCH.start, (*TRIALS, TRIALS[0]))
    with pytest.raises(UsageError, match="has a setting twice"):
        replays(again, "random", None, [0])
    untimed = Recorded("t", "p", "CPU emulator", (), ("a", "b"), SEARCH.start, TRIALS[1:2])
    with pytest.raises(UsageError, match="has a time, as on CPU emulator"):
        replays(untimed, "random", None, [0])
    mixed = Recorded(
        "t", "p", "d", (), ("a",), {"a": 1}, (Trial({"a": "x"}, "PASSED", 1.0), Trial({"a": 3}, "CRASHED"))
    )
    for strategy in STRATEGIES:
        (found,) = replays(mixed, strategy, None, [0])
        assert found.lead == 1.0


def test_a_replay_begins_with_the_defaults_and_ends_at_the_best() -> None:
    (found,) = replays(SEARCH, "exhaustive", None, [0])
    assert (found.evaluations, found.judged, found.lead) == (1, 1, 1.0)
    other = Recorded("t", "p", "d", (), ("a", "b"), {"a": 2, "b": "x"}, TRIALS)
    (failed,) = replays(other, "exhaustive", 1, [0])
    assert (failed.evaluations, failed.judged, failed.lead) == (None, 1, None)
