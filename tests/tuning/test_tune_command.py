"""Tests ``tune`` as a user runs it: on the emulator, killed, twice at once, and with wrong input."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tuning.conftest import PARAMS, SOLUTION
from tests.tuning.test_results import SEARCH

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
#: The longest that a search may take to begin or end on a busy machine.
LIMIT_S = 120.0
MANY = PARAMS.replace("choices = [1, 2, 4]", "range = [1, 16]").replace("step * width <= 64", "step * width <= 128")


def records(home: Path) -> list[str]:
    """The digests of all solutions of a store's records, each as often as it was judged."""
    if not (home / "store.db").exists():
        return []
    with sqlite3.connect(f"file:{home}/store.db?mode=ro", uri=True, timeout=LIMIT_S) as connection:
        has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchone()
        return [digest for (digest,) in connection.execute("SELECT digest FROM records")] if has_table else []


def begun(root: Path, home: Path, *options: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "harness", "tune", "tanh", "--device", "cpu", *options]
    env = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(words, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_records(home: Path, number: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LIMIT_S
    while len(records(home)) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_search_judges_every_setting_and_its_repetition_none(
    harness: Harness, make_project: Callable[..., Path], own_home: Path, tmp_path: Path
) -> None:
    root = make_project()
    words = ("tune", "tanh", "--device", "cpu", "-p", "width=8,16")
    ran = harness(*words, "-o", tmp_path / "out.json", cwd=root, HARNESS_HOME=str(own_home))
    assert ran.code == 1  # some settings failed
    assert "14 of 14 valid settings, strategy exhaustive" in ran.out
    assert "6 passed, 8 failed: 2 CRASHED, 2 LOAD_ERROR, 2 NOT_RENDERED, 2 WRONG_OUTPUT" in ran.out
    assert "kind=crash width=16" in ran.out
    assert "correctness only: the emulator measures no speed" in ran.out
    assert "winner" not in ran.out
    assert "note: idle changes nothing" in ran.err
    judged = records(own_home)
    assert len(judged) == len(set(judged)) == 12
    again = harness(*words, "--strategy", "pattern", "--lanes", "2", "--json", cwd=root, HARNESS_HOME=str(own_home))
    (told,) = again.rows
    assert (again.code, told["valid_settings"], len(told["trials"])) == (1, 14, 14)
    assert all(one["cost"] is None for one in told["trials"])
    assert records(own_home) == judged  # the store answered for all
    (listed,) = [json.loads((tmp_path / "out.json").read_text())]
    assert {one["records"][0] for one in listed["trials"] if one["records"]} == {
        one["records"][0] for one in told["trials"] if one["records"]
    }
    replayed = harness("tune", "--simulate", tmp_path / "out.json")
    assert (replayed.code, "has a time, as on CPU emulator" in replayed.err) == (2, True)
    found = harness("list", "records", HARNESS_HOME=str(own_home))
    assert "tanh kind=wrong width=16" in found.out


def test_settings_that_pass_end_with_0_and_checks_run(
    harness: Harness, make_project: Callable[..., Path], home: Path
) -> None:
    root = make_project()
    options = (
        "-p",
        "kind=right",
        "-p",
        "width=8",
        "--case",
        "small",
        "--budget",
        "2",
        "--seed",
        "7",
        "--lanes",
        "2",
        "--json",
    )
    ran = harness("tune", "tanh", "--check", *options, cwd=root)
    (told,) = ran.rows
    assert (ran.code, told["strategy"], told["cases"]) == (0, "random", ["small"])
    assert [one["status"] for one in told["trials"]] == ["PASSED", "PASSED"]
    shown = harness("show", told["trials"][0]["records"][0], "--json")
    assert shown.rows[0]["policy"]["check"]


def test_a_killed_search_continues_and_two_at_once_double_nothing_of_it(
    make_project: Callable[..., Path], own_home: Path
) -> None:
    root = make_project(MANY)
    options = ("-p", "kind=right", "-p", "width=8", "--json")
    first = begun(root, own_home, *options)
    await_records(own_home, 3, first)
    first.kill()
    first.communicate()
    kept = records(own_home)
    assert len(kept) >= 3
    both = [begun(root, own_home, *options, "--strategy", strategy) for strategy in ("random", "pattern")]
    results = [one.communicate(timeout=LIMIT_S) for one in both]
    assert [one.returncode for one in both] == [0, 0], results
    for out, _ in results:
        told = json.loads(out)
        assert len(told["trials"]) == told["valid_settings"] == 16
        assert told["is_finished"]
    judged = records(own_home)
    assert set(kept) < set(judged)
    assert len(set(judged)) == 16
    assert all(judged.count(digest) == 1 for digest in kept)


def test_an_interrupt_prints_what_was_found_and_how_to_go_on(
    make_project: Callable[..., Path], own_home: Path, tmp_path: Path
) -> None:
    root = make_project(MANY)
    file = tmp_path / "so_far.json"
    process = begun(root, own_home, "-p", "kind=right", "-o", str(file))
    await_records(own_home, 3, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted: the store has all results above; run the same command again to continue" in out
    assert json.loads(file.read_text())["is_finished"] is False


def test_the_space_is_counted_without_judging(harness: Harness, make_project: Callable[..., Path]) -> None:
    root = make_project()
    ran = harness("tune", "tanh", "--count", cwd=root, HARNESS_HOME="/nowhere")
    assert ran.code == 0
    assert "step: 1, 2, 4, when kind == 'right'" in ran.out
    assert "26 valid settings" in ran.out
    narrowed = harness("tune", "tanh", "--count", "--json", "-p", "step=4", "-p", "width=8,32", cwd=root)
    assert narrowed.rows[0]["valid_settings"] == 5  # step is 4 also where it does not count
    assert "note: " in narrowed.err
    bundled = harness("tune", "group_norm", "--count", "-p", "threads=64,128,256", "-p", "fusion=fused")
    assert "24 valid settings" in bundled.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a template or a problem"),
        (("tan",), "no template 'tan'"),
        (("../tanh",), "no template '../tanh'"),
        (("tanh", "-p", "stepp=1"), "no parameter 'stepp'. Did you mean 'step'"),
        (("tanh", "-p", "step=3"), "cannot be 3; allowed: int, one of 1, 2, 4"),
        (("tanh", "-p", "step"), "is not KEY=VALUE"),
        (("tanh", "-p", "step=1", "-p", "step=2"), "sets 'step' twice"),
        (("tanh", "-p", "kind=right", "-p", "step=4", "-p", "width=32"), "excludes every one with"),
        (("tanh", "--budget", "0"), "Invalid value for '--budget'"),
        (("tanh", "--budget", "1e9"), "Invalid value for '--budget'"),
        (("tanh", "--minutes", "nan"), "Invalid value for '--minutes'"),
        (("tanh", "--minutes", "-1"), "Invalid value for '--minutes'"),
        (("tanh", "--seed", "-1"), "Invalid value for '--seed'"),
        (("tanh", "--strategy", "best"), "Invalid value for '--strategy'"),
        (("tanh", "--seeds", "3"), "--seeds needs --simulate"),
        (("tanh", "--case", "smal"), "no case 'smal'"),
        (("tanh", "--set", "m=1"), "'m'"),
        (("tanh", "--case", "small", "--set", "n=1"), "cannot be used together"),
        (("tanh", "--check", "--device", "cuda:0"), "--check runs on the CPU emulator"),
        (("tanh", "--device", "cuda", "--lanes", "2"), "--lanes: a GPU has one lane"),
        (("tanh", "--device", "gpu"), "--device 'gpu'"),
        (("tanh", "--device", "cpu", "--write", "best"), "--write needs a GPU"),
        (("tanh", "--device", "cuda", "--write", "../../best"), "not a valid name"),
        (("tanh", "--device", "cuda", "--write", "wide"), "declares a variant of this name"),
        (("tanh", "--device", "cuda", "--write", "mine"), "is not rendered; choose another name"),
        (("tanh", "-o", "no/such/folder/x.json"), "there is no folder"),
        (("--simulate", "none.json"), "cannot read none.json"),
        (("--simulate", "templates/tanh/params.toml"), "is not JSON"),
        (("tanh", "--simulate", "none.json"), "leave out the template"),
        (("--simulate", "none.json", "--strategy", "nsga2"), "replays times alone"),
    ],
)
def test_wrong_input_ends_with_2_and_the_reason(
    harness: Harness, make_project: Callable[..., Path], arguments: tuple[str, ...], message: str
) -> None:
    root = make_project()
    (root / "solutions" / "tanh").mkdir(parents=True)
    (root / "solutions" / "tanh" / "mine.py").write_text("# by hand\n")
    ran = harness("tune", *arguments, cwd=root)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_a_template_that_is_wrong_is_an_error_and_no_data_point(
    harness: Harness, make_project: Callable[..., Path]
) -> None:
    for params, solution, message in (
        (PARAMS.replace("when = ", "whenever = "), SOLUTION, "unknown key 'whenever'. Did you mean 'when'"),
        (PARAMS, SOLUTION + "{{ nothing }}", "no parameter 'nothing'"),
        (PARAMS, "{% if %}", "solution.py.j2, line 1"),
        (PARAMS.replace("step * width <= 64", "__import__('os')"), SOLUTION, "__import__"),
    ):
        ran = harness("tune", "tanh", "--count", cwd=make_project(params, solution))
        assert ran.code == 2
        assert message in ran.err


def test_a_recorded_search_is_replayed(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(SEARCH.to_json())
    ran = harness("tune", "--simulate", path, "--strategy", "random", "--seeds", "3", "--seed", "5")
    assert ran.code == 0
    assert "t, recorded on a device: 3 settings, strategy random" in ran.out
    assert "3 of 3 seeds came within 1 % of the best; median 1 of 3 settings" in ran.out
    (told,) = harness("tune", "--simulate", path, "--json", "--budget", "1", "--seeds", "2").rows
    assert told["strategy"] == "pattern"
    assert [one["seed"] for one in told["replays"]] == [0, 1]
