"""A client of the server for programs that train or search elsewhere; it needs the standard library alone."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import DeadlineExceeded, HarnessError, UsageError

VARIABLE = "HARNESS_SERVE_TOKEN"
#: Seconds for an answer to a request, beyond those that the request asks the server to wait.
ANSWER_LIMIT_S = 60.0
#: Longest wait in seconds of one request, and pauses while the server is away: first and longest.
_WAIT_S, _PAUSES_S = 30.0, (0.2, 5.0)
#: The most evaluations in one request, and their bytes where they are several.
_BATCH, _BATCH_BYTES = 200, 8 << 20


class _TooManyError(Exception):
    """The server has no room for all evaluations of a batch; a smaller one may fit."""


@dataclass(frozen=True)
class Verdict:
    """The server's answer about an evaluation.

    Attributes:
        id: The evaluation's id.
        state: ``queued``, ``running``, ``finished``, ``failed``, ``expired`` or ``cancelled``.
        reward: The reward; None if it is masked: leave the sample out of the training.
        records: A summary of each record, with ``record``, ``case``, ``status``, ``message``.
        error: What failed, with ``stage`` and ``message``; None if nothing did.
    """

    id: str
    state: str
    reward: float | None
    records: Sequence[dict[str, Any]]
    error: dict[str, str] | None

    @property
    def is_open(self) -> bool:
        """True while the verdict is pending."""
        return self.state in ("queued", "running")

    @property
    def has_passed(self) -> bool:
        """True if the candidate passed on every case."""
        return self.state == "finished" and all(one["status"] == "PASSED" for one in self.records)


class Client:
    """A client of ``serve``. Several threads may use it.

    A request that the server cannot take now, or that finds no server, is sent again until the
    deadline. That judges nothing twice, since an evaluation has the same id each time.

    Args:
        url: The server's address, such as ``http://127.0.0.1:8077``.
        token: The client's token; None for that of the variable ``HARNESS_SERVE_TOKEN``, if any.

    Raises:
        UsageError: The address or the token is invalid.
    """

    def __init__(self, url: str, token: str | None = None):
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError
            parts.hostname.encode("idna")
            if not parts.path.isascii() or re.search(r"[\x00-\x20\x7f]", parts.path):
                raise ValueError
        except ValueError:
            message = f"{url!r} is not the address of a server: give one such as http://127.0.0.1:8077"
            raise UsageError(message) from None
        kind = http.client.HTTPConnection if parts.scheme == "http" else http.client.HTTPSConnection
        self._kind, self._host, self._port = kind, parts.hostname, port
        self._folder = parts.path.rstrip("/")
        token = (os.environ.get(VARIABLE, "") if token is None else token).strip()
        if not (token.isascii() and token.isprintable()):
            raise UsageError("the token may hold only printable ASCII characters")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def evaluate(self, request: dict[str, Any], *, deadline_s: float = 3600.0) -> Verdict:
        """Has one candidate judged and waits for its verdict.

        Args:
            request: The fields of ``POST /evaluations``, such as ``problem`` and ``answer``.
            deadline_s: Seconds until the verdict must be there.

        Raises:
            UsageError: The server refuses the request.
            DeadlineExceeded: There is no verdict yet. The server goes on; ask again for it.
        """
        (verdict,) = self.stream([request], deadline_s=deadline_s)
        if verdict.is_open:
            raise DeadlineExceeded(f"no verdict within the deadline of {deadline_s:g} s")
        return verdict

    def stream(self, requests: Iterable[dict[str, Any]], *, deadline_s: float = 3600.0) -> Iterator[Verdict]:
        """Has many candidates judged and yields their verdicts in the order of the requests.

        A verdict that is missing at the deadline is ``queued`` or ``running``, without a reward.

        Raises:
            UsageError: The server refuses a request.
            DeadlineExceeded: The server took no requests before the deadline.
        """
        end = time.monotonic() + deadline_s
        wanted, most = [json.dumps(one) for one in requests], _BATCH
        while wanted:
            count = _fitting(wanted[:most])
            try:
                sent = self._ask("POST", "/evaluations", end, body=f"[{','.join(wanted[:count])}]", is_batch=count > 1)
            except _TooManyError:
                most = count // 2
                continue
            del wanted[:count]
            most = min(2 * most, _BATCH)
            for one in sent:
                verdict = _verdict(one)
                while verdict.is_open and (left_s := end - time.monotonic()) > 0:
                    wait_s = min(left_s, _WAIT_S)
                    path = f"/evaluations/{verdict.id}?wait={wait_s:.3f}"
                    try:
                        verdict = _verdict(self._ask("GET", path, end, wait_s=wait_s))
                    except DeadlineExceeded:
                        break
                yield verdict

    def get(self, path: str) -> Any:
        """Returns the decoded answer to a GET request, such as ``/problems``.

        Raises:
            UsageError: The server refuses it.
            DeadlineExceeded: The server did not answer in time.
        """
        return self._ask("GET", path, time.monotonic() + ANSWER_LIMIT_S)

    def _ask(
        self,
        method: str,
        path: str,
        end: float,
        *,
        body: str | None = None,
        wait_s: float = 0.0,
        is_batch: bool = False,
    ) -> Any:
        """Sends a request, again while the server is away or full, until the deadline.

        Raises:
            _TooManyError: The server has no room for all evaluations of a batch.
        """
        data = None if body is None else body.encode()
        pause_s = _PAUSES_S[0]
        while True:
            try:
                code, answer, retry_s = self._sent(method, path, data, wait_s)
            except (OSError, http.client.HTTPException, json.JSONDecodeError, UnicodeDecodeError) as error:
                code, answer, retry_s = 503, {}, None
                why = f"{type(error).__name__}: {error}"
            else:
                if code < 300:
                    return answer
                error_of = answer.get("error") if isinstance(answer, dict) else None
                why = error_of.get("message", "") if isinstance(error_of, dict) else ""
            if code == 429 and is_batch:
                raise _TooManyError
            if code not in (408, 429, 500, 502, 503, 504):
                raise UsageError(f"the server refuses {method} {path.partition('?')[0]} with status {code}: {why}")
            pause_s = min(2 * pause_s, _PAUSES_S[1]) if retry_s is None else retry_s
            if time.monotonic() + pause_s > end:
                raise DeadlineExceeded(f"the server does not take {method} {path.partition('?')[0]}: {code} {why}")
            time.sleep(pause_s)

    def _sent(self, method: str, path: str, data: bytes | None, wait_s: float) -> tuple[int, Any, float | None]:
        connection = self._kind(self._host, self._port, timeout=wait_s + ANSWER_LIMIT_S)
        try:
            connection.request(method, self._folder + path, body=data, headers=self._headers)
            response = connection.getresponse()
            retry = response.headers.get("Retry-After", "")
            return response.status, json.loads(response.read() or b"null"), float(retry) if retry.isdigit() else None
        finally:
            connection.close()


def _fitting(bodies: Sequence[str]) -> int:
    """Returns how many bodies from the first on fit in one request, at least one."""
    sizes = itertools.accumulate(len(one) for one in bodies)
    return max(1, sum(size <= _BATCH_BYTES for size in sizes))


def _verdict(answer: Any) -> Verdict:
    if not isinstance(answer, dict):
        raise HarnessError("the server's answer is no evaluation: is that address a harness's server?")
    try:
        return Verdict(answer["id"], answer["state"], answer["reward"], answer["records"], answer["error"])
    except KeyError as error:
        raise HarnessError(f"the server's answer lacks {error}: is that address a harness's server?") from None
