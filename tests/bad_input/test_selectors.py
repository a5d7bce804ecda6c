"""Tests conflicting and wrong selectors and options; tests/commands has the plain cases."""

from __future__ import annotations

import pytest

from tests.bad_input.conftest import Place, solution


def test_what_is_chosen_twice_is_judged_once(new_place: Place) -> None:
    path = new_place.write("solutions/tiny/one.py", solution())
    (new_place.root / "link.py").symlink_to(path)
    ran = new_place(
        "evaluate", "tiny/one", "tiny", path, "link.py", "tiny/one", "--problem", "tiny", "--case", "odd",
        "--case", "odd", "--device", "cpu", "--json", "--fresh",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert [(row["solution"], row["case"]) for row in ran.rows] == [("tiny/one", "odd")]


def test_the_only_problem_is_the_one_of_a_file(new_place: Place) -> None:
    new_place.write("one.py", solution())
    what = ("evaluate", "one.py", "--case", "odd", "--device", "cpu", "--json")
    (row,) = new_place(*what).rows
    assert (row["problem"], row["status"]) == ("tiny", "PASSED")
    new_place.write("problems/other.py", (new_place.root / "problems" / "tiny.py").read_text())
    ran = new_place(*what)
    assert ran.code == 2
    assert "name the problem that it solves with --problem" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evalute"], "Did you mean 'evaluate'?"),
        (["evaluate", "tinny"], "Did you mean 'tiny'?"),
        (["evaluate", "tiny"], "problem 'tiny' has no solutions"),
        (["evaluate", "x.py", "--problem", "tinny"], "Did you mean 'tiny'?"),
        (["evaluate", "a.py", "--problem", "tiny", "--case", "od"], "Did you mean 'odd'?"),
        (["evaluate", "a.py", "--problem", "tiny", "--set", "m=3"], "no constant 'm'. Known: n."),
        (["evaluate", "a.py", "--problem", "tiny", "--set", "n=four"], "'four' is not a Python literal"),
        (["evaluate", "a.py", "--problem", "tiny", "--set", "n=4", "--set", "n=5"], "--set sets 'n' twice: 4 and 5"),
        (["evaluate", "a.py", "--problem", "tiny", "--set", "n=" + "(" * 500], "not a Python literal"),
        (["evaluate", "a.py", "--problem", "missing/problem.py"], "problem missing/problem.py: no such file"),
        (["evaluate", "a.py", "--problem", "problems/"], "problem problems/: not a problem's file"),
        (["evaluate", "--root", "nowhere"], "there is no folder"),
        (["render", "tiny"], "no template 'tiny'"),
        (["render", "demo", "--variant", "smal"], "Did you mean 'small'?"),
        (["render", "demo", "-p", "thread=4", "-o", "-"], "Did you mean 'threads'?"),
        (["list", "problem"], "problems"),
        (["show", "f" * 5000], "no record"),
    ],
)
def test_wrong_choices_name_the_nearest_right_one(place: Place, arguments: list[str], words: str) -> None:
    place.write("a.py", solution())
    place.write("templates/demo/solution.py.j2", "{{ threads }}\n")
    place.write(
        "templates/demo/params.toml",
        'problem = "tiny"\n[parameters.threads]\ntype = "int"\ndefault = 4\nchoices = [4]\nmeaning = "m"\n'
        "[variants.small]\n",
    )
    ran = place(*arguments)
    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert place.left_behind() == []
