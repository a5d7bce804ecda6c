"""Tests the reports for continuous integration: JUnit files, GitHub's summaries and annotations."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import Status
from harness.report.ci import MOST_ANNOTATIONS, CaseResult, github_annotations, github_summary, junit_xml

HOSTILE = "]]>\x1b[2J\x00<script>&\udc80\n::error::second line\r%0A"


def result(status: Status | None, message: str = "", **more: Any) -> CaseResult:
    return CaseResult(**{"problem": "p", "solution": "p/a", "case": "odd", **more}, status=status, message=message)


def test_each_result_is_a_test_of_its_problem_s_suite() -> None:
    found = [
        result(Status.PASSED, seconds=1.5),
        result(Status.WRONG_OUTPUT, "far off\nby much", case="full", seconds=0.5, place="answer.py:3"),
        result(Status.HARNESS_ERROR, "disk", problem="q"),
        result(None, "no such case", problem="q"),
    ]
    first, second = ElementTree.fromstring(junit_xml(found))
    assert [first.get(name) for name in ("name", "tests", "failures", "errors", "time")] == [
        "p",
        "2",
        "1",
        "0",
        "2.000",
    ]
    assert [second.get(name) for name in ("name", "tests", "failures", "errors")] == ["q", "2", "0", "2"]
    passed, failed = first
    assert list(passed) == []
    (failure,) = failed
    assert (failure.tag, failure.get("type"), failure.get("message")) == ("failure", "WRONG_OUTPUT", "far off")
    assert failure.text == "answer.py:3\nfar off\nby much"
    assert [case[0].tag for case in second] == ["error", "error"]
    assert second[1][0].get("type") == "NO_VERDICT"


def test_hostile_words_stay_words() -> None:
    found = [result(Status.CRASHED, HOSTILE, solution=HOSTILE, case=HOSTILE, problem=HOSTILE)]
    (suite,) = ElementTree.fromstring(junit_xml(found))
    assert "<script>" in (suite[0][0].text or "")
    (line,) = github_annotations(found)
    assert "\n" not in line
    assert "\r" not in line
    assert line.count("::") == 4  # the hostile text's own, behind those of the command
    assert line.partition("::error ")[2].partition("::")[0].count(",") == 0
    summary = github_summary(found, "0 passed, 1 failed")
    assert "\x1b" not in summary
    assert len(summary.splitlines()) == 5
    assert "<script>" not in summary.replace("\\<", "")


def test_ten_solutions_are_annotated_once_each() -> None:
    found = [result(Status.TIMEOUT, "t", solution=f"s{number // 2}", place="a.py:7") for number in range(60)]
    lines = github_annotations([result(Status.PASSED), *found])
    assert len(lines) == MOST_ANNOTATIONS == len(set(lines))
    assert lines[0] == "::error file=a.py,line=7,title=s0 odd%3A TIMEOUT::t"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_run_writes_both(harness: Callable[..., Any], tmp_path: Path, as_json: bool) -> None:
    (tmp_path / "answer.py").write_text("import no_such_module\n")
    what = ("evaluate", tmp_path / "answer.py", "--problem", "group_norm", "--case", "odd", "--device", "cpu")
    summary = tmp_path / "summary.md"
    more = ["--json"] if as_json else []
    ran = harness(*what, "--junit", tmp_path / "j.xml", "--github", *more, GITHUB_STEP_SUMMARY=str(summary))
    assert ran.code == 1
    (suite,) = ElementTree.fromstring((tmp_path / "j.xml").read_bytes())
    assert (suite.get("name"), suite[0][0].get("type")) == ("group_norm", "LOAD_ERROR")
    assert "no_such_module" in summary.read_text()
    assert "::error " in ran.err
    assert "::error " not in ran.out


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--github"], "GITHUB_STEP_SUMMARY is not set"), (["--junit", "no/such/j.xml"], "there is no folder no/such")],
)
def test_what_cannot_be_written_is_told_before_anything_is_judged(
    harness: Callable[..., Any], options: list[str], words: str
) -> None:
    ran = harness("evaluate", "group_norm/plain", "--device", "cpu", *options, GITHUB_STEP_SUMMARY="")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--github"], "--github: cannot write /dev/full"), (["--junit", "/dev/full"], "cannot write /dev/full: it is")],
)
def test_a_report_that_cannot_be_written_is_named(
    harness: Callable[..., Any], tmp_path: Path, options: list[str], words: str
) -> None:
    (tmp_path / "answer.py").write_text("import no_such_module\n")
    what = ("evaluate", tmp_path / "answer.py", "--problem", "group_norm", "--case", "odd", "--device", "cpu")
    ran = harness(*what, *options, GITHUB_STEP_SUMMARY="/dev/full")
    assert ran.code == 2
    assert words in ran.err
