"""The loop: asks proposers, judges their answers, feeds the verdicts back and gates the winner."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.answers.choice import extract
from harness.answers.reading import answer_of
from harness.errors import AnswerError, HarnessError, UsageError
from harness.generation.attempts import (
    MAX_ANSWER_BYTES,
    Attempt,
    Outcome,
    Proposer,
    ProposerFailed,
    Reply,
    Tokens,
    Turn,
    best_of,
    estimated_tokens,
)
from harness.generation.duel import Duel
from harness.generation.ideas import idea_of
from harness.generation.judging import Court, Judge
from harness.generation.normal_form import normal_digest
from harness.generation.strategies import Move, Strategy, TreeSearch, choose_proposer
from harness.generation.transcript import Transcript
from harness.project.paths import harness_home, project_root
from harness.project.solutions import find_problem
from harness.records.identity import new_run_name
from harness.records.store import Store
from harness.timing.scores import floor_share
from harness.timing.statistics import SpeedVerdict

#: Failures in a row after which a proposer is asked no more.
MOST_FAILURES = 3
#: Answers in a row that were all given before, after which further ones promise nothing.
MOST_DUPLICATES = 5
#: The share of the speed of light that is enough.
ENOUGH_OF_FLOOR = 0.95
#: Longest wait for an answer, in seconds: an interrupt that comes just before a wait is seen at the wait's end.
TICK_S = 1.0
#: Folder of the runs in ``HARNESS_HOME``.
RUNS = "generations"


@dataclass(frozen=True)
class Budget:
    """The limits of a run. It asks no more once a limit is reached; open answers still count.

    Attributes:
        candidates: Answers.
        tokens: Tokens in both directions; None for no limit.
        minutes: Minutes of work, over all commands of the run; None for no limit.
        device_seconds: Seconds that candidates ran on the device, builds not counted; None for no
            limit. The gate is not refused when they are spent.
        cost: What the tokens may cost, by ``price``; None for no limit.
        price: The prices of a million tokens sent and of a million received; None if unknown.
    """

    candidates: int = 20
    tokens: int | None = None
    minutes: float | None = None
    cost: float | None = None
    price: tuple[float, float] | None = None
    device_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("candidates", "tokens", "minutes", "cost", "device_seconds"):
            value = getattr(self, name)
            if value is None and name != "candidates":
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            is_whole = name not in ("candidates", "tokens") or (is_number and value == int(value))
            if not is_number or not is_whole or value <= 0:
                raise UsageError(f"a budget of {name} must be a positive number, not {value!r}")
        if self.cost is not None and self.price is None:
            raise UsageError("a budget of cost needs the price of tokens")


@dataclass(frozen=True)
class Verdict:
    """An item that a run yields: an attempt that was settled, or one that was at the gate.

    Attributes:
        attempt: The attempt.
        is_winner: Whether it passed the gate, which ends the run.
    """

    attempt: Attempt
    is_winner: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run: what to solve, who proposes, and within what limits.

    Attributes:
        court: Where attempts are judged.
        proposers: Who may be asked.
        strategy: What is asked next.
        budget: What it may spend.
        concurrency: Turns that may be open at once.
        folder: The run's folder.
    """

    court: Court
    proposers: Sequence[Proposer]
    strategy: Strategy
    budget: Budget
    concurrency: int = 1
    folder: Path


def search(
    problem: str | Path,
    proposer: Proposer | Sequence[Proposer],
    budget: Budget,
    *,
    strategy: Strategy | None = None,
    device: str = "auto",
    cases: Sequence[str] = (),
    forward_only: bool = False,
    home: str | Path | None = None,
    root: str | Path | None = None,
    folder: str | Path | None = None,
    concurrency: int = 1,
) -> Iterator[Verdict]:
    """Searches for a fast solution and yields each verdict as it comes; the winner's comes last.

    Args:
        problem: Name or file of the problem.
        proposer: Who proposes solutions; of several the better is asked more often.
        budget: What the search may spend.
        strategy: What to ask next; the default is ``TreeSearch``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        cases: Names of the cases that feedback speaks of. The gate takes every case.
        forward_only: Whether outputs alone are judged, no gradients.
        home: Folder of the store; the default is that of ``--home``.
        root: Folder with ``problems``; the default is that of ``--root``.
        folder: The run's folder. If it holds a run that was interrupted, the search continues it.
        concurrency: Turns that may be open at once.

    Raises:
        UsageError: An argument is wrong, or the folder holds another run.
        HarnessError: No proposer answers any more, or the device or the problem does not work.
    """
    place = harness_home(None if home is None else str(home))
    top = project_root(None if root is None else str(root))
    proposers = [proposer] if not isinstance(proposer, Sequence) else list(proposer)
    court = Court(
        problem=find_problem(top, str(problem)),
        device=device,
        home=place,
        root=top,
        cases=tuple(cases),
        forward_only=forward_only,
    )
    plan = Plan(
        court=court,
        proposers=proposers,
        strategy=strategy or TreeSearch(),
        budget=budget,
        concurrency=concurrency,
        folder=Path(folder) if folder is not None else new_folder(place),
    )
    with contextlib.closing(Search(plan)) as run:
        yield from run.verdicts()


def new_folder(home: Path) -> Path:
    """Returns a folder for a new run in ``HARNESS_HOME``."""
    return home / RUNS / new_run_name()


class Search:
    """A run in progress. Close it to end what is open.

    Args:
        plan: The run.

    Attributes:
        attempts: The attempts so far, also those of earlier commands.
        tokens: Tokens spent.
        why_ended: Why the run asks no more, in words; empty while it does.

    Raises:
        UsageError: The plan is wrong, or its folder holds another run.
    """

    def __init__(self, plan: Plan):
        if not plan.proposers or plan.concurrency < 1:
            raise UsageError("give at least one proposer, and a concurrency of 1 or more")
        self._plan = plan
        self._court = plan.court
        facts = {
            "problem": self._court.problem.name,
            "problem's digest": self._court.problem.digest,
            "device": self._court.device,
            "cases": list(self._court.cases),
            "forward only": self._court.forward_only,
            "strategy": plan.strategy.name,
            "proposers": [one.name for one in plan.proposers],
        }
        self._prompts = self._court.prompts()
        self._transcript = Transcript(plan.folder, facts)
        self._began = time.monotonic()
        with Store(self._court.home) as store:
            self._transcript.with_records(store)
        self._arrived: queue.SimpleQueue[tuple[int, Reply | BaseException]] = queue.SimpleQueue()
        self._open: set[int] = set()
        self._failures: Counter[str] = Counter()
        self._failure: Attempt | None = None
        self.why_ended = ""

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts so far, also those of earlier commands."""
        return self._transcript.attempts

    @property
    def tokens(self) -> Tokens:
        """Tokens that the run has spent, over all its commands."""
        return sum((one.tokens for one in self.attempts), Tokens())

    @property
    def device_s(self) -> float:
        """Seconds that candidates ran on the device, over all commands, without the emulator's check before a GPU."""
        return sum(one.device_s(on_cpu=self._court.on_cpu) for one in self.attempts)

    @property
    def winner(self) -> Attempt | None:
        """The attempt that passed the gate; None if there is none."""
        return next((one for one in self.attempts if one.gate is not None and one.gate.passed), None)

    def close(self) -> None:
        """Ends open turns and closes the transcript."""
        for proposer in self._plan.proposers:
            if callable(close := getattr(proposer, "close", None)):
                close()
        while not self._arrived.empty():  # paid for, and kept for the next command of the run
            number, reply = self._arrived.get()
            if isinstance(reply, Reply):
                self._answered(self.attempts[number - 1], reply)
        self._transcript.close()

    def verdicts(self) -> Generator[Verdict, None, None]:
        """Runs to the end and yields each verdict as it comes.

        Raises:
            HarnessError: No proposer answers any more, or the device or the problem does not work.
        """
        while self.winner is None:
            yield from self._searched()
            yield from self._gated()
            if self._is_finished():
                break
        if self.winner is None and self._failure is not None and not self._alive():
            words = f"{self._failure.proposer}: {self._failure.outcome}: {self._failure.message}"
            is_usage = self._failure.outcome is Outcome.REFUSED
            raise (UsageError if is_usage else HarnessError)(f"no answers any more: {words}")

    def _searched(self) -> Iterator[Verdict]:
        """Asks and judges until the strategy, the budget or a success ends it."""
        waiting = [one for one in self.attempts if one.outcome is None and one.number not in self._open]
        if not waiting and (self._is_satisfied() or self._is_finished()):
            return
        with self._court.judge() as judge:
            for attempt in waiting:
                if attempt.number in self._transcript.answers:
                    yield self._settled(attempt, judge)
                else:
                    self._send(attempt)  # it was sent, and no answer came before the run was killed
            while True:
                while self._asks_more() and (move := self._plan.strategy.next(self.attempts)) is not None:
                    attempt = self._attempt(move)
                    self._transcript.asked(attempt)
                    self._send(attempt)
                if not self._open or self._is_satisfied():
                    return
                try:
                    number, reply = self._arrived.get(timeout=self._wait_s())
                except queue.Empty:
                    if self._seconds_left() == 0:
                        return
                    continue
                self._open.discard(number)
                yield self._received(self.attempts[number - 1], reply, judge)

    def _attempt(self, move: Move) -> Attempt:
        """Returns the attempt of the next turn, with its prompt."""
        number = len(self.attempts) + 1
        parent = None if move.parent is None else self.attempts[move.parent - 1]
        ideas = [idea_of(self.attempts[one - 1], self._transcript.texts.get(one, "")) for one in move.unlike]
        prompt = self._prompts.text(move.kind, parent, best_of(self.attempts), ideas)
        by = choose_proposer([one.name for one in self._alive()], self.attempts)
        return Attempt(number, move.kind, move.parent, by, prompt)

    def _send(self, attempt: Attempt) -> None:
        """Asks a proposer in a thread of its own, which does not keep the program alive."""
        proposer = next(one for one in self._plan.proposers if one.name == attempt.proposer)
        parent = None if attempt.parent is None else self.attempts[attempt.parent - 1]
        turn = Turn(attempt.number, attempt.kind, attempt.prompt, self._court.problem, parent, best_of(self.attempts))

        def ask() -> None:
            try:
                self._arrived.put((attempt.number, proposer.propose(turn)))
            except BaseException as error:  # the main thread raises it
                self._arrived.put((attempt.number, error))

        self._open.add(attempt.number)
        threading.Thread(target=ask, name=f"harness-turn-{attempt.number}", daemon=True).start()

    def _received(self, attempt: Attempt, reply: Reply | BaseException, judge: Judge) -> Verdict:
        if isinstance(reply, ProposerFailed):
            self._failures[attempt.proposer] += 1
            tokens = reply.tokens or Tokens()
            failed = dataclasses.replace(attempt, outcome=reply.outcome, message=str(reply), tokens=tokens)
            if failed.has_answer:
                self._failures[attempt.proposer] = 0
            elif reply.outcome is not Outcome.EXHAUSTED:
                self._failure = failed
            return self._kept(failed)
        if isinstance(reply, BaseException):
            raise reply
        self._failures[attempt.proposer] = 0
        self._failure = None
        return self._settled(self._answered(attempt, reply), judge)

    def _answered(self, attempt: Attempt, reply: Reply) -> Attempt:
        tokens = reply.tokens if reply.tokens is not None else estimated_tokens(attempt.prompt, reply.text)
        text = reply.text if len(reply.text) <= MAX_ANSWER_BYTES else ""
        note = reply.note if text or not reply.text else f"the answer has more than {MAX_ANSWER_BYTES:,} characters"
        attempt = dataclasses.replace(attempt, tokens=tokens, message=note)
        self._transcript.answered(attempt, text)
        return attempt

    def _settled(self, attempt: Attempt, judge: Judge) -> Verdict:
        """Extracts and judges the code of an answer."""
        text, note = self._transcript.answers[attempt.number]
        try:
            answer = answer_of(text.encode("utf-8", "replace"), "the answer", "answer")
            source = extract(answer).code
        except AnswerError as error:
            words = f"{note} {error}".strip()
            return self._kept(dataclasses.replace(attempt, outcome=Outcome.NO_CODE, message=words))
        digest = normal_digest(source)
        earlier = (one for one in self.attempts if one.source and one.outcome is Outcome.JUDGED)
        twin = next((one.number for one in earlier if normal_digest(one.source) == digest), None)
        if twin is not None:
            words = f"the same code as attempt {twin}"
            return self._kept(dataclasses.replace(attempt, outcome=Outcome.DUPLICATE, message=words, source=source))
        records = judge.records(source)
        judged = dataclasses.replace(attempt, outcome=Outcome.JUDGED, message=note, source=source, records=records)
        return self._kept(judged)

    def _kept(self, attempt: Attempt) -> Verdict:
        self._transcript.settled(attempt, self._elapsed_s())
        return Verdict(attempt)

    def _gated(self) -> Iterator[Verdict]:
        """Takes those that passed to the gate, the best first, until one passes.

        On a GPU the best and the runner-up are timed by turns before, and the faster one goes first.
        """
        while self.winner is None:
            waiting = [one for one in self.attempts if one.gate is None]
            attempt = best_of(waiting)
            if attempt is None or self._seconds_left() == 0:
                return
            runner_up = best_of([one for one in waiting if one is not attempt])
            duel: Duel | None = None
            if runner_up is not None and not self._court.on_cpu:
                duel = self._court.duel(attempt, runner_up)
                if duel.verdict is SpeedVerdict.SLOWER:
                    attempt, runner_up, duel = runner_up, attempt, duel.reversed
            gate = self._court.gate(attempt)
            if duel is not None and runner_up is not None:
                device_s = gate.device_s + duel.seconds
                leads = {case: (lead.ratio, lead.low, lead.high) for case, lead in duel.leads.items()}
                gate = dataclasses.replace(gate, runner_up=runner_up.number, leads=leads, device_s=device_s)
            attempt = dataclasses.replace(attempt, gate=gate)
            if gate.passed is None:  # not written down: the next command of the run tries again
                self.attempts[attempt.number - 1] = attempt
            else:
                self._transcript.gated(attempt, self._elapsed_s())
            yield Verdict(attempt, is_winner=self.winner is not None)

    def _is_satisfied(self) -> bool:
        """Returns True if further candidates promise nothing: one passed, and is as fast as it can be."""
        best = best_of([one for one in self.attempts if one.gate is None])
        if best is None:
            return False
        if self._court.on_cpu:
            return True
        shares = [floor_share(record, direction) for record in best.records for direction in record.floor]
        return bool(shares) and all(share is not None and share.low >= ENOUGH_OF_FLOOR for share in shares)

    def _is_over(self) -> bool:
        """Returns True if the run asks no more, and notes the reason."""
        self.why_ended = ""
        answers = sum(one.has_answer or one.outcome is None for one in self.attempts)
        budget = self._plan.budget
        if answers >= budget.candidates:
            self.why_ended = f"the budget of {budget.candidates} candidates is spent"
        elif budget.tokens is not None and self.tokens.total >= budget.tokens:
            self.why_ended = f"the budget of {budget.tokens} tokens is spent"
        elif budget.cost is not None and budget.price is not None and self.tokens.cost(budget.price) >= budget.cost:
            self.why_ended = f"the budget of {budget.cost:g} is spent"
        elif budget.device_seconds is not None and self.device_s >= budget.device_seconds:
            self.why_ended = f"the budget of {budget.device_seconds:g} seconds of the device is spent"
        elif self._seconds_left() == 0:
            self.why_ended = f"the budget of {budget.minutes:g} minutes is spent"
        elif self._repeats_itself():
            self.why_ended = f"the last {MOST_DUPLICATES} answers had all been given before"
        elif not self._alive():
            self.why_ended = "no proposer answers any more"
        elif not self._open and self._plan.strategy.next(self.attempts) is None:
            self.why_ended = "the strategy has no further turn"
        return bool(self.why_ended)

    def _repeats_itself(self) -> bool:
        last = [one.outcome for one in self.attempts if one.has_answer][-MOST_DUPLICATES:]
        return len(last) == MOST_DUPLICATES and set(last) == {Outcome.DUPLICATE}

    def _is_finished(self) -> bool:
        """Returns True if the run asks no more and waits for no answer."""
        return self._is_over() and (not self._open or self._seconds_left() == 0)

    def _asks_more(self) -> bool:
        return len(self._open) < self._plan.concurrency and not self._is_satisfied() and not self._is_over()

    def _alive(self) -> list[Proposer]:
        spent = {one.proposer for one in self.attempts if one.outcome is Outcome.EXHAUSTED}
        return [
            one for one in self._plan.proposers if self._failures[one.name] < MOST_FAILURES and one.name not in spent
        ]

    def _elapsed_s(self) -> float:
        return self._transcript.elapsed_s + time.monotonic() - self._began

    def _seconds_left(self) -> float | None:
        """Returns the seconds that the budget leaves, at least 0; None without a limit."""
        minutes = self._plan.budget.minutes
        return None if minutes is None else max(0.0, 60 * minutes - self._elapsed_s())

    def _wait_s(self) -> float:
        left = self._seconds_left()
        return TICK_S if left is None else min(left, TICK_S)
