"""Tests ``from harness import Evaluator``: results, errors, and no side effects on the program."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import harness
from benchmarks.kills import HONEST, PROBLEM, WRONG
from harness import Entry, Evaluator
from harness.errors import HarnessError, UsageError
from harness.records.record import Status

REPOSITORY = Path(__file__).resolve().parents[2]
#: The longest that a process whose parent has gone may take to end on a busy machine.
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "problem.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def evaluator(home: Path) -> Iterator[Evaluator]:
    with Evaluator("cpu", home) as evaluator:
        yield evaluator


def test_a_candidate_is_judged_and_a_wrong_question_raises(evaluator: Evaluator, problem: Path) -> None:
    answer = evaluator.evaluate(HONEST, problem, cases=["small", "large"], tag={"step": 3})
    assert answer.has_passed
    assert [(record.case, record.status) for record in answer.records] == [("small", "PASSED"), ("large", "PASSED")]
    assert answer.entry.tag == {"step": 3}
    with pytest.raises(UsageError, match="no case 'smal'"):
        evaluator.evaluate(HONEST, problem, cases=["smal"])
    with pytest.raises(UsageError, match="name the problem"):
        evaluator.evaluate(HONEST)
    assert not evaluator.evaluate(WRONG, problem, cases=["small"]).has_passed


def test_every_case_is_judged_on_request(evaluator: Evaluator, problem: Path) -> None:
    answer = evaluator.evaluate(HONEST, problem, every_case=True)
    assert [record.case for record in answer.records] == ["small", "large"]
    with pytest.raises(UsageError, match="every_case cannot be used together"):
        evaluator.evaluate(HONEST, problem, cases=["small"], every_case=True)
    with pytest.raises(UsageError, match="every_case must be True or False"):
        evaluator.evaluate(HONEST, problem, every_case="all")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="give device='cpu', not 'cuda'"):
        Evaluator("cuda", check=True)


def test_cases_may_be_any_list_of_names(evaluator: Evaluator, problem: Path) -> None:
    class Names(list[str]):
        def __bool__(self) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

    answer = evaluator.evaluate(HONEST, problem, cases=Names(["small", "large"]))
    assert [record.case for record in answer.records] == ["small", "large"]


def test_a_problem_that_has_changed_is_read_again(evaluator: Evaluator, tmp_path: Path) -> None:
    changing = tmp_path / "changing.py"
    changing.write_text(PROBLEM)
    before = evaluator.evaluate(HONEST, changing, cases=["small"])
    same = evaluator.evaluate(HONEST, changing, cases=["small"])
    changing.write_text(PROBLEM.replace("torch.tanh(x)", "torch.sinh(x)"))
    after = evaluator.evaluate(HONEST, changing, cases=["small"])
    assert before.has_passed
    assert same.records[0].problem_digest == before.records[0].problem_digest != after.records[0].problem_digest
    assert not after.has_passed
    assert evaluator.evaluate(WRONG, changing, cases=["small"]).has_passed


def test_a_stream_is_read_as_there_is_room_and_faults_end_nothing(evaluator: Evaluator, problem: Path) -> None:
    taken: list[int] = []

    def entries() -> Iterator[Entry]:
        for number, text in enumerate((HONEST + "# 0\n", HONEST + "# 1\n", WRONG + "# 2\n", "no_such_file.py")):
            taken.append(number)
            yield Entry(text, problem, cases=["small"], tag=number)

    answered = []
    for answer in evaluator.stream(entries(), ahead=0):
        answered.append((answer.entry.tag, answer.records[0].status if answer.records else type(answer.error)))
        assert len(taken) == len(answered)
    assert answered == [(0, Status.PASSED), (1, Status.PASSED), (2, Status.WRONG_OUTPUT), (3, UsageError)]
    assert sorted(answer.entry.tag for answer in evaluator.stream(entries())) == [0, 1, 2, 3]


def test_lanes_wait_for_no_entry_that_may_never_come(home: Path, problem: Path) -> None:
    with Evaluator("cpu", home, lanes=2) as evaluator:
        assert evaluator.evaluate(HONEST + "# lanes\n", problem, cases=["small"]).has_passed
        (answer,) = evaluator.stream([Entry(HONEST + "# one\n", problem, cases=["small"])])
        assert answer.has_passed
        asked = [Entry("no_such_file.py", problem), Entry(WRONG + "# lanes\n", problem, cases=["small"], tag=1)]
        answers = {answer.entry.tag: answer for answer in evaluator.stream(asked)}
        assert isinstance(answers[None].error, UsageError)
        assert answers[1].records[0].status == "WRONG_OUTPUT"


def test_several_threads_may_ask(evaluator: Evaluator, problem: Path) -> None:
    def asked(number: int) -> tuple[str, Status]:
        text = (WRONG if number % 2 else HONEST) + f"# of a thread {number}\n"
        if number < 2:
            (answer,) = evaluator.stream([Entry(text, problem, cases=["small"], tag=number)])
        else:
            answer = evaluator.evaluate(text, problem, cases=["small"], tag=number)
        return answer.entry.tag, answer.records[0].status

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(asked, range(4)))
    assert found == [(0, "PASSED"), (1, "WRONG_OUTPUT"), (2, "PASSED"), (3, "WRONG_OUTPUT")]


def test_a_stream_that_is_left_or_breaks_leaves_the_evaluator_whole(evaluator: Evaluator, problem: Path) -> None:
    def entries(most: int) -> Iterator[Entry]:
        for number in range(most):
            yield Entry(HONEST + f"# left {number}\n", problem, cases=["small"], tag=number)
        raise ArithmeticError("no more")

    left = evaluator.stream(entries(3), ahead=2)
    assert next(left).has_passed
    left.close()  # type: ignore[attr-defined]
    assert not evaluator.evaluate(WRONG, problem, cases=["small"]).has_passed
    broken = evaluator.stream(entries(2), ahead=3)
    assert {next(broken).entry.tag, next(broken).entry.tag} == {0, 1}
    with pytest.raises(ArithmeticError, match="no more"):
        next(broken)
    assert evaluator.evaluate(HONEST, problem, cases=["small"]).has_passed
    assert not evaluator._asked
    assert not evaluator._answered


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"refuse": iter(["no-own-kernel"])}, "refuse must be a list of names"),  # read once, it would be empty
        ({"baselines": iter(["eager"])}, "baselines must be a list of names"),
        ({"rules": "flags=off"}, "rules must be a dict"),
        ({"rules": {"flags=off,library-operators": "enforce"}}, "rules must be a dict"),
        ({"device": None}, "device must be a string"),
        ({"lanes": 10**30}, "lanes must be a whole number from 1 to"),
        ({"trials": 10**9}, "trials must be a whole number from 1 to 1000"),
    ],
    ids=["refuse", "baselines", "text", "two rules", "device", "lanes", "trials"],
)
def test_a_setting_that_means_nothing_is_told(home: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Evaluator(**{"device": "cpu", "home": home, **settings})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"constants": {"n": object()}}, "constants: cannot pass a object"),
        ({"constants": {3: 4}}, "from the names"),
        ({"constants": {"n": 10**4400}}, "constants: "),
        ({"cases": "small"}, "a list of names"),
        ({"cases": ["small"], "constants": {"n": 4}}, "cannot be used together"),
        ({"candidate": b"answer.py"}, "must be a string or a path, not bytes"),
        ({"problem": 3}, "must be a string or a path, not int"),
    ],
    ids=["value", "key", "digits", "cases", "both", "bytes", "number"],
)
def test_an_entry_that_means_nothing_is_told_and_ends_no_stream(
    evaluator: Evaluator, problem: Path, changes: dict[str, Any], words: str
) -> None:
    asked = {"candidate": HONEST, "problem": problem, **changes}
    entries = [Entry(**asked), Entry(HONEST, problem, cases=["small"], tag="good")]
    answers = {answer.entry.tag: answer for answer in evaluator.stream(entries)}
    assert words in str(answers[None].error)
    assert answers["good"].has_passed
    with pytest.raises(UsageError, match=words):
        evaluator.evaluate(**asked)


@pytest.mark.parametrize("speedups", ["full", 1.5, {"small": 0.0}, {"small": float("nan")}, {3: 1.5}, {"small": True}])
def test_speedups_to_beat_that_mean_nothing_are_told(evaluator: Evaluator, problem: Path, speedups: Any) -> None:
    (answer,) = evaluator.stream([Entry(HONEST, problem, cases=["small"], to_beat=speedups)])
    assert "to_beat must be a dict such as {'full': 1.5}" in str(answer.error)


def test_a_forked_process_is_told_to_open_its_own(evaluator: Evaluator, problem: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            evaluator.evaluate(HONEST, problem, cases=["small"])
        except HarnessError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"open one in each process" in os.read(read, 1000)
    os.close(read)
    os.close(write)
    assert evaluator.evaluate(HONEST, problem, cases=["small"]).has_passed


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from harness import Evaluator

before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
child = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")
evaluator = Evaluator("cpu", sys.argv[1])
answer = evaluator.evaluate(Path(sys.argv[2]).read_text(), sys.argv[3], cases=["small"])
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
assert answer.has_passed and "torch" not in sys.modules
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
assert len(children) == 2 and str(child) in children, children
os.kill(child, signal.SIGKILL)
print(evaluator._process.pid, flush=True)
time.sleep(60)
"""


def test_a_program_keeps_what_is_its_own_and_takes_the_judge_with_it(home: Path, problem: Path, tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text(HONEST + "# a program's\n")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, home, tmp_path / "solution.py", problem],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        judge = int(program.stdout.readline())
        program.kill()
    deadline = time.monotonic() + LIMIT_S
    while not _has_ended(judge) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _has_ended(judge)


@pytest.mark.parametrize("before", ["ignore SIGCHLD", "ignore SIGTERM", "block SIGTERM"])
def test_a_program_s_own_signals_change_nothing(home: Path, problem: Path, tmp_path: Path, before: str) -> None:
    (tmp_path / "answer.py").write_text(HONEST)
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, sys, time\nfrom harness import Evaluator\n"
        "way, name = sys.argv[1].split()\nnumber = getattr(signal, name)\n"
        "if way == 'ignore':\n    signal.signal(number, signal.SIG_IGN)\n"
        "else:\n    signal.pthread_sigmask(signal.SIG_BLOCK, [number])\n"
        "evaluator = Evaluator('cpu', sys.argv[2])\n"
        "answer = evaluator.evaluate('answer.py', sys.argv[3], cases=['small'])\n"
        "print(answer.has_passed, *(record.message for record in answer.records))\n"
        "child = evaluator._process\nevaluator.close()\n"
        "print(child.returncode != -signal.SIGKILL)\n"
    )
    ran = subprocess.run(
        [sys.executable, program, before, home, problem],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == ["True", "True"], ran.stdout + ran.stderr


def test_an_evaluator_is_closed_by_a_handler_that_interrupts_a_question(home: Path, problem: Path) -> None:
    evaluator = Evaluator("cpu", home)

    def close(*_: object) -> None:
        evaluator.close()

    before = signal.signal(signal.SIGALRM, close)
    long = HONEST + "# " + "x" * 200_000 + "\n"
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(HarnessError):
            list(
                evaluator.stream((Entry(f"{long}# {n}\n", problem, cases=["small"]) for n in range(10_000)), ahead=500)
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_paths_are_those_of_the_folder_that_the_program_is_in(
    evaluator: Evaluator, problem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answer.py").write_text(HONEST)
    monkeypatch.chdir(tmp_path)
    assert evaluator.evaluate("answer.py", problem, cases=["small"]).has_passed


def _has_ended(number: int) -> bool:
    """Whether a process is gone, or nothing but a number that its last parent has not asked about: it may be ours."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_callback_may_raise_submit_and_close_but_not_wait(home: Path, problem: Path) -> None:
    with Evaluator("cpu", home) as evaluator:
        entry = Entry(HONEST + "# called back\n", problem, ["small"])
        seen: list[Any] = []

        def leave(_: object) -> None:
            sys.exit("a callback's own affair")

        def wait(_: object) -> None:
            with pytest.raises(HarnessError, match="cannot wait") as refused:
                evaluator.evaluate(HONEST, problem, cases=["small"])
            seen.append(refused.value)

        def ask(_: object) -> None:
            seen.append(evaluator.submit(entry))

        for callback in (leave, wait, ask):
            future = evaluator.submit(entry)
            future.add_done_callback(callback)
            assert future.result(LIMIT_S).has_passed
        assert evaluator.evaluate(HONEST, problem, cases=["small"]).has_passed  # the listener lives
        _, asked = seen
        assert asked.result(LIMIT_S).has_passed
        last = evaluator.submit(entry)
        last.add_done_callback(lambda _: evaluator.close())
        assert last.result(LIMIT_S).has_passed
        while evaluator.is_alive:
            time.sleep(0.01)


def test_a_judge_that_is_lost_is_told(home: Path, problem: Path) -> None:
    with Evaluator("cpu", home) as evaluator:
        os.kill(evaluator._process.pid, signal.SIGKILL)
        with pytest.raises(HarnessError, match="has ended"):
            evaluator.evaluate(HONEST, problem, cases=["small"])
    with pytest.raises(HarnessError, match="closed"):
        evaluator.evaluate(HONEST, problem, cases=["small"])
    with pytest.raises(UsageError, match="--device"):
        Evaluator("gpu", home)
    assert "Evaluator" in harness.__all__


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout_s": 0},
        {"timeout_s": math.nan},
        {"build_timeout_s": "5"},
        {"lanes": 0},
        {"lanes": 1.5},
        {"seed": "zz"},
        {"preset": "KernelBench"},
        {"tf32": True},
        {"timeout_s": True},
        {"timeout_s": 10**400},
        {"forward_only": 1},
        {"compat": "yes"},
        {"lanes": True},
        {"baselines": [None]},
        {"refuse": [5]},
        {"home": "a\0b"},
        {"trials": 0},
        {"trials": True},
        {"check": "sm_90"},
    ],
    ids=str,
)
def test_settings_that_no_judge_can_work_with_are_refused(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(UsageError, match=name):
        Evaluator(device="cpu", **settings)


def test_a_short_run_has_a_name_and_does_not_answer_for_a_whole_one(home: Path, problem: Path) -> None:
    text = HONEST + "# short\n"
    with Evaluator("cpu", home, trials=1, check=True) as evaluator:
        short = evaluator.evaluate(text, problem, cases=["small"])
        (named,) = evaluator.stream([Entry(text + "# 2\n", problem, cases=["small"], name="my kernel a=1")])
        (refused,) = evaluator.stream([Entry("no_such_file.py", problem, name="x")])
        assert "name is for a candidate given as text" in str(refused.error)
    assert (short.records[0].trials, short.records[0].policy["trials"]) == (1, 1)
    assert short.records[0].policy["check"] == "sm_90"
    assert named.records[0].solution == "my kernel a=1"
    with Evaluator("cpu", home) as evaluator:
        whole = evaluator.evaluate(text, problem, cases=["small"])
    assert whole.records[0].trials == 5
    assert whole.records[0].record != short.records[0].record


def test_kernelbench_s_verdict_and_the_rule_for_tf32_are_recorded(home: Path, problem: Path) -> None:
    with Evaluator("cpu", home, preset="kernelbench", tf32="forbid") as evaluator:
        (record,) = evaluator.evaluate(HONEST, problem, cases=["small"]).records
    assert record.status == Status.PASSED
    assert record.gradients == ()
    assert record.kernelbench["correct"] is True
    assert (record.policy["preset"], record.policy["tf32"]) == ("kernelbench", "forbid")


def test_a_negative_room_for_a_stream_is_refused(evaluator: Evaluator) -> None:
    with pytest.raises(UsageError, match="ahead"):
        list(evaluator.stream([], ahead=-5))


WITHOUT_STREAMS = """
import os, sys
kept = os.dup2(1, 60)
for descriptor in map(int, sys.argv[1:]):
    os.close(descriptor)
from harness import Evaluator
with Evaluator(device="cpu") as evaluator:
    status = evaluator.evaluate("group_norm/plain", cases=["odd"]).records[0].status
os.write(kept, str(status).encode())
"""


@pytest.mark.parametrize("closed", ["0 1 2", "2"])
def test_a_program_without_standard_streams_gets_its_verdict(closed: str, home: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_STREAMS, *closed.split()],
        cwd=REPOSITORY,
        env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        timeout=600,
    )
    assert (ran.returncode, ran.stdout) == (0, b"PASSED")
