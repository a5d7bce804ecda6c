"""Tests compilers that run side by side: one that fails for sure ends the others."""

from __future__ import annotations

from pathlib import Path

from harness.emulator.processes import run_together

FAILING = ["/bin/sh", "-c", "echo refused; exit 3"]
ENDLESS = ["/bin/sh", "-c", "echo begun; while :; do sleep 1; done"]


def test_a_failure_that_decides_ends_the_others(tmp_path: Path) -> None:
    failed, ended = run_together([FAILING, ENDLESS], tmp_path, lambda index, failed: index == 0)
    assert (failed.status, failed.output, failed.was_ended) == (3, "refused\n", False)
    assert ended.was_ended
    assert not ended.was_killed  # nobody ran out of memory


def test_other_failures_let_the_others_finish(tmp_path: Path) -> None:
    done = ["/bin/sh", "-c", "echo done"]
    results = run_together([FAILING, done, FAILING], tmp_path, lambda index, failed: False)
    assert [(result.status, result.was_ended) for result in results] == [(3, False), (0, False), (3, False)]
    assert results[1].output == "done\n"


def test_a_compiler_that_somebody_kills_was_killed(tmp_path: Path) -> None:
    (killed,) = run_together([["/bin/sh", "-c", "kill -KILL $$"]], tmp_path)
    assert killed.was_killed


def test_many_that_fail_at_once_are_ended_without_an_error(tmp_path: Path) -> None:
    for _ in range(50):  # the first failure ends the others while they end by themselves
        results = run_together([["false"]] * 6, tmp_path, lambda index, failed: True)
        assert not [result for result in results if result.status == 0]
