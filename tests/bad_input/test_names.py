"""Tests solution files with unusual names: they are judged, and messages can print the names."""

from __future__ import annotations

import os

import pytest

from tests.bad_input.conftest import Place, solution

NAMES = {
    "two words.py": "two words.py",
    "größe 寸法.py": "größe 寸法.py",
    os.fsdecode(b"bytes-\xff\xfe.py"): "bytes-\\udcff\\udcfe.py",
    "new\nline.py": "new\\x0aline.py",
    "\x1b[31mred\x1b]0;title\x07.py": "\\x1b[31mred\\x1b]0;title\\x07.py",
    "\u202eyp.turned.py": "\\u202eyp.turned.py",
    "[bold]markup[/bold].py": "[bold]markup[/bold].py",
    "'quote\".py": "'quote\".py",
    "x" * 252 + ".py": "x" * 60,
    "a.b.c.py": "a.b.c.py",
    "-dash.py": "-dash.py",
}


def test_odd_names_are_judged_kept_and_spelt_out(new_place: Place) -> None:
    own = [name for name in NAMES if not (name.isascii() and name.isprintable()) or name.startswith("-")]
    for name in NAMES:  # the same text is judged once; names that a worker may stumble over have texts of their own
        new_place.write(name, solution() + (f"# {name!a}\n" if name in own else ""))
    (new_place.root / "inner").mkdir()
    new_place.write("outer.py", solution() + "# outer\n")
    (new_place.root / "link.py").symlink_to("linked to")
    new_place.write("linked to", solution() + "# linked\n")
    chosen = ["--problem", "tiny", "--case", "odd", "--device", "cpu", "--forward-only", "--ahead", "0"]
    names = [*NAMES, "inner/../outer.py", "link.py"]
    ran = new_place("evaluate", *chosen, "--json", "--", *names)
    assert ran.code == 0, ran.out + ran.err
    assert [(row["solution"], row["status"]) for row in ran.rows] == [(name, "PASSED") for name in names]

    table = new_place("evaluate", *chosen, "--", *names)
    assert table.code == 0
    assert table.out.count("stored") == len(names) + 1  # and the line that explains it
    listed = new_place("list", "records")
    for name, shown in NAMES.items():
        assert shown in listed.out or name not in own
        assert shown[:20] in table.out
    for text in (table.out, listed.out):
        assert all(one.isprintable() or one == "\n" for one in text)
        assert "\u202e" not in text
    for row in ran.rows[2:5]:
        shown = new_place("show", row["record"])
        assert shown.code == 0, shown.err
        assert "has changed" not in shown.out
        assert "\x1b" not in shown.out
    assert new_place.left_behind() == []


def test_what_a_candidate_says_is_spelt_out_in_the_table(new_place: Place) -> None:
    new_place.write("loud.py", solution("raise ValueError('\\x1b[31mred \\x07 \\u202e [bold]')"))
    ran = new_place("evaluate", "loud.py", "--problem", "tiny", "--case", "odd", "--device", "cpu")
    assert ran.code == 1
    assert "ValueError: \\x1b[31mred \\x07 \\u202e [bold]" in ran.out
    assert "\x1b" not in ran.out
    assert new_place.left_behind() == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 300 + ".py", "no such file: xxx"),
        ("y" * 300, "is not a problem, solution, file or folder"),
        ("tiny/" + "z" * 300, "has no solution"),
        ("red\x1b[31m.py", "no such file: red\\x1b[31m.py"),
        (os.fsdecode(b"\xff.py"), "no such file: \\udcff.py"),
        ("", "is not a problem, solution, file or folder"),
        ("/", "no solution (*.py) in the folder /"),
        ("..", "no solution (*.py) in the folder .."),
        ("problems/tiny.py/x.py", "no such file: problems/tiny.py/x.py"),
    ],
)
def test_a_name_of_nothing_is_told(place: Place, name: str, words: str) -> None:
    ran = place("compare" if len(name) % 2 else "evaluate", name, "--problem", "tiny")
    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err
