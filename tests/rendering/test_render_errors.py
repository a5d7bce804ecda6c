"""Tests messages about a template's mistakes, with file and line, and that rendering is deterministic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import TemplateError
from harness.rendering.render_templates import find_template, render_text

MakeProject = Callable[..., Path]
GOOD = "THREADS = {{ threads }}\nMODE = '{{ mode }}'\n"


def rendered(root: Path, **settings: bool | int | float | str) -> str:
    return render_text(root, find_template(root, "demo"), settings)


def body(text: str) -> str:
    return text.split("\n", 4)[4]


def test_parameters_and_includes_are_filled_in(make_project: MakeProject) -> None:
    root = make_project()
    assert body(rendered(root)) == "THREADS = 128\n"
    assert body(rendered(root, mode="fancy", threads=256)) == "THREADS = 256\nFANCY = True\n"


def test_rendering_is_deterministic(make_project: MakeProject) -> None:
    root = make_project()
    settings = {"mode": "fancy", "threads": 256}
    backwards = dict(reversed(settings.items()))
    assert rendered(root, **settings) == rendered(root, **backwards)
    assert rendered(root, **settings) != rendered(root)


def test_included_files_may_use_what_the_entry_file_sets(make_project: MakeProject) -> None:
    root = make_project(
        solution="{% set wide = threads > 128 %}\n" + GOOD + '{% include "common/fancy.txt" %}\n',
        fancy="WIDE = {{ wide }}\n",
    )
    assert body(rendered(root, threads=256)).endswith("WIDE = True\n")
    (root / "templates" / "common" / "fancy.txt").write_text("WIDE = {{ wider }}\n")
    with pytest.raises(TemplateError, match="'wider'"):
        rendered(root)


def test_nothing_is_escaped(make_project: MakeProject) -> None:
    root = make_project(solution=GOOD + "a < b && c\n", fancy="")
    assert "a < b && c\n" in rendered(root)


def test_cpp_filter(make_project: MakeProject) -> None:
    root = make_project(solution=GOOD + "{{ (threads > 1) | cpp }} {{ 0.5 | cpp }} {{ threads | cpp }}\n")
    assert "true 0.5f 128\n" in rendered(root)


TEMPLATE_MISTAKES = {
    "undeclared name": (
        {"solution": f"{GOOD}\n{{{{ thread }}}}\n"},
        ["demo/solution.py.j2, line 4", "'thread'", "'threads'"],
    ),
    "undeclared name in a branch not taken": (
        {"solution": f"{GOOD}{{% if threads > 5000 %}}\n{{{{ warps }}}}\n{{% endif %}}\n"},
        ["demo/solution.py.j2, line 4", "'warps'", "params.toml"],
    ),
    "undeclared name in an included file": (
        {"solution": GOOD + '{% include "common/fancy.txt" %}', "fancy": "a\nb {{ lanes }}\n"},
        ["common/fancy.txt, line 2", "'lanes'"],
    ),
    "unused parameter": ({"solution": "{{ threads }}\n"}, ["'mode'", "no file", "uses it"]),
    "syntax": ({"solution": GOOD + "{% if threads %}\n"}, ["demo/solution.py.j2, line 3", "endif"]),
    "syntax in an included file": (
        {"solution": GOOD + '{% include "common/fancy.txt" %}', "fancy": "\n{{ 1 + }}\n"},
        ["common/fancy.txt, line 2"],
    ),
    "unknown filter": ({"solution": GOOD + "{{ threads | hex }}\n"}, ["demo/solution.py.j2, line 3", "hex"]),
    "missing include": (
        {"solution": GOOD + '{% include "common/fncy.txt" %}'},
        ["common/fncy.txt", "does not exist", "demo/solution.py.j2", "'common/fancy.txt'"],
    ),
    "include outside the templates": (
        {"solution": GOOD + '{% include "../problems/scale.py" %}'},
        ["../problems/scale.py", "does not exist"],
    ),
    "include by expression": (
        {"solution": GOOD + '{% include "common/" ~ mode ~ ".txt" %}'},
        ["demo/solution.py.j2", "computes its file name"],
    ),
    "failing expression": (
        {"solution": GOOD + "\n{{ threads // (threads - threads) }}\n"},
        ["demo/solution.py.j2, line 4", "zero"],
    ),
    "missing attribute": (
        {"solution": GOOD + "{{ threads.warps }}\n"},
        ["demo/solution.py.j2, line 3", "warps"],
    ),
}


@pytest.mark.parametrize(("files", "pieces"), TEMPLATE_MISTAKES.values(), ids=TEMPLATE_MISTAKES.keys())
def test_template_mistake_is_located(make_project: MakeProject, files: dict[str, str], pieces: list[str]) -> None:
    root = make_project(**files)
    with pytest.raises(TemplateError) as refused:
        rendered(root)
    for piece in pieces:
        assert piece in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "pieces"),
    [
        ({"thread": 64}, ["no parameter 'thread'", "'threads'"]),
        ({"threads": 16}, ["'threads'", "16", "int from 32 to 1024, a multiple of 32"]),
        ({"threads": 33}, ["'threads'", "33", "a multiple of 32"]),
        ({"threads": True}, ["'threads'", "True"]),
        ({"threads": "64"}, ["'threads'", "'64'"]),
        ({"mode": "wild"}, ["'mode'", "'wild'", "one of plain, fancy"]),
        ({"mode": "fancy", "threads": 32}, ["two warps", "mode=fancy", "threads=32"]),
    ],
)
def test_wrong_setting_is_refused(
    make_project: MakeProject, settings: dict[str, bool | int | str], pieces: list[str]
) -> None:
    root = make_project()
    with pytest.raises(TemplateError) as refused:
        rendered(root, **settings)
    for piece in ["'demo'", *pieces]:
        assert piece in str(refused.value)


def test_setting_without_effect_is_refused(make_project: MakeProject) -> None:
    root = make_project(solution="{% if mode == 'fancy' %}{{ threads }} threads{% endif %}")
    assert body(rendered(root, mode="fancy", threads=256)) == "256 threads"
    with pytest.raises(TemplateError, match="'threads' has no effect"):
        rendered(root, threads=256)


@pytest.mark.parametrize("name", ["dmo", "../demo", "de mo", ""])
def test_unknown_template_is_refused(make_project: MakeProject, name: str) -> None:
    root = make_project()
    with pytest.raises(TemplateError, match="no template"):
        find_template(root, name)


def test_template_of_no_problem_is_refused(make_project: MakeProject) -> None:
    root = make_project()
    (root / "problems" / "scale.py").rename(root / "problems" / "scales.py")
    with pytest.raises(TemplateError, match=r"no problem 'scale'.*'scales'"):
        find_template(root, "demo")
