"""Tests the static scan as a whole: honest files, hostile texts, and where its findings appear."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.scanning.rules import RULES
from harness.scanning.scan import MOST_CHARACTERS, scan

REPOSITORY = Path(__file__).resolve().parent.parent.parent

#: What the shipped solutions do that the scan reports: their convolutions and products are torch's.
SHIPPED = {
    "group_norm/fused": {"low-precision"},  # kernels for halves, too
    "group_norm/streamed": {"inline-assembly", "low-precision"},
    "conv_transpose2d_gelu_group_norm/plain": {"heavy-operator"},
    "gemm_bias_add_hardtanh_mish_group_norm/plain": {"heavy-operator"},
    "gemm_group_norm_min_bias_add/plain": {"heavy-operator"},
    "conv_transpose2d_gelu_group_norm/aten_one_kernel": {"heavy-operator", "inline-assembly"},
    "conv_transpose2d_gelu_group_norm/tensor": {"heavy-operator", "inline-assembly", "low-precision"},
    "gemm_bias_add_hardtanh_mish_group_norm/aten": {"heavy-operator"},
    "gemm_group_norm_min_bias_add/aten": {"heavy-operator"},
    "gemm_bias_add_hardtanh_mish_group_norm/split": {"heavy-operator", "inline-assembly", "low-precision"},
    "gemm_group_norm_min_bias_add/split": {"heavy-operator", "inline-assembly", "low-precision"},
}

#: What honest twins of exploits do that the scan reports: as a rule what the exploit does too, put to a good use.
HONEST = {
    "answer_after_bell": {"threads"},
    "background_thread": {"threads"},
    "cache_poisoning": {"foreign-functions"},
    "descriptors": set(),
    "forged_message": {"network"},
    "frame_walk": {"introspection"},
    "full_disk": set(),
    "gc_walk": {"introspection"},
    "judge_memory": {"outside-paths", "introspection"},
    "judge_trace": {"foreign-functions", "introspection"},
    "outliving_process": {"processes"},
    "oversized_message": {"network", "threads"},
    "patched_timer": {"foreign-functions"},
    "pickled_bomb": {"encoded-data"},
    "secret_include": {"foreign-functions"},
    "side_stream": {"foreign-functions", "streams"},
}  # type: dict[str, set[str]]


def kinds(path: Path) -> set[str]:
    return {finding.kind for finding in scan(path.read_text())}


@pytest.mark.parametrize("path", sorted((REPOSITORY / "solutions").glob("*/*.py")), ids=lambda path: path.stem)
def test_shipped_solutions_are_told_only_what_is_true(path: Path) -> None:
    assert kinds(path) == SHIPPED.get(f"{path.parent.name}/{path.stem}", set())


def test_the_lines_of_a_shipped_solution_are_its_own() -> None:
    path = REPOSITORY / "solutions" / "gemm_group_norm_min_bias_add" / "aten.py"
    lines = path.read_text().splitlines()
    for finding in scan(path.read_text()):
        assert finding.line is not None
        assert "torch.mm(" in lines[finding.line - 1]


def test_the_sources_of_a_shipped_solution_are_read() -> None:
    text = (REPOSITORY / "solutions" / "group_norm" / "fused.py").read_text()
    changed = text.replace("  __syncthreads();\n", '  __syncthreads(); asm volatile("");\n', 1)
    assert changed != text
    line = next(number for number, one in enumerate(changed.splitlines(), 1) if "asm volatile" in one)
    found = [(finding.kind, finding.line) for finding in scan(changed) if finding.kind != "low-precision"]
    assert found == [("inline-assembly", line)]


@pytest.mark.parametrize("name", HONEST)
def test_honest_twins_are_told_only_what_is_true(name: str) -> None:
    assert kinds(REPOSITORY / "tests" / "exploits" / name / "honest.py") == HONEST[name]


@pytest.mark.parametrize("name", ["histogram", "l2_norm", "row_softmax", "scaled_silu", "tiled_matmul"])
def test_snippets_of_models_are_told_nothing(name: str) -> None:
    assert kinds(REPOSITORY / "tests" / "snippets" / f"{name}.py") == set()


def inline(source: str) -> str:
    return f'S = r"""{source}"""\nload_inline("x", "", S)\n'


def nested(levels: int, fields: int, operands: int) -> str:
    """F-strings in f-strings, each with many fields."""
    text = "x"
    for quote in ("'", '"', "'''", '"""')[:levels]:
        text = f"f{quote}{{{text}}}{('{x' + '+x' * operands + '}') * fields}{quote}"
    return text


MANY = 20_000
HOSTILE = {
    "nothing": "",
    "no Python": "int main() { return 0; }",
    "NUL": "import os\0\n",
    "lone surrogate": "x = '\ud800'\n",
    "surrogate in a path": "x = '/proc/\\ud800'\n",
    "odd unicode": "# \u202e \u2028\nx\u0301 = '\u0000'\n\x0cimport ctypes\n",
    "parentheses": "(" * 100_000,
    "unary": "x = " + "-" * 100_000 + "1\n",
    "sum": "x = " + " + ".join(["'a'"] * 900) + "\nload_inline('x', '', x)\n",
    "long sum": "x = " + " + ".join(["a"] * 50_000) + "\n",
    "attributes": "import torch\nx = torch" + ".a" * 900 + "\n",
    "calls": "import torch\ntorch" + ".f(1)" * 900 + ".x = 3\n",
    "lambdas": "x = " + "lambda: " * 80 + "1\n",
    "doubling": "a0 = 'x' * 3\n"
    + "".join(f"a{i + 1} = a{i} + a{i}\n" for i in range(80))
    + "load_inline('', '', a80)\n",
    "itself": "a = b + a\nb = a + b\nload_inline('', '', a)\n",
    "replacing": "a = 'a'" + ".replace('a', 'aa')" * 200 + "\nload_inline('', '', a)\n",
    "arguments": "def f(x):\n    return f(f(x))\n" + "f(f(f(1)))\n" * 1000,
    "long line": "x = '" + "y" * (1 << 20) + "'\n",
    "statements": "a;" * (MOST_CHARACTERS // 2),
    "fields": "x = f'" + "{a}" * 60_000 + "'\n",
    "nested fields": nested(4, 2000, 4),
    "huge": "import ctypes\n" + "#" * (16 << 20),
    "raw strings": inline('R"(' * MANY),
    "quotes": inline("#d " + '\\"' * MANY),
    "braces": inline("{" * MANY),
    "unclosed": inline("__global__ void k( { /* "),
    "conditions": inline("#if 1\n" * MANY),
    "kernels": inline("".join(f"__global__ void k{i}() {{}}\n" for i in range(2000))),
    "number": f"x = {'9' * 4000}\nload_inline('', '', f'{{x}}')\n",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_give_findings_or_nothing(kind: str) -> None:
    for finding in scan(HOSTILE[kind]):
        assert finding.message.encode()
        assert len(finding.message) < 300
        assert finding.kind in RULES


@pytest.mark.parametrize("kind", ["huge", "statements", "fields", "nested fields", "raw strings", "quotes"])
def test_what_would_take_long_is_told_not_to_be_scanned(kind: str) -> None:
    assert [finding.kind for finding in scan(HOSTILE[kind])] == ["not-scanned"]


def test_braces_outside_f_strings_are_scanned() -> None:
    assert [one.kind for one in scan("import ctypes\n" + inline("{ if (x) half('a') }\n" * 10_000))] == [
        "foreign-functions"
    ]


@pytest.mark.parametrize("kind", ["no Python", "NUL", "lone surrogate", "parentheses"])
def test_a_text_that_is_no_python_gives_nothing(kind: str) -> None:
    assert scan(HOSTILE[kind]) == ()


WORDS = st.sampled_from(
    ["import torch", "torch", ".", "(", ")", "[", "]", "=", "'", '"""', "f'{", "}'", "\n", " ", "class ModelNew", ":",
     "def forward(self, x)", "load_inline", ",", "+", "{", "}", "\\", "#include <", "__global__ void k", "<<<", "##",
     "asm", "try", "except E", "return", "x", ".shape", "==", "if", "lambda", "@", "1", "%", ".format", ".replace"]
)  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=3), max_size=60).map("".join))
@settings(max_examples=200)
def test_any_text_gives_findings_or_nothing(text: str) -> None:
    assert scan(text) == scan(text)
    assert all(finding.kind in RULES for finding in scan(inline(text)))


def test_the_page_lists_the_rules() -> None:
    page = (REPOSITORY / "docs" / "read-a-verdict.md").read_text().partition("## Static scan")[2]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert rows[: len(RULES)] == [tuple(rule) for rule in RULES.values()]


PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return torch.tanh(x) * self.scale

def get_inputs():
    return [torch.rand(4, 3)]

def get_init_inputs():
    return []

CASES = {"full": {}, "again": {}}
"""
QUIET = PROBLEM.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0]
LOUD = "import ctypes\nimport threading\n" + QUIET.replace(
    "torch.tanh(x)", "torch.tanh(x.sort(1)[0]) * 0 + torch.tanh(x)"
)


def test_a_finding_changes_no_verdict_and_is_shown(tmp_path: Path, own_home: Path, harness: Callable[..., Any]) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    for name, text in {"quiet": QUIET, "loud": LOUD, "wrong": LOUD.replace("* 0", "* 1")}.items():
        (tmp_path / f"{name}.py").write_text(text)
    names = [tmp_path / f"{name}.py" for name in ("quiet", "loud", "wrong")]
    options = ("--problem", tmp_path / "problem.py", "--device", "cpu")
    home = {"HARNESS_HOME": str(own_home)}
    rows = harness("evaluate", *names, *options, "--json", **home).rows
    statuses = {(Path(row["solution"]).stem, row["case"]): row["status"] for row in rows}
    assert statuses == {
        (name, case): "WRONG_OUTPUT" if name == "wrong" else "PASSED"
        for name in ("quiet", "loud", "wrong")
        for case in ("full", "again")
    }
    records = {Path(row["solution"]).stem: row for row in rows if row["case"] == "full"}
    told = {
        name: [(one["kind"], one["line"], one["level"]) for one in row["findings"] if one["kind"] in RULES]
        for name, row in records.items()
    }
    expected = [("foreign-functions", 1, "report"), ("threads", 2, "report"), ("heavy-operator", 12, "report")]
    assert told == {"quiet": [], "loud": expected, "wrong": expected}

    table = harness("evaluate", *names, *options, "-v", **home).out  # from the store
    words = " ".join(table.split())  # long lines are folded
    assert words.count("foreign-functions") == 2, table
    places = "foreign-functions (line 1), threads (line 2), heavy-operator (line 12)"
    assert f"loud.py: {places}: see `show {records['loud']['record']}`" in words
    assert f"wrong.py: {places}: see `show {records['wrong']['record']}`" in words
    assert "no-own-kernel: kernels of their own do none or little of the work" in table
    shown = harness("show", records["loud"]["record"], **home).out
    assert "foreign-functions, line 1: import ctypes: functions of any library can be called without torch" in shown
    assert RULES["foreign-functions"].remedy in shown
