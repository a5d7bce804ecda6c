"""Keeps a run on disk: a folder with ``transcript.jsonl``, one event a line.

An event is on disk before its consequence: a turn before it is sent, an answer before it is judged.
So a run that was killed knows what it has asked and received. The records are in the store.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UsageError
from harness.generation.attempts import Attempt, Gate, Kind, Outcome, Tokens
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.system.text import one_line, storable

FILE_NAME = "transcript.jsonl"
LAYOUT = 1
#: No turn has so many tokens.
MOST_TOKENS = 1 << 48


class History:
    """The events of a run, read from its transcript, which may come from somebody else.

    Args:
        folder: The run's folder.

    Attributes:
        path: The transcript's file.
        facts: What stays the same when the run goes on: problem, device, strategy, proposers.
        attempts: The attempts so far. One without an outcome has an answer if ``source`` is set.
        texts: Raw answers, by number.
        answers: Raw answers that were not judged yet, with their notes, by number.
        elapsed_s: Seconds that earlier commands spent on the run.
    """

    def __init__(self, folder: Path):
        self.path = folder / FILE_NAME
        self.facts: dict[str, Any] = {}
        self.attempts: list[Attempt] = []
        self.texts: dict[int, str] = {}
        self.answers: dict[int, tuple[str, str]] = {}
        self.elapsed_s = 0.0
        self._names: dict[int, list[str]] = {}

    @classmethod
    def of(cls, folder: Path, store: Store) -> History:
        """Reads the transcript of a run, which may be at work.

        Args:
            folder: The run's folder.
            store: Where its records are. Attempts whose records it lacks have none.

        Raises:
            UsageError: The file cannot be read, or is no transcript of this version.
        """
        history = cls(folder)
        try:
            with history.path.open("rb") as file:
                history._replay(file)
        except OSError as error:
            raise UsageError(f"cannot read {one_line(str(history.path))}: {error.strerror}") from None
        for index, attempt in enumerate(history.attempts):
            names = history._names.get(attempt.number, [])
            records = tuple(store.get(name) for name in names if store.has(name))
            history.attempts[index] = dataclasses.replace(attempt, records=records)
        return history

    def _replay(self, lines: Iterable[bytes]) -> int:
        """Takes events in and returns their bytes, up to a line that a kill cut off: nothing followed from it."""
        end = 0
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                event = json.loads(line)
                if number == 1:
                    self._begin(event)
                else:
                    self._apply(event)
            except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
                self._refuse(f"line {number} is not an event of a run")
            end += len(line)
        return end

    def _begin(self, event: Any) -> None:
        if event["event"] != "begun" or event["layout"] != LAYOUT:
            self._refuse("it is no transcript of this version")
        self.facts = dict(event["facts"])

    def _apply(self, event: Any) -> None:
        number = event["number"]
        if event["event"] == "asked":
            if number != len(self.attempts) + 1:
                raise ValueError("a number is missing")
            kind, parent = Kind(event["kind"]), event["parent"]
            if parent is not None and not (isinstance(parent, int) and 0 < parent < number):
                raise ValueError("no such parent")
            self.attempts.append(Attempt(number, kind, parent, str(event["proposer"]), str(event["prompt"])))
            return
        attempt = self.attempts[number - 1]
        if event["event"] == "answered":
            self.texts[number] = str(event["text"])
            self.answers[number] = (self.texts[number], str(event["note"]))
            attempt = dataclasses.replace(attempt, tokens=_tokens(event["tokens"]))
        elif event["event"] == "settled":
            self.answers.pop(number, None)
            self._names[number] = [str(name) for name in event["records"]]
            attempt = dataclasses.replace(
                attempt,
                outcome=Outcome(event["outcome"]),
                message=str(event["message"]),
                source=str(event["source"]),
                tokens=_tokens(event["tokens"]),
            )
            self.elapsed_s = float(event["elapsed_s"])
        elif event["event"] == "gated":
            gate = event["gate"]
            if gate["passed"] not in (True, False, None):
                raise ValueError("a gate is passed or not")
            found = Gate(
                gate["passed"],
                str(gate["message"]),
                tuple(map(str, gate["records"])),
                None if gate.get("runner_up") is None else int(gate["runner_up"]),
                {str(case): _interval(lead) for case, lead in gate.get("leads", {}).items()},
                float(gate.get("device_s", 0.0)),
            )
            attempt = dataclasses.replace(attempt, gate=found)
            self.elapsed_s = float(event["elapsed_s"])
        else:
            raise ValueError("an unknown event")
        self.attempts[number - 1] = attempt

    def _refuse(self, why: str) -> NoReturn:
        raise UsageError(f"{one_line(str(self.path))}: {why}; choose another folder for a new run")


def _interval(told: Any) -> tuple[float, float, float]:
    """Returns a ratio with its interval.

    Raises:
        ValueError, TypeError: It holds something else.
    """
    ratio, low, high = map(float, told)
    return ratio, low, high


def _tokens(told: Any) -> Tokens:
    """Returns the tokens of an event.

    Raises:
        ValueError, KeyError, TypeError: It holds something else.
    """
    sent, received = told["sent"], told["received"]
    if not all(isinstance(one, int) and 0 <= one < MOST_TOKENS for one in (sent, received)):
        raise ValueError("no number of tokens")
    return Tokens(sent, received, bool(told["estimated"]))


class Transcript(History):
    """The transcript of a run at work, which only one process may have open.

    Args:
        folder: The run's folder, created if it is missing.
        facts: What must stay the same when the run goes on.

    Raises:
        UsageError: The folder cannot be used, holds something else or a run of another kind, or
            another process has the run open.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        super().__init__(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            raise UsageError(f"cannot use the folder {one_line(str(folder))}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise UsageError(f"another process works on the run in {one_line(str(folder))}") from None
        try:
            self._read(facts)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def with_records(self, store: Store) -> None:
        """Gives the attempts their records. One whose records the store lacks is judged again, and not asked again."""
        for index, attempt in enumerate(self.attempts):
            names = self._names.get(attempt.number, [])
            records: list[EvaluationRecord] = [store.get(name) for name in names if store.has(name)]
            if len(records) == len(names):
                self.attempts[index] = dataclasses.replace(attempt, records=tuple(records))
            else:
                self.attempts[index] = dataclasses.replace(attempt, outcome=None, source="", gate=None)
                self.answers[attempt.number] = (attempt.source, attempt.message)

    def asked(self, attempt: Attempt) -> None:
        """Notes a turn before it is sent."""
        self.attempts.append(attempt)
        self._write(
            "asked",
            number=attempt.number,
            kind=attempt.kind,
            parent=attempt.parent,
            proposer=attempt.proposer,
            prompt=attempt.prompt,
        )

    def answered(self, attempt: Attempt, text: str) -> None:
        """Notes an answer before its code is looked at; ``message`` of the attempt is its note."""
        self._replace(attempt)
        self.answers[attempt.number] = (text, attempt.message)
        tokens = dataclasses.asdict(attempt.tokens)
        self._write("answered", number=attempt.number, text=text, note=attempt.message, tokens=tokens)

    def settled(self, attempt: Attempt, elapsed_s: float) -> None:
        """Notes what became of a turn."""
        self._replace(attempt)
        self.answers.pop(attempt.number, None)
        self._write(
            "settled",
            number=attempt.number,
            outcome=attempt.outcome,
            message=attempt.message,
            source=attempt.source,
            tokens=dataclasses.asdict(attempt.tokens),
            records=[record.record for record in attempt.records],
            statuses=[record.status for record in attempt.records],
            elapsed_s=round(elapsed_s, 3),
        )

    def gated(self, attempt: Attempt, elapsed_s: float) -> None:
        """Notes the result of the gate."""
        assert attempt.gate is not None
        self._replace(attempt)
        gate = dataclasses.asdict(attempt.gate)
        self._write("gated", number=attempt.number, gate=gate, elapsed_s=round(elapsed_s, 3))

    def _replace(self, attempt: Attempt) -> None:
        self.attempts[attempt.number - 1] = attempt

    def _write(self, event: str, **values: Any) -> None:
        line = storable(json.dumps({"event": event, **values}, ensure_ascii=False)) + "\n"
        self._file.write(line.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, facts: Mapping[str, Any]) -> None:
        self._file.seek(0)
        end = self._replay(self._file)
        if end:
            self._check(facts)
        self._file.truncate(end)
        self._file.seek(0, os.SEEK_END)
        if not end:
            self._write("begun", layout=LAYOUT, facts=dict(facts))

    def _check(self, facts: Mapping[str, Any]) -> None:
        for name, value in facts.items():
            before = self.facts.get(name)
            if before != json.loads(json.dumps(value)):
                self._refuse(f"the run has another {name}: {one_line(str(before))}, not {one_line(str(value))}")
