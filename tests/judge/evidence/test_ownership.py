"""Tests findings about a candidate's process and operators: enforced, reported or refused on demand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.aten.operators import heavy_operator
from harness.records import rules
from harness.scanning.rules import RULES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "read-a-verdict.md"
PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 16)

    def forward(self, x):
        return torch.tanh(self.linear(x))

def get_inputs():
    return [torch.randn(8, 24)]

def get_init_inputs():
    return []
"""
HONEST = PROBLEM.replace("class Model(", "class ModelNew(").split("def get_inputs")[0]
#: What is done at import, and at every call; each ends up with the honest result.
DEEDS = {
    "honest": ("", "pass"),
    "time": ("import time\ntime.perf_counter = lambda: 0.0", "pass"),
    "compare": ("torch.allclose = lambda *a, **k: True", "pass"),
    "in_a_call": ("", "torch.Tensor.equal = lambda a, b: True"),
    "the_worker_s": ("import sys\nsys.modules['harness.worker.clock'].timed = lambda *a: (1e-3, 0.0)", "pass"),
    "put_back": ("import time", "kept = time.time; time.time = lambda: 0.0; time.time = kept"),
    "thread": ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='idler').start()",
               "pass"),
    "ended_thread": ("import threading", "t = threading.Thread(target=int); t.start(); t.join()"),
    "flag_at_import": ("torch.backends.cuda.matmul.allow_tf32 = True", "pass"),
    "flag_in_a_call": ("", "torch.set_default_dtype(torch.float64)"),
    "gradients_off": ("", "torch.backends.cudnn.benchmark = True"),
    "flag_put_back": ("", "torch.set_num_threads(torch.get_num_threads())"),
}  # fmt: skip
REPLACED = {
    "time": "time.perf_counter",
    "compare": "torch.allclose",
    "in_a_call": "torch.Tensor.equal",
    "the_worker_s": "harness.worker.clock.timed",
}
REPORTED = {
    "thread": ("live-threads", "idler"),
    "flag_at_import": ("flags", "torch.backends.cuda.matmul.allow_tf32: False before its import, True after"),
    "flag_in_a_call": (
        "flags",
        "default dtype: torch.float32 before a call, torch.float64 after; the harness restored it",
    ),
    "gradients_off": (
        "flags",
        "torch.backends.cudnn.benchmark: False before a call, True after; the harness restored it",
    ),
}
HARMLESS = sorted(DEEDS.keys() - REPLACED.keys() - REPORTED.keys())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem, and a solution for each deed."""
    folder = tmp_path_factory.mktemp("deeds")
    (folder / "problem.py").write_text(PROBLEM)
    for name, (at_import, in_a_call) in DEEDS.items():
        body = HONEST.replace("        return", f"        {in_a_call}\n        return")
        (folder / f"{name}.py").write_text(f"import torch\n{at_import}\n{body}")
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path, harness: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The rows of all deeds, from one command."""
    paths = [folder / f"{name}.py" for name in DEEDS]
    ran = harness("evaluate", *paths, "--problem", folder / "problem.py", "--device", "cpu", "--json")
    assert "Traceback" not in ran.err
    return {Path(row["solution_path"]).stem: row for row in ran.rows}


@pytest.mark.parametrize("deed", REPLACED)
def test_who_replaces_what_tells_time_or_compares_has_cheated(deed: str, rows: dict[str, dict[str, Any]]) -> None:
    row = rows[deed]
    assert (row["status"], row["rule"]) == ("CHEATED", "replaced-functions")
    assert REPLACED[deed] in row["message"]


@pytest.mark.parametrize("deed", REPORTED)
def test_what_honest_code_may_leave_behind_is_reported(deed: str, rows: dict[str, dict[str, Any]]) -> None:
    kind, words = REPORTED[deed]
    (finding,) = [finding for finding in rows[deed]["findings"] if finding["kind"] == kind]
    assert (rows[deed]["status"], finding["level"]) == ("PASSED", "report")
    assert words in finding["message"]


@pytest.mark.parametrize("deed", HARMLESS)
def test_what_is_put_back_is_not_reported(deed: str, rows: dict[str, dict[str, Any]]) -> None:
    assert rows[deed]["status"] == "PASSED"
    assert not {finding["kind"] for finding in rows[deed]["findings"]} & {"live-threads", "flags"}


def test_heavy_operators_are_counted_in_both_directions(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["honest"]
    assert row["operators"] == {"forward": {"addmm": 1}, "backward": {"mm": 2}}
    (finding,) = [finding for finding in row["findings"] if finding["kind"] == "library-operators"]
    assert finding["message"] == "torch's heavy operators ran: forward: addmm; backward: mm"


@pytest.mark.parametrize(
    ("operator", "heavy"),
    [
        ("aten::addmm_", "addmm"),
        ("aten::upsample_bicubic2d_backward", "upsample"),
        ("aten::grid_sampler_2d", "grid_sampler"),
        ("aten::nll_loss_forward", "nll_loss"),
        ("aten::im2col", "im2col"),
        ("aten::add", ""),
        ("aten::copy_", ""),
    ],
)
def test_a_form_of_a_heavy_operator_is_heavy(operator: str, heavy: str) -> None:
    assert heavy_operator(operator) == heavy


def test_a_user_may_refuse_what_is_only_reported(folder: Path, harness: Callable[..., Any]) -> None:
    options = ("--problem", folder / "problem.py", "--device", "cpu", "--json", "--refuse", "live-threads")
    ran = harness("evaluate", folder / "thread.py", folder / "ended_thread.py", *options)
    ended, thread = sorted(ran.rows, key=lambda row: str(row["solution"]))
    assert (thread["status"], thread["rule"]) == ("CHEATED", "live-threads")
    assert "enforced by --rules live-threads=enforce" in thread["message"]
    assert (ended["status"], ended["policy"]["rules"]) == ("PASSED", {"live-threads": "enforce"})
    assert ran.code == 1


def test_a_rule_that_nobody_reports_cannot_be_refused(folder: Path, harness: Callable[..., Any]) -> None:
    ran = harness("evaluate", folder / "thread.py", "--problem", folder / "problem.py", "--refuse", "live-thread")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no rule 'live-thread'. Did you mean 'live-threads'?" in ran.err


#: Right, and its input is another afterwards.
RESTLESS = HONEST.replace(
    "return torch.tanh(self.linear(x))", "y = torch.tanh(self.linear(x)); x.data.neg_(); return y"
)


@pytest.fixture(scope="module")
def switched(folder: Path, harness: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The rows of some deeds where rules are switched."""
    (folder / "restless.py").write_text(f"import torch\n{RESTLESS}")
    rules = "flags=off,live-threads=enforce,replaced-functions=report,input_mutation=off"
    paths = [folder / f"{name}.py" for name in ("time", "thread", "flag_in_a_call", "restless")]
    options = ("--problem", folder / "problem.py", "--device", "cpu", "--forward-only", "--json")
    ran = harness("evaluate", *paths, *options, "--rules", rules, "--rules", "patching=enforce")
    return {Path(row["solution_path"]).stem: row for row in ran.rows}


@pytest.mark.parametrize(
    ("deed", "status", "rule"),
    [
        ("thread", "CHEATED", "live-threads"),
        ("flag_in_a_call", "PASSED", None),
        ("restless", "PASSED", None),
        ("time", "CHEATED", "patching"),
    ],
)
def test_rules_are_switched_and_the_record_says_so(
    switched: dict[str, dict[str, Any]], deed: str, status: str, rule: str | None
) -> None:
    row = switched[deed]
    assert (row["status"], row["rule"]) == (status, rule), row["message"]
    assert row["policy"]["rules"] == {
        "input_mutation": "off", "replaced-functions": "report", "live-threads": "enforce", "flags": "off",
        "patching": "enforce",
    }  # fmt: skip
    kinds = {finding["kind"]: finding["level"] for finding in row["findings"]}
    assert not kinds.keys() & {"flags", "input_mutation"}
    assert kinds.get("replaced-functions") == ("report" if deed == "time" else None)


def test_a_pass_under_weaker_rules_says_so_and_never_answers_for_another(
    folder: Path, harness: Callable[..., Any], own_home: Path
) -> None:
    (folder / "restless.py").write_text(f"import torch\n{RESTLESS}")
    words = (
        "evaluate",
        folder / "restless.py",
        "--problem",
        folder / "problem.py",
        "--device",
        "cpu",
        "--forward-only",
    )
    weak = harness(*words, "--rules", "input_mutation=report", HARNESS_HOME=str(own_home))
    assert (weak.code, "PASSED weakened" in weak.out) == (0, True), weak.out
    assert "weakened: input_mutation not enforced" in weak.out
    assert "library-operators, input_mutation (see `show " in weak.out
    (row,) = harness(*words, "--json", HARNESS_HOME=str(own_home)).rows
    assert (row["status"], row["rule"], row["stored"]) == ("CHEATED", "input_mutation", False)
    (row,) = harness(*words, "--json", HARNESS_HOME=str(own_home), HARNESS_RULES="input_mutation=report").rows
    assert (row["status"], row["stored"]) == ("PASSED", True)
    shown = harness("show", row["record"], HARNESS_HOME=str(own_home)).out
    assert "weakened: input_mutation" in shown
    assert "--rules input_mutation=report" in shown


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("protocol=report", "protocol is always enforced"),
        ("flag=off", "there is no rule 'flag'. Did you mean 'flags'?"),
        ("flags=of", "there is no mode 'of'. Did you mean 'off'?"),
        ("flags", "write NAME=off"),
        ("flags=off,flags=report", "flags is already set to off"),
    ],
)
def test_what_is_no_switch_is_told(harness: Callable[..., Any], rules: str, words: str) -> None:
    ran = harness("evaluate", "group_norm/fused", "--rules", rules)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_the_rules_are_listed_with_what_comes_of_them_here(harness: Callable[..., Any]) -> None:
    listed = harness("evaluate", "--rules", "--rules", "flags=off", "--refuse", "graphs", "--json")
    modes = {row["rule"]: row["mode"] for row in listed.rows}
    by_default = dict.fromkeys(rules.ENFORCED, "enforce") | dict.fromkeys((*rules.REPORTED, *RULES), "report")
    assert (listed.code, modes) == (0, {**by_default, "flags": "off", "graphs": "enforce"})


@pytest.mark.parametrize(("kind", "names"), [("enforced", rules.ENFORCED), ("reported", rules.REPORTED)])
def test_the_page_lists_the_rules(kind: str, names: tuple[str, ...]) -> None:
    section = PAGE.read_text().partition(f"## {kind.title()} rules")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `([a-z_-]+)` \|", section, re.MULTILINE)) == names
