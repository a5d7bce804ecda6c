"""The durable queue of ``serve``: a table of the store, so that a killed server loses no request."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.store import Store
from harness.system.text import storable


class State(enum.StrEnum):
    """The state of a request to the server."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


OPEN = (State.QUEUED, State.RUNNING)


class QuotaExceeded(HarnessError):
    """A client would have more open requests than it may."""


@dataclass(frozen=True, kw_only=True)
class NewEvaluation:
    """A request that a client sends.

    Attributes:
        id: Digest of the client, the problem, the solution and the settings.
        problem: Name of the problem.
        request: The request as JSON.
        priority: Requests of a higher priority come first.
        deadline_at: Unix time by which the verdict must be there; None for no limit.
    """

    id: str
    problem: str
    request: str
    priority: int = 0
    deadline_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class QueuedEvaluation:
    """A row of the queue.

    Attributes:
        id: The request's id.
        client: Name of the client that sent it.
        state: State of the request.
        priority: Requests of a higher priority come first.
        created_at: Unix time of the request.
        deadline_at: Unix time by which the verdict must be there; None for no limit.
        finished_at: Unix time of the end; None while the request is open.
        attempts: Number of times that the judge began it again, after a fault of the machine.
        problem: Name of the problem.
        request: The request as JSON; empty once it is no longer open.
        records: Names of its records.
        reward: Reward for training; None if it is masked or unknown.
        stage: What failed: ``request``, ``answer``, ``problem``, ``deadline`` or ``harness``; or empty.
        error: The reason; or empty.
    """

    id: str
    client: str
    state: State
    priority: int
    created_at: float
    deadline_at: float | None
    finished_at: float | None
    attempts: int
    problem: str
    request: str
    records: tuple[str, ...]
    reward: float | None
    stage: str
    error: str

    @property
    def is_open(self) -> bool:
        """True while the verdict is pending."""
        return self.state in OPEN

    @property
    def may_repeat(self) -> bool:
        """True if the same request, sent again, is to be judged again: it ended without a scored verdict."""
        return not self.is_open and self.reward is None and self.stage not in ("request", "problem")


_COLUMNS = ", ".join(field.name for field in fields(QueuedEvaluation))


class EvaluationQueue(Store):
    """The queue of a server; one thread may use it.

    Args:
        home: ``HARNESS_HOME``.

    Raises:
        StoreError: The store cannot be opened.
    """

    def __init__(self, home: Path):
        super().__init__(home, writable=True)

    def recover(self) -> int:
        """Queues again what a killed server had begun, and returns how many requests that are."""
        return self._change("UPDATE evaluations SET state = 'queued' WHERE state = 'running'", ())

    def put(self, client: str, wanted: Sequence[NewEvaluation], quota: int) -> list[QueuedEvaluation]:
        """Adds requests in one transaction and returns their rows.

        A request that is there already is not added again. It is queued again if it ended without
        a verdict on the candidate.

        Raises:
            QuotaExceeded: The client would have more open requests than ``quota``. Nothing changes.
            StoreError: The store cannot be written.
        """
        now = time.time()
        with self.one_transaction():
            for one in wanted:
                earlier = self.find_evaluation(client, one.id)
                if earlier is not None and not earlier.may_repeat:
                    continue
                self._run(
                    "INSERT INTO evaluations (id, client, state, priority, created_at, deadline_at, attempts, problem, "
                    "request, records, stage, error) VALUES (?, ?, 'queued', ?, ?, ?, 0, ?, ?, '[]', '', '') "
                    "ON CONFLICT (id) DO UPDATE SET state = 'queued', priority = excluded.priority, created_at = "
                    "excluded.created_at, deadline_at = excluded.deadline_at, finished_at = NULL, attempts = 0, "
                    "request = excluded.request, records = '[]', stage = '', error = ''",
                    (one.id, client, one.priority, now, one.deadline_at, one.problem, storable(one.request)),
                )
            query = "SELECT count(*) FROM evaluations WHERE client = ? AND state IN (?, ?)"
            ((is_open,),) = self._rows(query, (client, *OPEN))
            if is_open > quota:
                raise QuotaExceeded(
                    f"{client} would have {is_open} open evaluations; the server takes {quota} of a client at once"
                )
        rows = [self.find_evaluation(client, one.id) for one in wanted]
        return [row for row in rows if row is not None]

    def take(self, most: int) -> list[QueuedEvaluation]:
        """Marks the next requests as running and returns them: by priority, then in their order."""
        query = f"SELECT {_COLUMNS} FROM evaluations WHERE state = 'queued' ORDER BY priority DESC, number LIMIT ?"
        with self.one_transaction():
            rows = [_row(row) for row in self._rows(query, (most,))]
            for row in rows:
                self._run("UPDATE evaluations SET state = 'running' WHERE id = ?", (row.id,))
        return rows

    def give_back(self, id: str) -> None:
        """Queues a running request again, and counts that."""
        self._change(
            "UPDATE evaluations SET state = 'queued', attempts = attempts + 1 WHERE id = ? AND state = 'running'", (id,)
        )

    def finish(
        self, id: str, state: State, *, records: Sequence[str] = (), reward: float | None = None, stage: str = "",
        error: str = "",
    ) -> None:  # fmt: skip
        """Ends a running request; does nothing if it is not running any more."""
        self._change(
            "UPDATE evaluations SET state = ?, finished_at = ?, records = ?, reward = ?, stage = ?, error = ?, "
            "request = '' WHERE id = ? AND state = 'running'",
            (state, time.time(), json.dumps([*records]), reward, stage, storable(error), id),
        )

    def cancel(self, client: str, id: str) -> bool:
        """Cancels an open request and returns whether it was open."""
        query = (
            "UPDATE evaluations SET state = 'cancelled', finished_at = ?, request = '' "
            "WHERE id = ? AND client = ? AND state IN ('queued', 'running')"
        )
        return bool(self._change(query, (time.time(), id, client)))

    def expire(self) -> list[str]:
        """Ends the queued requests whose deadline has passed, and returns their ids."""
        now = time.time()
        condition = "state = 'queued' AND deadline_at <= ?"
        late = [str(id) for (id,) in self._rows(f"SELECT id FROM evaluations WHERE {condition}", (now,))]
        if late:
            self._change(
                "UPDATE evaluations SET state = 'expired', finished_at = ?, stage = 'deadline', "
                f"error = 'no lane was free before the deadline', request = '' WHERE {condition}",
                (now, now),
            )
        return late

    def find_evaluation(self, client: str, id: str) -> QueuedEvaluation | None:
        """Returns a client's request; None if it sent no such request."""
        query = f"SELECT {_COLUMNS} FROM evaluations WHERE id = ? AND client = ?"
        return next((_row(row) for row in self._rows(query, (id, client))), None)

    def counts(self) -> dict[str, int]:
        """Returns the number of requests in each state."""
        found = dict(self._rows("SELECT state, count(*) FROM evaluations GROUP BY state", ()))
        return {state.value: int(found.get(state.value, 0)) for state in State}

    def _run(self, statement: str, arguments: tuple[Any, ...]) -> int:
        assert self._connection is not None
        return self._connection.execute(statement, arguments).rowcount

    def _change(self, statement: str, arguments: tuple[Any, ...]) -> int:
        """Runs a statement in a transaction and returns the number of changed rows."""
        with self.one_transaction():
            return self._run(statement, arguments)


def _row(row: tuple[Any, ...]) -> QueuedEvaluation:
    values = dict(zip((field.name for field in fields(QueuedEvaluation)), row, strict=True))
    return QueuedEvaluation(
        **{**values, "state": State(values["state"]), "records": tuple(json.loads(values["records"]))}
    )
