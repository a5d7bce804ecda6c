# ruff: noqa: E501 - the tables keep one answer a line
"""Tests ``extract``: which code it takes from an answer, where it writes, and what it never does."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.__main__ import main

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
CORRECTED = Path(__file__).parent / "answers" / "group_norm.py"
PROBLEM = REPOSITORY / "problems" / "group_norm.py"


def code(mark: str, body: str = "pass") -> str:
    """A complete solution that says which one it is."""
    return f"import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    mark = {mark!r}\n    {body}\n"


def fenced(text: str, label: str = "python", fence: str = "```") -> str:
    return f"{fence}{label}\n{text}{fence}\n"


FINAL, DRAFT = code("final"), code("draft")
# What would end the fence by the letter of Markdown, or close the reasoning, inside a string of the code.
STRINGS = code("final", 'CUDA = r"""\n```\n```python\n</think>\n// ```cpp\nR"(```)"\n~~~\n"""')
BROKEN = "class ModelNew(:\n"
BASELESS = "class ModelNew(nn.Module):\n    mark = 'excerpt'\n"
USAGE = "from solution import ModelNew\n\nmodel = ModelNew()\n"


class Taken(NamedTuple):
    """An answer and the code that must be taken of it, from which line."""

    name: str
    answer: str | bytes
    line: int
    code: str = FINAL


TAKEN = [
    Taken("one_fence", "Here it is:\n\n" + fenced(FINAL) + "\nDone.\n", 4),
    Taken("label_py", fenced(FINAL, "py"), 2),
    Taken("label_python3", fenced(FINAL, " Python3 title=answer"), 2),
    Taken("no_label", fenced(FINAL, ""), 2),
    Taken("tildes", fenced(FINAL, "python", "~~~"), 2),
    Taken("four_backticks", fenced(FINAL, "python", "````"), 2),
    Taken("longer_closing", fenced(FINAL).replace("```\n", "`````  \n"), 2),
    Taken("within_markdown", fenced("Text\n" + fenced(FINAL), "markdown", "````") + "Done.\n", 4),
    Taken("within_tildes", fenced("Text\n" + fenced(FINAL), "", "~~~") + "Done.\n", 4),
    Taken("indented", "1. Do this:\n\n" + "".join(f"    {line}\n" for line in fenced(FINAL).splitlines()), 4),
    Taken("indented_by_a_tab", "- Do this:\n" + "".join(f"\t{line}\n" for line in fenced(FINAL).splitlines()), 3),
    Taken("drafts_first", fenced(DRAFT) + "Better:\n" + fenced(FINAL), 11),
    Taken("pieces_of_cuda", fenced("__global__ void f();\n", "cuda") + fenced(FINAL) + fenced("make\n", "bash"), 5),
    Taken("use_shown_last", fenced(FINAL) + fenced(USAGE), 2),
    Taken("excerpt_shown_last", fenced(FINAL) + fenced(BASELESS), 2),
    Taken("excerpt_alone", fenced(BASELESS), 2, BASELESS),
    Taken("think", "<think>\n" + fenced(DRAFT) + "</think>\n\n" + fenced(FINAL), 13),
    Taken("thinking", "<Thinking>\n" + fenced(DRAFT) + "</Thinking>" + fenced(FINAL), 11),
    Taken("end_of_think_alone", fenced(DRAFT) + "so be it.</think>\n" + fenced(FINAL), 11),
    Taken("prompt_before_think", fenced(DRAFT) + "<think>\nhm\n</think>\n" + fenced(FINAL), 13),
    Taken("thought_twice", "<think>\n</think>\n" + fenced(DRAFT) + "<think>\nhm\n</think>\n" + fenced(FINAL), 15),
    Taken("thought_with_bars", "<|begin_of_thought|>\n" + fenced(DRAFT) + "<|end_of_thought|>\n" + fenced(FINAL), 12),
    Taken("draft_never_closed", "<think>\n```python\n" + DRAFT + "</think>\n" + fenced(FINAL), 11),
    Taken("open_string_in_draft", '```python\nx = """\n</think>\n' + fenced(FINAL + 'y = """"""\n'), 5, FINAL + 'y = """"""\n'),
    Taken("given_up_without_tags", "```python\nimport torch\nno\n" + fenced(FINAL), 5),
    Taken("think_in_quotes", fenced(FINAL) + "I left `</think>` and '<think>' alone.\n", 2),
    Taken("strings", fenced(STRINGS) + "Text\n" + fenced("make\n", "bash"), 2, STRINGS),
    Taken("strings_after_think", "<think>\nx\n</think>\n" + fenced(STRINGS), 5, STRINGS),
    Taken("nothing_but_code", STRINGS, 1, STRINGS),
    Taken("nothing_but_code_after_think", "<think>\nno\n</think>\n\n" + FINAL, 5),
    Taken("windows", b"\xef\xbb\xbf" + ("Text\n" + fenced(FINAL)).replace("\n", "\r\n").encode(), 3),
    Taken("old_macintosh", fenced(FINAL).replace("\n", "\r"), 2),
    Taken("end_of_turn", fenced(FINAL).strip() + "<|im_end|>\n</s>\n", 2),
    Taken("assigned", fenced("import torch.nn as nn\nModelNew = nn.Tanh\n"), 2, "import torch.nn as nn\nModelNew = nn.Tanh\n"),
    Taken("in_a_branch", fenced("import torch.nn as nn\nif nn:\n    class ModelNew(nn.Tanh): pass\n"), 2, "import torch.nn as nn\nif nn:\n    class ModelNew(nn.Tanh): pass\n"),
    Taken("says_an_encoding", fenced("# coding: utf-16\n# größe\n" + FINAL), 2, "# coding: utf-16\n# größe\n" + FINAL),
    Taken("looks_rendered", fenced("# Rendered from templates/x: change that, not this file, and render again.\n" + FINAL), 2, "# Rendered from templates/x: change that, not this file, and render again.\n" + FINAL),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root of its own with the problem group_norm."""
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "group_norm.py").write_text(PROBLEM.read_text())
    return tmp_path


def run(harness: Harness, root: Path, *arguments: str | Path, **environment: str) -> Any:
    return harness("extract", "--problem", "group_norm", *arguments, cwd=root, **environment)


@pytest.mark.parametrize("case", [pytest.param(one, id=one.name) for one in TAKEN])
def test_the_last_complete_code_is_taken_as_it_stands(
    case: Taken, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = case.answer if isinstance(case.answer, bytes) else case.answer.encode()
    (root / f"{case.name}.txt").write_bytes(answer)
    monkeypatch.chdir(root)
    arguments = ["extract", f"{case.name}.txt", "--problem", "group_norm", "--json"]
    assert main.main(arguments, standalone_mode=False) == 0  # in this process: there are many
    row = json.loads(capsys.readouterr().out)
    written = root / "solutions" / "group_norm" / f"{case.name}.py"
    text = written.read_bytes().decode()
    lines = [case.line, case.line + case.code.count("\n") - 1]
    digest = hashlib.sha256(answer).hexdigest()
    assert text.split("\n", 4) == [
        "# Extracted from a language model's answer. The code below this header is unchanged.",
        f"# digest of the answer: sha256:{digest}",
        f"# file: {case.name}.txt, lines {lines[0]}-{lines[1]}",
        f"# command: python -m harness extract {case.name}.txt --problem group_norm",
        case.code,
    ]
    compile(text.encode(), str(written), "exec")
    assert row == {
        "solution": f"group_norm/{case.name}",
        "problem": "group_norm",
        "path": str(written),
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "written": True,
        "answer": f"{case.name}.txt",
        "answer_digest": digest,
        "lines": lines,
        "notes": row["notes"],
    }


def test_what_is_left_out_is_told(harness: Harness, root: Path) -> None:
    (root / "a.txt").write_text(fenced(DRAFT) + fenced("int x;\n", "cpp") + fenced(FINAL))
    ran = run(harness, root, "a.txt")
    assert ran.out == ""
    assert ran.err.splitlines() == [
        "wrote solutions/group_norm/a.py: lines 13-18 of a.txt",
        "note: 2 blocks of code define ModelNew: took the last; left out: lines 2-7",
        "note: left out code without ModelNew: lines 10-10",
    ]
    (root / "b.txt").write_text(fenced(FINAL) + fenced(BASELESS))
    ran = run(harness, root, "b.txt", "--json")
    assert ran.rows[0]["notes"] == [
        "2 blocks of code define ModelNew: took the last one that defines what its ModelNew inherits from; left out: "
        "lines 10-11"
    ]


def test_nothing_of_an_answer_runs(harness: Harness, root: Path) -> None:
    (root / "a.txt").write_text(fenced("import pathlib\npathlib.Path('ran').touch()\n" + FINAL))
    assert run(harness, root, "a.txt").code == 0
    assert not (root / "ran").exists()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("004_Final Answer (2).txt", "004_final_answer_2"),
        ("größe.md", "grosse"),
        ("a.b.c.txt", "a_b_c"),
        ("UPPER", "upper"),
        ("-dash.txt", "dash"),
        ("x" * 200 + ".txt", "x" * 100),
    ],
)
def test_the_name_comes_from_the_answers(harness: Harness, root: Path, file: str, name: str) -> None:
    (root / file).write_text(fenced(FINAL))
    ran = run(harness, root, "--", file) if file.startswith("-") else run(harness, root, file)
    assert ran.code == 0, ran.err
    assert [path.name for path in (root / "solutions" / "group_norm").iterdir()] == [f"{name}.py"]


def test_it_is_written_where_it_is_wanted(harness: Harness, root: Path) -> None:
    inner = root / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text(fenced(FINAL))
    assert harness("extract", "a.txt", "--problem", "group_norm", "--root", root, cwd=inner).code == 0
    assert (root / "solutions" / "group_norm" / "a.py").is_file()
    assert run(harness, root, "inner/a.txt", "--name", "other").code == 0
    assert run(harness, root, "inner/a.txt", "-o", "new/mine.py").code == 0
    assert run(harness, root, "inner/a.txt", "-o", "group_norm").code == 0
    shown = run(harness, root, "inner/a.txt", "-o", "-")
    texts = {(root / name).read_text() for name in ("solutions/group_norm/other.py", "new/mine.py", "group_norm")}
    assert texts == {shown.out} == {(root / "solutions" / "group_norm" / "a.py").read_text()}
    assert not list(root.rglob(".*"))
    piped = subprocess.run(
        [sys.executable, "-m", "harness", "extract", "-", "--problem", "group_norm", "-o", "-"],
        input=fenced(code("größe")).encode(), cwd=root, capture_output=True,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert piped.returncode == 0, piped.stderr
    assert "# file: standard input, lines 2-7\n" in piped.stdout.decode()
    assert "'größe'" in piped.stdout.decode()


def test_nothing_is_overwritten_without_force(harness: Harness, root: Path) -> None:
    (root / "a.txt").write_text(fenced(FINAL))
    assert run(harness, root, "a.txt").err.startswith("wrote ")
    written = root / "solutions" / "group_norm" / "a.py"
    before = written.read_text()
    (root / "elsewhere").mkdir()
    (root / "a.txt").rename(root / "elsewhere" / "a.txt")
    again = run(harness, root, "elsewhere/a.txt", "--json")
    assert (again.code, again.rows[0]["written"]) == (0, False)
    assert again.err.startswith("unchanged ")
    (root / "a.txt").write_text(fenced(code("other")))
    refused = run(harness, root, "a.txt")
    assert (refused.code, refused.out) == (2, "")
    for word in ("solutions/group_norm/a.py exists", "--name", "--force"):
        assert word in refused.err
    assert written.read_text() == before
    assert run(harness, root, "a.txt", "--force").code == 0
    assert "'other'" in written.read_text()


def test_render_and_list_leave_it_alone(harness: Harness, root: Path) -> None:
    assert harness("new", "problem", "my_op", "--root", root).code == 0
    assert harness("new", "template", "my_op", "--problem", "my_op", "--root", root).code == 0
    assert harness("render", "--all", cwd=root).code == 0
    (root / "a.txt").write_text(fenced(FINAL))
    assert harness("extract", "a.txt", "--problem", "my_op", cwd=root).code == 0
    before = (root / "solutions" / "my_op" / "a.py").read_bytes()
    check = harness("render", "--check", cwd=root)
    assert (check.code, "a.py" in check.err) == (0, False)
    assert harness("render", "--all", cwd=root).code == 0
    assert (root / "solutions" / "my_op" / "a.py").read_bytes() == before
    listed = harness("list", "solutions", "--json", cwd=root).rows
    assert [row["solution"] for row in listed] == ["my_op/a", "my_op/my_op"]
    taken = harness("extract", "a.txt", "--problem", "my_op", "--name", "my_op", "--force", cwd=root)
    assert taken.code == 2
    assert "'my_op' is a solution that template 'my_op' renders" in taken.err


def mistaken(old: str, new: str) -> str:
    text = CORRECTED.read_text()
    assert text.count(old) == 1
    return text.replace(old, new)


FUNCTIONS = 'functions=["group_norm_forward"]'
CALL = "module.group_norm_forward(x, gamma, beta, num_groups, eps)"
MISTAKES = [
    ("signatures", 'functions=["void compute_group_sums(const float*, float*, float*, int, int, float)"]', "cpp_source", CALL,
     ["'void compute_group_sums(const float*, float*, float*, int, int, float)' is a signature and names a kernel",
      "Python cannot launch a kernel", "compute_group_sums<<<grid, block>>>(...)", "cpp_sources"]),
    ("signature_of_the_host", 'functions=["std::vector<torch::Tensor> group_norm_forward(torch::Tensor x)"]', '""', CALL,
     ["is a signature.", "the signature to cpp_sources", "give the name 'group_norm_forward'"]),
    ("kernels", 'functions=["compute_group_sums", "apply_group_norm"]', '""',
     "module.compute_group_sums(grid=(num_groups, 3), block=(256, 1), args=[x.data_ptr()])",
     ["'compute_group_sums' names a kernel", "Python cannot launch a kernel"]),
    ("declared_kernel", 'functions=["apply_group_norm"]', '"void apply_group_norm(const float* input);"', CALL,
     ["'apply_group_norm' names a kernel", "apply_group_norm<<<grid, block>>>(...)"]),
    ("nothing_declared", FUNCTIONS, '""', CALL,
     ["functions names 'group_norm_forward', which cpp_sources does not declare", "in cuda_sources: "
      "std::vector<torch::Tensor> group_norm_forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, "
      "int64_t groups, double eps);"]),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_a_models_mistakes_are_taught_and_the_corrected_answer_passes(
    device: str, harness: Harness, root: Path
) -> None:
    for name, functions, sources, call, _ in MISTAKES:
        text = mistaken(FUNCTIONS, functions).replace("cpp_sources=cpp_source", f"cpp_sources={sources}")
        (root / f"{name}.txt").write_text("<think>\n" + fenced(DRAFT) + "</think>\n" + fenced(text.replace(CALL, call)))
        assert run(harness, root, f"{name}.txt").code == 0
    judging = ["--device", device, "--case", "odd"]
    ran = harness("evaluate", "group_norm", "--json", *judging, cwd=root)
    messages = {row["solution"].partition("/")[2]: (row["status"], row["message"]) for row in ran.rows}
    assert set(messages) == {name for name, *_ in MISTAKES}
    for name, *_, words in MISTAKES:
        status, message = messages[name]
        assert status == "BUILD_ERROR", message
        for word in words:
            assert word in message, name
    (root / "corrected.txt").write_text("<think>\n" + fenced(DRAFT) + "</think>\n" + fenced(CORRECTED.read_text()))
    ran = run(harness, root, "corrected.txt", "--evaluate", "--fresh", "--case", "cpu", *judging, "--json")
    assert ran.code == 0, ran.out + ran.err
    extracted, *rows = ran.rows
    assert extracted["solution"] == "group_norm/corrected"
    assert [(row["solution"], row["case"], row["status"]) for row in rows] == [
        ("group_norm/corrected", "cpu", "PASSED"),
        ("group_norm/corrected", "odd", "PASSED"),
    ]
    assert [row["digest"] for row in rows] == [extracted["digest"]] * 2
    assert {gradient["name"] for gradient in rows[0]["gradients"]} == {"x", "gn.weight", "gn.bias"}


def test_the_exit_code_and_the_table_are_the_evaluations(harness: Harness, root: Path) -> None:
    (root / "a.txt").write_text(fenced(code("a", "def forward(self): raise ValueError('mine')")))
    judging = ["--evaluate", "--case", "odd", "--device", "cpu"]
    ran = run(harness, root, "a.txt", "-o", "group_norm", *judging)
    assert ran.code == 1
    assert "LOAD_ERROR" in ran.out
    ran = run(harness, root, "a.txt", "--evaluate", "--case", "od", "--device", "cpu")
    assert (ran.code, "Did you mean 'odd'?" in ran.err) == (2, True)
    (root / "pyproject.toml").write_text("[tool.harness]\ndevice = 'tpu'\n")
    assert "'tpu'" in run(harness, root, "a.txt", "--evaluate").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "'ANSWER'"),
        (["a.txt", "--problem", "group_nrom"], "Did you mean 'group_norm'?"),
        (["a.txt", "--problem", str(PROBLEM)], "-o FILE"),
        (["a.txt", "--name", "../evil"], "'../evil'"),
        (["a.txt", "--name", "Größe"], "'Größe'"),
        (["a.txt", "--name", "two words"], "'two words'"),
        (["a.txt", "--name", "__init__"], "choose another"),
        (["a.txt", "--name", "x", "-o", "x.py"], "give one of them"),
        (["a.txt", "-o", "-", "--evaluate"], "--evaluate"),
        (["a.txt", "-o", "-", "--json"], "--json"),
        (["a.txt", "--case", "odd"], "--case needs --evaluate"),
        (["a.txt", "--fresh"], "--fresh"),
        (["a.txt", "-o", "problems"], "not a regular file"),
        (["a.txt", "-o", "link.py", "--force"], "not a regular file"),
        (["a.txt", "-o", "a.txt/x.py"], "cannot write a.txt/x.py"),
        (["a.txt", "-o", "a.txt"], "exists with other content"),
        (["寸法.txt"], "--name"),
        (["-"], "standard input is empty"),
    ],
)
def test_wrong_usage_writes_nothing(harness: Harness, root: Path, arguments: list[str], words: str) -> None:
    for name in ("a.txt", "寸法.txt"):
        (root / name).write_text(fenced(FINAL))
    (root / "link.py").symlink_to("target.py")
    before = sorted(root.rglob("*"))
    chosen = [] if "--problem" in arguments else ["--problem", "group_norm"]
    ran = harness("extract", *arguments, *chosen, cwd=root)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert sorted(root.rglob("*")) == before
    assert (root / "a.txt").read_text() == fenced(FINAL)


def test_neither_help_nor_extract_imports_torch(root: Path) -> None:
    (root / "a.txt").write_text(fenced(FINAL))
    for words in (["extract", "--help"], ["extract", "a.txt", "--problem", "group_norm"]):
        program = (
            f"import sys; sys.argv = ['harness', *{json.dumps(words)}]; from harness.__main__ import run; "
            "code = run(); sys.exit(code or 'torch' in sys.modules)"
        )
        environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run([sys.executable, "-c", program], cwd=root, env=environment, capture_output=True)
        assert ran.returncode == 0, ran.stderr
