# ruff: noqa: E501 - the table keeps one candidate a line
"""Tests malformed and hostile solution files: status, message and no leftovers; honest ones pass."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.emulator.toolchain import build_runtime
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.policy import Policy, Surroundings
from harness.judge.process.time_limits import Limits
from harness.judge.process.workers import Workers
from harness.project.solutions import select
from harness.system.files import StrangeEncoding, declared_encoding, source_text
from tests.bad_input.conftest import Place, solution

LOOP = "while True: time.sleep(0.01)"
#: In the first two calls alone: each child is a copy of all of torch.
MESS = """if len(messes) < 2:
    messes.append(1)
    if os.fork() == 0:
        time.sleep(3600)
    if os.fork() == 0:
        os.setsid()
        os.fork()
        time.sleep(3600)
    subprocess.Popen(["sleep", "3600"], start_new_session=True, cwd="/")
    mark = os.environ["TMPDIR"]
    subprocess.Popen([mark, "3600"], executable="/bin/sleep", start_new_session=True, env={}, cwd="/")
    threading.Thread(target=time.sleep, args=(3600,)).start()
    sys.stderr.write("x" * 4_000_000)
    os.chdir("/")"""
BUILD = """from torch.utils.cpp_extension import load_inline
load_inline(name="late", cpp_sources="int late();", cuda_sources='''
#include <torch/extension.h>
int late() { return 7; }
''', functions=["late"])"""
RAISING_STR = "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd()"
DEEP = "\n\ndef get_inputs():\n    return " + "+".join(["1"] * 900) + "\n"


class Candidate(NamedTuple):
    """A solution's text, and what must come of it."""

    name: str
    text: str | bytes
    status: str
    words: str = ""


HONEST = solution()
CANDIDATES = [
    Candidate("empty", "", "LOAD_ERROR", "no class ModelNew"),
    Candidate("syntax", HONEST + "\ndef (:\n", "LOAD_ERROR", "line 27: SyntaxError"),
    Candidate("garbage", bytes(range(255, 0, -1)) * 9, "LOAD_ERROR", "SyntaxError"),
    Candidate("latin_1_without_saying_so", b"x = '\xe9'\n" + HONEST.encode(), "LOAD_ERROR", "utf-8"),
    Candidate("latin_1", b"# coding: latin-1\nx = '\xe9'\nassert x == chr(0xe9)\n" + HONEST.encode(), "PASSED"),
    Candidate("from_windows", b"\xef\xbb\xbf" + HONEST.replace("\n", "\r\n").encode(), "PASSED"),
    Candidate("deep_expression", HONEST + DEEP, "PASSED", "own get_inputs"),
    Candidate("constructor", HONEST.replace("self, width", "self, width, depth"), "LOAD_ERROR", "'depth'"),
    Candidate("call", HONEST.replace("self, x", "self, x, y"), "RUNTIME_ERROR", "'y'"),
    Candidate("exit_in_init", solution(init="sys.exit(3)"), "LOAD_ERROR", "line 20: the solution called sys.exit(3)"),
    Candidate("exit_in_forward", solution("sys.exit('bye')"), "RUNTIME_ERROR", "sys.exit('bye')"),
    Candidate("exit_in_backward", solution(backward="sys.exit(0)"), "RUNTIME_ERROR", "backward: line 13"),
    Candidate("end_at_import", solution(first="import os\nos._exit(0)\n"), "CRASHED", "exit code 0"),
    Candidate("end_in_backward", solution(backward="os._exit(0)"), "CRASHED", "exit code 0"),
    Candidate("builds_late", solution(init=BUILD), "PASSED"),
    Candidate("hoards", solution("kept = []\nwhile True: kept.append(bytes(1 << 28))"), "OUT_OF_MEMORY", "MemoryError"),
    Candidate("leaves_a_mess", solution(MESS, first="messes = []\n"), "PASSED"),
    Candidate("locks_its_folder", solution("os.makedirs('a/b', exist_ok=True); os.symlink('/', f'a/{time.monotonic_ns()}'); os.chmod('a', 0); os.chmod('.', 0)", result="torch.tanh(x * self.w)").replace("os.makedirs", "os.chmod(os.environ['HOME'], 0o700); os.path.exists('a') and os.chmod('a', 0o700); os.makedirs"), "PASSED"),
    Candidate("closes_descriptors", solution("os.closerange(0, 256)"), "CRASHED", "exit code"),
    Candidate("gives_its_input", solution(result="x"), "WRONG_OUTPUT", "output"),
    Candidate("gives_a_view", solution(result="x.view(-1, 3)"), "WRONG_OUTPUT", "output"),
    Candidate("meta", solution(result="torch.empty(x.shape, device='meta')"), "WRONG_OUTPUT", "device meta, expected cpu"),
    Candidate("dict", solution(result="{'y': x}"), "WRONG_OUTPUT", "returned a dict with the keys 'y'"),
    Candidate("subclass", solution("class Lazy(torch.Tensor): pass", result="torch.tanh(x * self.w).as_subclass(Lazy)"), "WRONG_OUTPUT", "returned Lazy"),
    Candidate("sparse", solution(result="torch.tanh(x * self.w).to_sparse()"), "WRONG_OUTPUT", "torch.sparse_coo"),
    Candidate("no_words", solution(RAISING_STR), "RUNTIME_ERROR", "Odd (its __str__ raised ValueError)"),
    Candidate("honest", HONEST, "PASSED"),
]  # fmt: skip
#: What ends by the time limit alone, and what comes behind it.
ENDLESS = [
    Candidate("ignores_signals", solution(f"[signal.signal(one, signal.SIG_IGN) for one in (1, 2, 15)]\n{LOOP}"), "TIMEOUT", "forward after 8 s"),
    Candidate("honest_behind_it", HONEST + "# behind\n", "PASSED"),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows(place: Place) -> dict[str, dict[str, Any]]:
    """All of them in two commands, an honest one last in each; rows by name."""
    rows: dict[str, dict[str, Any]] = {}
    for candidates, limit_s in ((CANDIDATES, "600"), (ENDLESS, "8")):
        for candidate in candidates:
            place.write(f"{candidate.name}.py", candidate.text)
        names = [f"{candidate.name}.py" for candidate in candidates]
        chosen = ["--problem", "tiny", "--case", "odd", "--device", "cpu", "--timeout", limit_s, "--ahead", "0"]
        ran = place("evaluate", *names, *chosen, "--json")
        assert ran.code == 1, ran.err
        assert "Traceback" not in ran.err
        assert [row["solution"] for row in ran.rows] == names
        rows |= {row["solution"].removesuffix(".py"): row for row in ran.rows}
    return rows


@pytest.mark.parametrize("candidate", [pytest.param(one, id=one.name) for one in (*CANDIDATES, *ENDLESS)])
def test_each_gets_its_status(candidate: Candidate, rows: dict[str, dict[str, Any]]) -> None:
    row = rows[candidate.name]
    assert row["status"] == candidate.status, row["message"]
    assert candidate.words in row["message"]


def test_nothing_is_left_and_every_record_is_kept(place: Place, rows: dict[str, dict[str, Any]]) -> None:
    assert place.left_behind() == []
    kept = place("list", "records", "--json").rows
    assert [row["record"] for row in kept] == [row["record"] for row in rows.values()]


def test_a_late_build_has_its_own_limit(new_place: Place) -> None:
    new_place.write("slow.py", solution(init=BUILD))
    chosen = ["--problem", "tiny", "--case", "odd", "--device", "cpu", "--build-timeout", "0.01"]
    (row,) = new_place("evaluate", "slow.py", *chosen, "--json").rows
    assert (row["status"], "--build-timeout" in row["message"]) == ("TIMEOUT", True), row["message"]
    assert new_place.left_behind() == []


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere.py")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder.py": (folder, "a folder, not a regular file"),
    "dangling.py": (dangling, "No such file"),
    "loop.py": (loop, "symbolic links"),
    "pipe.py": (os.mkfifo, "a pipe, not a regular file"),
    "device.py": (device, "a device, not a regular file"),
    "huge.py": (huge, "1,073,741,824 bytes; the limit is 16,777,216"),
}


def test_what_is_no_file_to_read_ends_with_2_and_the_others_are_judged(new_place: Place) -> None:
    new_place.write("solutions/tiny/last.py", solution())
    for name, (make, _) in KINDS.items():
        make(new_place.root / "solutions" / "tiny" / name)
    ran = new_place("evaluate", "--case", "odd", "--device", "cpu", "--json")
    assert ran.code == 2
    assert [(row["solution"], row["status"]) for row in ran.rows] == [("tiny/last", "PASSED")]
    for name, (_, words) in KINDS.items():
        (line,) = [line for line in ran.err.splitlines() if f"/{name}: " in line]
        assert line.startswith("error: cannot read solution ")
        assert words in line
    assert "Traceback" not in ran.err
    listed = new_place("list", "solutions")
    assert (listed.code, "tiny/last" in listed.out, "a pipe" in listed.out) == (0, True, True)


USED_UP = "signal SIGSEGV ended the process, which had used up the memory that it may allocate"
HOARDS = "self.kept = []\nwhile True: self.kept.append([None] * 50)"
DIES = "import os, signal\nself.kept = bytearray(b'1') * (190 << 20)\nos.kill(os.getpid(), signal.SIGSEGV)"


@pytest.mark.parametrize(
    ("forward", "messages"),
    [
        # Without memory Python cannot always note in which line it was, and may crash.
        (HOARDS, ("forward: line 25: MemoryError", "forward: MemoryError", USED_UP)),
        (DIES, (USED_UP,)),
    ],
)
def test_with_no_memory_left_it_is_still_said(
    new_place: Place, runtime: Path, forward: str, messages: tuple[str, ...]
) -> None:
    new_place.write("solutions/tiny/hoards.py", solution(forward))
    (candidate,) = select(new_place.root, ["tiny"], None)
    libraries = build_runtime(runtime)  # other tests may have built another beside it, with a compiler of their own
    paths = {"core": str(libraries.core), "torch": str(libraries.torch)}
    workers = Workers("cpu", paths, memory_bytes=200 << 20)
    surroundings = Surroundings.of_this_machine(new_place.home, "g++", "cpu")
    judge = CandidateJudge(candidate, Policy("cpu", "ab", Limits(60, 60)), surroundings, workers)
    record = judge.evaluate("odd", {"n": 5})
    workers.close()
    assert record.status == "OUT_OF_MEMORY", record.message
    assert record.message in messages


@pytest.mark.parametrize("declared", ["punycode", "unicode_escape", "utf-7", "rot13"])
def test_a_text_is_decoded_by_plain_encodings_alone(declared: str) -> None:
    text = f"# coding: {declared}\n".encode() + b"a" * 100_000
    with pytest.raises(StrangeEncoding, match="use UTF-8"):
        declared_encoding(text)
    assert source_text(text) == text.decode()


def test_a_declaration_is_looked_for_where_python_looks() -> None:
    assert declared_encoding(b"#\r#\r# coding: latin-1\n") == "utf-8"
    assert source_text("# coding: latin-1\nx = 'é'\n".encode("latin-1")) == "# coding: latin-1\nx = 'é'\n"
