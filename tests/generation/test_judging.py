"""Tests the cascade and the gate with evaluators that answer by a script, as a machine with a GPU would."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DeviceError, UsageError
from harness.evaluator import Answer, Entry
from harness.generation import judging
from harness.generation.attempts import Attempt, Gate, Kind, Outcome, Reply, Tokens, Turn
from harness.generation.duel import Duel, fought
from harness.generation.judging import Court, Judge
from harness.generation.search import Budget, Plan, Search
from harness.generation.strategies import BestOfN, Refinement, Strategy, TreeSearch
from harness.project.problems import read_problem
from harness.records.record import EvaluationRecord, Status
from harness.records.store import Store
from harness.timing.statistics import Interval, SpeedVerdict
from tests.commands.test_compare import measured
from tests.generation.kernels import PROBLEM, RIGHT
from tests.generation.test_rewards import BLANK, failed, passed
from tests.records.test_reading import CERTIFICATE


@dataclass
class Scripted:
    """An evaluator that gives one answer."""

    answer: Sequence[EvaluationRecord] | UsageError
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def evaluate(self, source: str, problem: Path, **more: Any) -> Answer:
        self.asked.append(more)
        if isinstance(self.answer, UsageError):
            raise self.answer
        return Answer(Entry(source, problem), tuple(self.answer))


@pytest.fixture
def court(tmp_path: Path) -> Court:
    (tmp_path / "hyperbolic.py").write_text(PROBLEM)
    problem = read_problem(tmp_path / "hyperbolic.py")
    return Court(problem=problem, device="cuda:0", home=tmp_path, root=tmp_path, cases=("small",))


FAST = passed(2.0)


@pytest.mark.parametrize(
    ("first", "reaches_gpu"),
    [
        ([replace(BLANK, device="cpu")], True),
        ([failed(Status.UNSUPPORTED)], True),
        ([failed(Status.TIMEOUT)], True),
        ([failed(Status.OUT_OF_MEMORY)], True),
        (UsageError("no case fits the CPU"), True),
        ([failed(Status.UNSAFE)], False),
        ([failed(Status.BUILD_ERROR)], False),
        ([failed(Status.WRONG_GRADIENT)], False),
    ],
)
def test_what_the_emulator_refuses_does_not_reach_the_gpu(court: Court, first: Any, reaches_gpu: bool) -> None:
    gpu, emulator = Scripted([FAST]), Scripted(first)
    records = Judge(court, gpu, emulator).records(RIGHT)  # type: ignore[arg-type]
    assert records == ((FAST,) if reaches_gpu else tuple(first))
    assert gpu.asked == ([{"cases": ("small",)}] if reaches_gpu else [])


@pytest.mark.parametrize(
    ("records", "gate"),
    [
        ([FAST, replace(FAST, case="b", further_draws={"shifted": "passed (output)"})], Gate(True, "", ("", ""))),
        ([FAST, failed(Status.WRONG_OUTPUT, case="b", message="no\nmore")], "case b: WRONG_OUTPUT: no"),
        ([replace(FAST, further_draws={"shifted": "failed (output, 3.0)"})], "case small, draw shifted: failed"),
        ([FAST, failed(Status.HARNESS_ERROR)], Gate(None, "a case could not be judged", ("", ""))),
    ],
)
def test_the_gate_asks_for_every_case_and_draw(
    court: Court, monkeypatch: pytest.MonkeyPatch, records: list[EvaluationRecord], gate: Gate | str
) -> None:
    evaluator = Scripted(records)
    settings: list[dict[str, Any]] = []
    monkeypatch.setattr(judging, "Evaluator", lambda *_, **more: settings.append(more) or evaluator)
    found = court.gate(Attempt(1, Kind.WRITE, None, "m", "", Outcome.JUDGED, source=RIGHT, records=(FAST,)))
    if isinstance(gate, Gate):
        assert found == gate
    else:
        assert (found.passed, found.message.startswith(gate)) == (False, True)
    assert evaluator.asked == [{"every_case": True}]
    assert (settings[0]["fresh"], settings[0]["refuse"]) == (True, ["no-own-kernel"])


def test_a_gpu_that_cannot_be_asked_is_told(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_PROPERTIES", "raise SystemExit('more\\na reason')")
    with pytest.raises(DeviceError, match="torch cannot use this GPU: a reason"):
        court.facts()
    monkeypatch.setattr(judging, "_PROPERTIES", "print('[\"H\", 9, 0, 132, 85899345920, 52428800]')")
    facts = "H, compute capability 9.0, 132 multiprocessors, 80 GiB of memory and 50 MiB of L2 cache."
    assert court.facts() == [facts]


def mark(source: str) -> str:
    return source.splitlines()[-1].split()[1]


@dataclass(frozen=True, kw_only=True)
class FakeGpu(Court):
    """Takes the speed of a source from its last line."""

    judged: list[str] = field(default_factory=list)
    timed: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def judge(self) -> Iterator[Any]:
        yield self

    def records(self, source: str) -> tuple[EvaluationRecord, ...]:
        self.judged.append(source)
        if source.endswith("# wrong\n"):
            return (failed(Status.WRONG_OUTPUT, message="a reason"),)
        speed, floor = mark(source), source.splitlines()[-1].partition("# ")[2].partition(" ")[2]
        record = replace(
            measured("s", 1.0, zlib.crc32(source.encode()), own_share=1.0),
            speedup_interval={"forward_backward": (float(speed), float(speed))},
            certified={"forward_backward": CERTIFICATE},
            run_s=1.0,
            floor={"forward_backward": {"share": [float(floor or 0.5)] * 3}},
        )
        with Store(self.home, writable=True) as store:
            if not store.has(record.record):
                store.add(record, source)
        return (record,)

    def gate(self, attempt: Attempt) -> Gate:
        return Gate(True, "", ("b",), device_s=2.0)

    def duel(self, first: Attempt, second: Attempt) -> Duel:
        speeds = [self.timed.get(speed, float(speed)) for speed in (mark(first.source), mark(second.source))]
        ratio = speeds[0] / speeds[1]
        return Duel({"small": Interval(ratio, ratio * 0.99, ratio * 1.01)}, 3.0)

    def facts(self) -> list[str]:
        return ["A GPU."]


class Answers:
    name = "m"

    def __init__(self, *marks: str):
        self._marks = marks
        self.turns: list[Turn] = []

    def propose(self, turn: Turn) -> Reply:
        self.turns.append(turn)
        return Reply(RIGHT + f"k = {turn.number}\n# {self._marks[turn.number - 1]}\n", Tokens(1, 1))


def searched(
    court: Court,
    proposer: Answers,
    budget: int | Budget,
    strategy: Strategy | None = None,
    timed: dict[str, float] | None = None,
) -> tuple[Search, list[str]]:
    fake = FakeGpu(
        problem=court.problem, device="cuda:0", home=court.home, root=court.root, cases=court.cases, timed=timed or {}
    )
    plan = Plan(
        court=fake,
        proposers=[proposer],
        strategy=strategy or TreeSearch(),
        budget=budget if isinstance(budget, Budget) else Budget(budget),
        folder=court.home / "run",
    )
    with contextlib.closing(Search(plan)) as search:
        list(search.verdicts())
    return search, fake.judged


def test_on_a_gpu_the_fastest_that_passes_the_gate_wins(court: Court) -> None:
    proposer = Answers("1.2", "1.1", "3.0", "2.0")
    search, _ = searched(court, proposer, 4)
    assert search.winner is not None
    assert (search.winner.number, search.tokens.total) == (3, 8)
    assert [turn.kind for turn in proposer.turns] == ["write", "rewrite", "edit", "edit"]
    assert proposer.turns[1].best is not None
    assert "The best solution so far" not in proposer.turns[1].prompt
    assert "forward_backward candidate: median 2" in proposer.turns[1].prompt
    assert [turn.parent and turn.parent.number for turn in proposer.turns] == [None, 1, 1, 3]


def test_the_faster_of_the_two_fastest_goes_to_the_gate_first(court: Court) -> None:
    """The third is the fastest by the search, and the second when both are timed by turns."""
    search, _ = searched(court, Answers("1.2", "2.0", "2.1"), 3, BestOfN(), {"2.1": 1.0})
    assert search.winner is not None
    assert search.winner.gate == Gate(
        True, "", ("b",), runner_up=3, leads={"small": (2.0, 1 / (0.5 * 1.01), 1 / (0.5 * 0.99))}, device_s=5.0
    )
    assert (search.winner.number, search.attempts[2].gate) == (2, None)
    assert search.winner.gate.words == "2.000x [1.980, 2.020] on small beside attempt 3"
    again, _ = searched(court, Answers(), 3, BestOfN())  # all of it is in the transcript
    assert again.winner is not None
    assert again.winner.gate == search.winner.gate


def test_seconds_of_the_device_end_a_search(court: Court) -> None:
    proposer = Answers("1.2", "1.3", "1.4", "1.5")
    search, judged = searched(court, proposer, Budget(9, device_seconds=2.5))
    assert (len(judged), search.winner is not None) == (3, True)
    assert search.device_s == 3 * 1.0 + 2.0 + 3.0  # three attempts, the gate and the duel
    assert search.why_ended == "the budget of 2.5 seconds of the device is spent"


@dataclass
class Clock:
    """Judges sources by turns: each one's speedups, a list for each time that it is judged."""

    speeds: dict[str, list[list[float]]]
    asked: str = ""

    def __call__(self, source: str) -> tuple[EvaluationRecord, ...]:
        self.asked += source
        speeds = self.speeds[source].pop(0)
        if not speeds:
            return (failed(Status.WRONG_OUTPUT),)
        sides = {"candidate": [1.0] * len(speeds), "eager": speeds}
        samples = {"forward": {name: {"samples_ms": series} for name, series in sides.items()}}
        return (replace(BLANK, samples=samples, run_s=1.5),)


@pytest.mark.parametrize(
    ("first", "second", "asked", "verdict"),
    [
        ([[2.0] * 9], [[1.0] * 9], "ab", SpeedVerdict.FASTER),
        ([[1.0] * 9], [[2.0] * 9], "ab", SpeedVerdict.SLOWER),
        ([[1.0] * 9], [[1.0] * 9], "ab", SpeedVerdict.SAME),
        ([[1.0, 2.0] * 5] * 4, [[1.0, 2.0] * 5] * 4, "abbaabba", SpeedVerdict.UNCLEAR),
        ([[1.0, 2.0] * 3, [2.0] * 99], [[1.0, 2.0] * 3, [1.0] * 99], "abba", SpeedVerdict.FASTER),
        ([[2.0] * 9], [[]], "ab", SpeedVerdict.UNCLEAR),
        ([[]], [[1.0] * 9], "a", SpeedVerdict.UNCLEAR),
    ],
)
def test_a_duel_goes_on_until_one_is_ahead_beyond_noise(
    first: list[list[float]], second: list[list[float]], asked: str, verdict: SpeedVerdict
) -> None:
    clock = Clock({"a": list(first), "b": list(second)})
    duel = fought("a", "b", clock)
    assert (clock.asked, duel.verdict) == (asked, verdict)
    opposite = {SpeedVerdict.FASTER: SpeedVerdict.SLOWER, SpeedVerdict.SLOWER: SpeedVerdict.FASTER}
    assert duel.reversed.verdict is opposite.get(verdict, verdict)
    assert duel.seconds == 1.5 * sum(bool(speeds) for _, speeds in zip(asked, [*first, *second], strict=False))


def test_a_repair_is_told_what_the_best_does_differently(court: Court) -> None:
    proposer = Answers("2.0", "wrong", "1.5")
    search, _ = searched(court, proposer, 3, Refinement())
    assert search.winner is not None
    assert search.winner.number == 1
    repair = proposer.turns[2].prompt
    assert "a reason" in repair
    assert "-# wrong\n+k = 1\n+# 2.0" in repair


def test_on_a_gpu_the_speed_of_light_is_enough(court: Court) -> None:
    proposer = Answers("1.2", "4.0 0.97", "9.0")
    search, _ = searched(court, proposer, 9)
    assert search.winner is not None
    assert (search.winner.number, len(proposer.turns)) == (2, 2)


def plain(attempt: Attempt) -> tuple[Attempt, list[str]]:
    """An attempt with its records by name: one that was read holds lists where it held tuples."""
    return replace(attempt, records=()), [record.record for record in attempt.records]


def test_wherever_a_run_is_killed_it_goes_on_and_repeats_nothing(court: Court) -> None:
    """Cuts the transcript behind each event and within each, as a kill would."""
    marks = ("1.2", "3.0", "0.5", "2.0")
    whole, judged = searched(court, Answers(*marks), 4)
    assert len(judged) == 4
    path = court.home / "run" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    assert len(lines) == 1 + 3 * 4 + 1
    for kept in range(len(lines)):
        for torn in (b"", lines[kept][: len(lines[kept]) // 2], lines[kept][:-1]):
            path.write_bytes(b"".join(lines[:kept]) + torn)
            proposer = Answers(*marks)
            again, judged = searched(court, proposer, 4)
            known = {name: sum(one["event"] == name for one in events[:kept]) for name in ("answered", "settled")}
            assert [turn.number for turn in proposer.turns] == list(range(known["answered"] + 1, 5))
            assert len(judged) == 4 - known["settled"]
            assert [plain(one) for one in again.attempts] == [plain(one) for one in whole.attempts]
            assert again.tokens == whole.tokens
            assert [json.loads(line)["event"] for line in path.read_bytes().splitlines()] == [
                one["event"] for one in events
            ]
