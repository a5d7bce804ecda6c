"""Tests each rule of the static scan: it finds its target on the right lines, and nothing similar.

A line of a snippet that ends in ``!! rule`` must get a finding of that rule, every other line none.
"""

from __future__ import annotations

import re

import pytest

from harness.records.record import REPORT
from harness.scanning.rules import RULES
from harness.scanning.scan import scan
from tests.scanning.cuda_snippets import CUDA
from tests.scanning.python_snippets import PYTHON

MARK = re.compile(r"!! ([a-z0-9, -]+)")


def found(text: str) -> set[tuple[str, int | None]]:
    return {(finding.kind, finding.line) for finding in scan(text)}


def marked(text: str) -> set[tuple[str, int | None]]:
    return {
        (rule.strip(), number)
        for number, line in enumerate(text.split("\n"), 1)
        for match in MARK.finditer(line)
        for rule in match.group(1).split(",")
    }


AROUND = 'from torch.utils.cpp_extension import load_inline\nSOURCE = r"""%s"""\nload_inline(%s)\n'


@pytest.mark.parametrize("rule", PYTHON)
def test_python_rules_see_what_they_are_for(rule: str) -> None:
    seen, honest = PYTHON[rule]
    assert rule in {name for name, _ in marked(seen)}
    assert found(seen) == marked(seen)
    assert found(honest) == set()


@pytest.mark.parametrize("rule", CUDA)
def test_cuda_rules_see_what_they_are_for(rule: str) -> None:
    seen, honest = (AROUND % (text, 'name="x", cpp_sources="", cuda_sources=SOURCE') for text in CUDA[rule])
    assert rule in {name for name, _ in marked(seen)}
    assert found(seen) == marked(seen)
    assert found(honest) == set()


def test_every_rule_is_tried() -> None:
    assert set(PYTHON) | set(CUDA) | {"not-scanned"} == set(RULES)


def test_a_finding_says_what_is_there_and_what_to_do() -> None:
    (finding,) = scan("\nimport ctypes\n")
    assert (finding.kind, finding.line, finding.level, finding.kernel) == ("foreign-functions", 2, REPORT, None)
    assert finding.message == "import ctypes: functions of any library can be called without torch"
    assert finding.remedy == RULES["foreign-functions"].remedy


SOURCES = {
    "a constant": 'S = """\nint a;\nasm("x"); // !! inline-assembly\n"""\nload_inline("x", "", S)\n',
    "an escaped first line": 'S = """\\\nint a;\nasm(1); // !! inline-assembly\n"""\nload_inline("x", "", S)\n',
    "literals side by side": 'S = ("int a;\\n"\n"asm(1);\\n"  # !! inline-assembly\n)\nload_inline("x", "", S)\n',
    "a sum": 'H = "int a;\\n"\nT = """\nasm(1); // !! inline-assembly\n"""\nload_inline("x", "", [H + T + H])\n',
    "an f-string": (
        'N = 4\nT = """int b;\nasm(1); // !! inline-assembly\n"""\n'
        'load_inline("x", "", f"""#define N {N}\n{T}\nasm({N}); // !! inline-assembly\n""")\n'
    ),
    "format": 'S = """\nint a[{n}];\nasm("{{}}"); // !! inline-assembly\n""".format(n=3)\nload_inline("x", "", S)\n',
    "replace": (
        'S = """\nBODY\nint c;\nasm(1); // !! inline-assembly\n"""\nB = """int a;\nasm(2); // !! inline-assembly"""\n'
        'load_inline("x", "", S.replace("BODY", B))\n'
    ),
    "join": 'load_inline("x", "", "".join([\n"int a;",\n"asm(1);",  # !! inline-assembly\n]))\n',
    "a name split over a sum": 'load_inline("x", "", "void f() { sys" + "tem(0); }")  # !! processes\n',
    "an argument": (
        'def build(name, source):\n    return load_inline(name, "", source)\n'
        'build("x", """\nasm(1); // !! inline-assembly\n""")\n'
    ),
    "a function's result": (
        'def source(n):\n    return f"""\nasm({n}); // !! inline-assembly\n"""\nload_inline("x", "", source(3))\n'
    ),
    "an attribute": 'class A:\n    S = "asm(1);"  # !! inline-assembly\nload_inline("x", "", A.S)\n',
    "a dictionary": 'S = {"a": "asm(1);"}  # !! inline-assembly\nload_inline("x", "", S["a"])\n',
    "given nowhere": 'S = """\n#include <a.h>\nasm(1); // !! inline-assembly\n"""\n',
    "Windows lines": 'S = """\r\nint a;\r\nasm(1); // !! inline-assembly\r\n"""\r\nload_inline("x", "", S)\r\n',
}


@pytest.mark.parametrize("how", SOURCES)
def test_sources_are_followed_to_their_lines(how: str) -> None:
    text = SOURCES[how]
    assert found(text) == marked(text)


def test_plain_text_is_no_source() -> None:
    assert (
        found('"""A docstring: #include and __global__ void k() {} and asm()."""\nNOTE = "call asm(1) here"\n') == set()
    )


def test_one_finding_for_each_rule_and_line_and_not_too_many() -> None:
    many = "import os\n" + "os.system('a'); os.system('b')\n" * 80 + "import ctypes\n"
    findings = scan(many)
    assert len(findings) == 50
    assert findings[-1].kind == "foreign-functions", "a rule keeps its first finding, however many others there are"
    assert len({(finding.kind, finding.line) for finding in findings}) == 50
    assert [finding.line for finding in findings] == sorted(finding.line or 0 for finding in findings)
