"""Tests the table of ``evaluate`` on terminals of several widths, and in a pipe."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main
from harness.records.record import EvaluationRecord, Finding, PrecisionClass, Status, TensorReport
from harness.records.store import Store
from harness.report.table import VerdictTable, total_line, worst_of

WIDTHS = (60, 80, 120, 200)
LONG = "conv_transpose2d_gelu_group_norm/implicit_gemm_with_shared_tiles"


class Terminal(io.StringIO):
    """A stream that takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


def record(solution: str = "group_norm/fused", **more: Any) -> EvaluationRecord:
    fields: dict[str, Any] = {
        "problem": "group_norm",
        "case": "odd",
        "device": "cpu",
        "status": Status.PASSED,
        "message": "",
        "seed": "ab",
        "digest": solution,
        "problem_digest": "p",
        "precision_class": PrecisionClass.FP32,
        "outputs": (TensorReport("output", (2,), "float32", ok=True, share=0.03),),
        "gradients": (TensorReport("x", (2,), "float32", ok=True, share=0.06),),
        "total_s": 1.25,
        "record": "123456789abc",
    }
    return EvaluationRecord(solution=solution, **{**fields, **more})


def timed(solution: str, ratio: float, **more: Any) -> EvaluationRecord:
    both = ("forward", "forward_backward")
    mine, theirs = [1.0, 1.01, 0.99], [ratio, ratio * 1.01, ratio * 0.99]
    return record(
        solution,
        device="cuda:0",
        forward_ms=1.0,
        forward_backward_ms=3.0,
        speedup=dict.fromkeys(both, ratio),
        speedup_interval=dict.fromkeys(both, (ratio * 0.99, ratio * 1.01)),
        samples={name: {"candidate": {"samples_ms": mine}, "eager": {"samples_ms": theirs}} for name in both},
        **more,
    )


def shown(*records: EvaluationRecord, width: int | None, monkeypatch: pytest.MonkeyPatch, verbose: bool = False) -> str:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO() if width is None else Terminal()
    table = VerdictTable(stream, verbose=verbose)
    table.expect([one.solution for one in records], [one.case for one in records])
    for one in records:
        table.add(one, stored=False)
    table.finish()
    return re.sub(r"\x1b\[\d*m", "", stream.getvalue())  # bold stays without colours


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verbose", [False, True])
def test_no_width_cuts_a_status_or_a_number(width: int, verbose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = record(LONG, status=Status.WRONG_GRADIENT, message="gradient of x: too far")
    lines = shown(timed("group_norm/fused", 2.37), wrong, width=width, monkeypatch=monkeypatch, verbose=verbose)
    head, first, second, *_ = lines.splitlines()
    assert max(map(len, (head, first, second))) <= width
    assert "PASSED" in first
    assert "WRONG_GRADIENT" in second
    if "forward" in head:
        assert "1.00 ms 2.37x [2.35, 2.39]" in first
    if "time" in head:
        assert first.endswith("1.2 s")


@pytest.fixture
def on_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs a command in this process; the lines that a stream of 60 columns gets."""
    with Store(tmp_path, writable=True) as store:
        store.add(record(message="far off " * 20, run="run-00000001", created_at="2026-01-01T00:00:00+00:00"), "text")

    def run(stream: io.StringIO, *arguments: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", "60")
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setenv("HARNESS_HOME", str(tmp_path))
        main.main([*arguments], standalone_mode=False)
        return stream.getvalue().splitlines()

    return run


@pytest.mark.parametrize("what", ["problems", "templates", "solutions", "runs", "records"])
def test_lists_fit_a_narrow_terminal_and_stay_whole_in_a_pipe(on_a_screen: Callable[..., list[str]], what: str) -> None:
    narrow, whole = (on_a_screen(stream, "list", what) for stream in (Terminal(), io.StringIO()))
    assert max(map(len, narrow)) <= 60 < max(map(len, whole))
    assert [line.split()[0] for line in whole[1:]] == [line.split()[0] for line in narrow if line[0] != " "][
        -len(whole) + 1 :
    ]
    if what in ("problems", "templates"):  # nothing is left out
        assert set(" ".join(whole[1:]).split()) <= set(" ".join(narrow).split())


def test_prose_wraps_between_words_and_commands_stay_whole(on_a_screen: Callable[..., list[str]]) -> None:
    narrow, whole = (on_a_screen(stream, "show", "1234") for stream in (Terminal(), io.StringIO()))
    assert " ".join(" ".join(whole).split()) == " ".join(" ".join(narrow).split())
    assert ("far off " * 20).rstrip() in [line.rstrip() for line in whole]
    assert max(len(line) for line in narrow if line.lstrip().startswith("far off")) <= 60
    assert [line for line in whole if "python -m harness" in line] == [line for line in narrow if "python -m" in line]


def test_columns_go_in_the_stated_order(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [
        shown(timed("a/b", 2.0), width=width, monkeypatch=monkeypatch).splitlines()[0].split() for width in WIDTHS[::-1]
    ]
    assert heads[0] == ["solution", "status", "cases", "error", "forward", "forward+backward", "time"]
    kept = [set(head) for head in heads]
    assert all(narrow <= wide for wide, narrow in itertools.pairwise(kept))
    assert kept[-1] == {"solution", "status", "forward"}


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = record(LONG * 3, status=Status.WRONG_OUTPUT, message="word " * 100)
    lines = shown(wrong, width=None, monkeypatch=monkeypatch).splitlines()
    assert lines[1].startswith(LONG * 3 + "  WRONG_OUTPUT")
    assert ("word " * 100).rstrip() in [line.rstrip() for line in lines]
    assert "\x1b" not in "".join(lines)


def test_a_solution_has_one_row_with_its_worst_case(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = record(case="full", status=Status.WRONG_OUTPUT, message="output: wrong")
    again = record(case="wide", status=Status.WRONG_OUTPUT, message="output: wrong too")
    text = shown(record(), wrong, again, record("group_norm/plain"), width=None, monkeypatch=monkeypatch)
    rows = [line.split() for line in text.splitlines() if "/3" in line or "/1" in line]
    assert [row[:3] for row in rows] == [
        ["group_norm/fused", "WRONG_OUTPUT", "1/3"],
        ["group_norm/plain", "PASSED", "1/1"],
    ]
    assert "group_norm/fused full and 1 other case: WRONG_OUTPUT\noutput: wrong\n" in text
    assert "output: wrong too" not in text
    assert "next: python -m harness show 123456789abc" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed: 1 WRONG_OUTPUT (2 solutions, 4 cases)"


def test_a_failure_names_the_file_and_the_line(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answer.py").write_text("")
    race = Finding("race", "k", 30, (), "synchronise", "two threads write")
    path = str(tmp_path / "answer.py")
    found = record(path, solution_path=path, status=Status.UNSAFE, message="race: two threads write", findings=(race,))
    built = record(path, solution_path=path, case="b", status=Status.BUILD_ERROR, message="line 7: no such name")
    text = shown(found, built, width=None, monkeypatch=monkeypatch)
    assert "  at answer.py:30\n" in text
    assert "  at answer.py:7\n" in text


def test_hostile_names_and_messages_stay_text(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = record("[red]x[/red]\x1b[2J", status=Status.CRASHED, message="[bold]m[/bold]\x1b[2J")
    text = shown(hostile, width=80, monkeypatch=monkeypatch)
    assert "\x1b" not in text
    assert "[red]x[/red]" in text
    assert "[bold]m[/bold]" in text


def test_what_several_solutions_have_in_common_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(kind: str, message: str) -> Finding:
        return Finding(kind, kernel=None, line=None, accesses=(), remedy="do it", message=message, level="report")

    both = found("no-own-kernel", "no kernel of its own ran: only gemm, relu"), found("robustness", "wrong")
    ones = [record(f"op/{number}", findings=both) for number in range(6)]
    table = shown(*ones, record("op/alone", findings=both[1:]), width=None, monkeypatch=monkeypatch)
    assert (
        "op/0, op/1, op/2 and 3 more: no-own-kernel: kernels of their own do none or little of the work; do it" in table
    )
    assert "op/0, op/1, op/2 and 4 more: reported: robustness (see `show 123456789abc`)" in table
    alone = shown(ones[0], width=None, monkeypatch=monkeypatch)
    assert "op/0: no-own-kernel: no kernel of its own ran: only gemm, relu; do it" in alone


def test_the_worst_case_is_a_failure_then_the_slowest() -> None:
    fast, slow, wrong = timed("a", 3.0), timed("a", 2.0), record("a", status=Status.CRASHED)
    assert worst_of([fast, slow]) is slow
    assert worst_of([fast, wrong, slow]) is wrong
    without = timed("a", 4.0, own_share=0.0)
    assert worst_of([fast, without]) is without


def test_the_totals_average_what_was_timed() -> None:
    line = total_line([timed("a", 2.0), timed("b", 8.0), record("c", device="cuda:0", own_share=0.0)])
    assert line.startswith("3 passed, 0 failed, 1 without a kernel of its own (3 solutions, 3 cases); forward 4.00x [")
    assert line.endswith("geometric mean over eager of 2 results")
