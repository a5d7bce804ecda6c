"""The HTTP application behind ``serve``."""

from __future__ import annotations

import asyncio
import datetime
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from harness.errors import HarnessError, ProblemError, StoreError, TemplateError, UsageError
from harness.package import VERSION
from harness.project.paths import project_root
from harness.project.problems import Problem
from harness.records.queue import EvaluationQueue, NewEvaluation, QueuedEvaluation, QuotaExceeded
from harness.records.record import EvaluationRecord
from harness.rendering.render_templates import find_template, template_names
from harness.server.access import Access
from harness.server.openapi import document
from harness.server.pump import Pump
from harness.server.requests import REFUSED_PROBLEM, Problems, evaluations

#: The largest body, and the longest time in seconds that it may take to arrive.
MOST_BODY_BYTES, BODY_LIMIT_S = 32 << 20, 60.0
LONGEST_WAIT_S = 60.0
_CLOSE = {"Connection": "close"}
#: Seconds after which a client over its quota is told to ask again: fewest, most.
_RETRY_S = (1, 60)
_SHOWN = (
    "record", "case", "status", "rule", "message", "own_share", "forward_ms", "forward_backward_ms", "speedup",
    "speedup_interval",
)  # fmt: skip
_Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class Server:
    """The state that the endpoints share.

    Attributes:
        pump: The pump.
        problems: The problems that clients may name.
        access: The clients.
        quota: The most open evaluations of a client.
        settings: The settings that decide a verdict beside the request, as text.
        refused: Refused requests since the start, by status code.
    """

    pump: Pump
    problems: Problems
    access: Access
    quota: int
    settings: str
    refused: Counter[int] = field(default_factory=Counter)

    def app(self) -> Starlette:
        """Returns the application."""
        routes = [
            Route("/evaluations", self._guarded(self._submit), methods=["POST"]),
            Route("/evaluations/{id}", self._guarded(self._evaluation), methods=["GET"]),
            Route("/evaluations/{id}/cancel", self._guarded(self._cancel), methods=["POST"]),
            Route("/records/{record}", self._guarded(self._record), methods=["GET"]),
            Route("/problems", self._guarded(self._problems), methods=["GET", "POST"]),
            Route("/templates", self._guarded(self._templates), methods=["GET"]),
            Route("/metrics", self._guarded(self._metrics), methods=["GET"]),
            Route("/health", self._guarded(self._health, is_open=True), methods=["GET"]),
            Route("/openapi.json", self._guarded(self._openapi, is_open=True), methods=["GET"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._http_error})

    def _guarded(self, endpoint: _Endpoint, *, is_open: bool = False) -> _Endpoint:
        """Checks who asks, and turns errors into answers."""

        async def guarded(request: Request) -> Response:
            if not self.access.takes_host(request.headers.get("host")):
                return self._refusal(421, "request", "this server answers to localhost only")
            client = self.access.client(request.headers.get("authorization"))
            if client is None and not is_open:
                headers = {"WWW-Authenticate": "Bearer"}
                return self._refusal(401, "request", "give a token: Authorization: Bearer TOKEN", headers)
            request.state.client = client
            try:
                return await endpoint(request)
            except QuotaExceeded as error:
                return self._refusal(429, "quota", str(error), {"Retry-After": str(self._retry_s())})
            except ProblemError as error:
                return self._refusal(422, "problem", str(error))
            except UsageError as error:
                return self._refusal(422, "request", str(error))
            except StoreError as error:
                return self._refusal(503, "harness", str(error), {"Retry-After": str(_RETRY_S[1])})

        return guarded

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._refusal(error.status_code, "request", error.detail, dict(error.headers or {}))

    def _refusal(self, code: int, stage: str, message: str, headers: dict[str, str] | None = None) -> Response:
        self.refused[code] += 1
        return _Json({"error": {"stage": stage, "message": message}}, code, headers)

    def _retry_s(self) -> int:
        """Returns the seconds until there is room again, guessed from the time of an evaluation."""
        judged = self.pump.counters["judged"]
        return min(max(math.ceil(self.pump.seconds / judged) if judged else 5, _RETRY_S[0]), _RETRY_S[1])

    async def _submit(self, request: Request) -> Response:
        body, client = await _json(request), request.state.client
        wanted = await asyncio.to_thread(evaluations, body, self.problems, client, self.settings)
        rows = await self._put(client, wanted)
        self.pump.wake()
        shown = [await self._shown(row) for row in rows]
        code = 202 if any(row.is_open for row in rows) else 200
        return _Json(shown if isinstance(body, list) else shown[0], code)

    async def _put(self, client: str, wanted: list[NewEvaluation]) -> list[QueuedEvaluation]:
        return await self.pump.call(lambda queue: queue.put(client, wanted, self.quota))

    async def _evaluation(self, request: Request) -> Response:
        wait_s = _seconds(request.query_params.get("wait", "0"))
        row = await self.pump.find(request.state.client, request.path_params["id"], wait_s)
        return self._missing() if row is None else _Json(await self._shown(row))

    async def _cancel(self, request: Request) -> Response:
        client, id = request.state.client, request.path_params["id"]
        if await self.pump.call(lambda queue: queue.cancel(client, id)):
            self.pump.stop(id)
        row = await self.pump.find(client, id)
        return self._missing() if row is None else _Json(await self._shown(row))

    async def _record(self, request: Request) -> Response:
        name = request.path_params["record"]
        body = await self.pump.call(lambda queue: queue.body(name))
        if body is None:
            return self._refusal(404, "request", "no record of that name")
        return Response(body, media_type="application/json")

    def _missing(self) -> Response:
        return self._refusal(404, "request", "you have sent no evaluation with that id")

    async def _shown(self, row: QueuedEvaluation) -> dict[str, Any]:
        bodies = await self.pump.call(lambda queue: [_summary(queue, name) for name in row.records])
        return {
            "id": row.id, "state": row.state, "problem": row.problem, "priority": row.priority,
            "created_at": _time(row.created_at), "deadline_at": _time(row.deadline_at),
            "finished_at": _time(row.finished_at), "attempts": row.attempts, "reward": row.reward, "records": bodies,
            "error": {"stage": row.stage, "message": row.error} if row.stage else None,
        }  # fmt: skip

    async def _problems(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._add_problem(request)
        return _Json({"problems": await asyncio.to_thread(self._known_problems)})

    def _known_problems(self) -> list[dict[str, Any]]:
        found = []
        for name, path in self.problems.names().items():
            try:
                found.append(_problem(name, self.problems.read(path)))
            except HarnessError as error:
                found.append({"problem": name, "error": str(error)})
        return found

    async def _add_problem(self, request: Request) -> Response:
        if not self.problems.accepts:
            return self._refusal(403, "request", REFUSED_PROBLEM)
        body = await _json(request)
        if not isinstance(body, dict) or set(body) != {"name", "source"}:
            raise UsageError("a problem must be an object with 'name' and 'source'")
        name, source = body["name"], body["source"]
        if not isinstance(name, str) or not isinstance(source, str):
            raise UsageError("'name' and 'source' must be strings")
        path: Path = await asyncio.to_thread(self.problems.keep, source, name)
        problem = await asyncio.to_thread(self.problems.read, path)
        return _Json(_problem(f"{name}@{path.parent.name}", problem), 201)

    async def _templates(self, request: Request) -> Response:
        return _Json({"templates": await asyncio.to_thread(lambda: [*_templates(self.problems.root)])})

    async def _health(self, request: Request) -> Response:
        is_ready = self.pump.is_ready
        state = {"status": "ok" if is_ready else "starting", "device": self.pump.device, "version": VERSION}
        return _Json(state, 200 if is_ready else 503)

    async def _openapi(self, request: Request) -> Response:
        return _Json(document())

    async def _metrics(self, request: Request) -> Response:
        counts = await self.pump.call(lambda queue: queue.counts())
        pump, counters = self.pump, self.pump.counters
        text = "".join(
            (
                _metric("evaluations", "gauge", "Evaluations in the queue, by state.", "state", counts),
                _metric("verdicts_total", "counter", "Verdicts since the start, by status.", "status", pump.verdicts),
                _metric("refused_total", "counter", "Refused requests, by status code.", "code", self.refused),
                _metric("retries_total", "counter", "Evaluations judged again.", "", {"": counters["retries"]}),
                _metric("judge_restarts_total", "counter", "Restarts of the judge.", "", {"": counters["restarts"]}),
                _metric("judged_total", "counter", "Evaluations that have run.", "", {"": counters["judged"]}),
                _metric("judging_seconds_total", "counter", "Seconds that they ran.", "", {"": pump.seconds}),
            )
        )
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


class _Json(JSONResponse):
    """JSON in ASCII: a candidate's message may hold half of a surrogate pair, which UTF-8 cannot."""

    def render(self, content: Any) -> bytes:
        """Returns the body."""
        return json.dumps(content, separators=(",", ":")).encode()


async def _json(request: Request) -> Any:
    """Returns the decoded body.

    Raises:
        HTTPException: It is no JSON, too large or too slow.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send JSON, with Content-Type: application/json")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_LIMIT_S):
            async for piece in request.stream():
                data += piece
                if len(data) > MOST_BODY_BYTES:
                    raise HTTPException(
                        413, f"the body has more than {MOST_BODY_BYTES:,} bytes", {"Connection": "close"}
                    )
    except TimeoutError:
        raise HTTPException(
            408, f"the body did not arrive within {BODY_LIMIT_S:.0f} s", {"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise HTTPException(400, "the client left before the end of the body") from None
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _seconds(text: str) -> float:
    """Returns the value of ``wait``.

    Raises:
        UsageError: It is not a number from 0 to ``LONGEST_WAIT_S``.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise UsageError(f"'wait' must be a number of seconds from 0 to {LONGEST_WAIT_S:.0f}")
    return seconds


def _summary(queue: EvaluationQueue, name: str) -> dict[str, Any]:
    record: EvaluationRecord = queue.get(name)
    whole = json.loads(record.to_json())
    return {**{key: whole[key] for key in _SHOWN}, "verdict": record.verdict}


def _problem(name: str, problem: Problem) -> dict[str, Any]:
    return {"problem": name, "cases": [*problem.cases], "precision": problem.precision, "digest": problem.digest}


def _templates(root: Path) -> Iterable[dict[str, Any]]:
    for name in template_names(project_root(str(root))):
        try:
            template = find_template(root, name)
        except TemplateError as error:
            yield {"template": name, "error": str(error)}
        else:
            parameters = {key: parameter.default for key, parameter in template.parameters.items()}
            yield {
                "template": name, "problem": template.problem, "variants": [*template.variants],
                "parameters": parameters,
            }  # fmt: skip


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds")


def _metric(name: str, kind: str, words: str, label: str, values: Any) -> str:
    """Returns a metric in Prometheus' text format."""
    lines = [f"# HELP harness_{name} {words}", f"# TYPE harness_{name} {kind}"]
    for key, value in values.items():
        lines.append(f'harness_{name}{{{label}="{key}"}} {value}' if label else f"harness_{name} {value}")
    return "\n".join(lines) + "\n"
