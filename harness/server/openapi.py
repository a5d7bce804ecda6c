"""The OpenAPI document of the server."""

from __future__ import annotations

from typing import Any

from harness.package import VERSION
from harness.records.queue import State
from harness.records.record import Status

_TEXT, _NUMBER, _BOOLEAN = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
_OPTIONAL_NUMBER = {"type": ["number", "null"]}
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["stage", "message"],
    "properties": {"stage": _TEXT, "message": _TEXT},
}
_RECORD = {
    "type": "object",
    "required": ["record", "case", "status", "message"],
    "properties": {
        "record": _TEXT,
        "case": _TEXT,
        "status": {"type": "string", "enum": [*Status]},
        "verdict": {**_TEXT, "description": "The status; a pass says if no kernel of the solution did any work."},
        "rule": _OPTIONAL_TEXT,
        "message": _TEXT,
        "own_share": _OPTIONAL_NUMBER,
        "forward_ms": _OPTIONAL_NUMBER,
        "forward_backward_ms": _OPTIONAL_NUMBER,
        "speedup": {"type": ["object", "null"]},
        "speedup_interval": {"type": "object"},
    },
}
_SCHEMAS: dict[str, Any] = {
    "Error": {"type": "object", "required": ["error"], "properties": {"error": _ERROR}},
    "NewEvaluation": {
        "type": "object",
        "required": ["problem"],
        "oneOf": [{"required": ["solution"]}, {"required": ["answer"]}],
        "additionalProperties": False,
        "examples": [{"problem": "group_norm", "answer": "```python\n...\n```", "cases": ["odd"], "priority": 1}],
        "properties": {
            "problem": {**_TEXT, "description": "A name of GET /problems, or the text of a problem."},
            "solution": {**_TEXT, "description": "The text of a solution. Give either this or `answer`."},
            "answer": {**_TEXT, "description": "A model's whole answer, such as Markdown with fences."},
            "cases": {"type": "array", "items": {**_TEXT, "maxLength": 200}, "maxItems": 100},
            "constants": {"type": "object", "description": "Constants that make a custom case."},
            "every_case": {**_BOOLEAN, "description": "Judge every case that fits the device."},
            "priority": {"type": "integer", "minimum": -100, "maximum": 100},
            "deadline_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 2592000},
        },
    },
    "Evaluation": {
        "type": "object",
        "required": ["id", "state", "problem", "reward", "records", "error"],
        "properties": {
            "id": _TEXT,
            "state": {"type": "string", "enum": [*State]},
            "problem": _TEXT,
            "priority": {"type": "integer"},
            "created_at": _TEXT,
            "deadline_at": _OPTIONAL_TEXT,
            "finished_at": _OPTIONAL_TEXT,
            "attempts": {"type": "integer"},
            "reward": {**_OPTIONAL_NUMBER, "description": "null: masked, or not finished. Leave it out of training."},
            "records": {"type": "array", "items": _RECORD},
            "error": {"anyOf": [_ERROR, {"type": "null"}]},
        },
    },
    "NewProblem": {
        "type": "object",
        "required": ["name", "source"],
        "additionalProperties": False,
        "properties": {"name": _TEXT, "source": _TEXT},
    },
    "Problem": {"type": "object", "required": ["problem"], "properties": {"problem": _TEXT}},
}


def _schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _one_or_several(name: str, most: int | None = None) -> dict[str, Any]:
    several = {"type": "array", "items": _schema(name), **({"minItems": 1, "maxItems": most} if most else {})}
    return {"anyOf": [_schema(name), several]}


def _answer(words: str, schema: dict[str, Any] | None, kind: str = "application/json") -> dict[str, Any]:
    return {"description": words, "content": {kind: {"schema": schema or {"type": "object"}}}}


def _refusals(*codes: int) -> dict[str, Any]:
    words = {
        400: "The body is not JSON.", 401: "The token is missing or wrong.", 403: "The server takes no problems.",
        404: "There is no such thing.",
        408: "The body took too long.", 413: "The body is too large.", 415: "The body's type is not JSON.",
        421: "The host is not this server's.", 422: "A field is wrong.", 429: "The client has too much open.",
        503: "The server cannot work now.",
    }  # fmt: skip
    retry = {"headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}}
    answers = {str(code): _answer(words[code], _schema("Error")) for code in (401, 421, 503, *codes)}
    return {code: answer | (retry if code in ("429", "503") else {}) for code, answer in answers.items()}


def _operation(words: str, answers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"summary": words, "responses": answers, **more}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def document() -> dict[str, Any]:
    """Returns the document."""
    one = _answer("The evaluation.", _schema("Evaluation"))
    id = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
    wait = {"name": "wait", "in": "query", "schema": {"type": "number", "minimum": 0, "maximum": 60}}
    wait["description"] = "Seconds to wait for the end."
    several = _one_or_several("Evaluation")
    body_errors = (400, 408, 413, 415, 422)
    problem = _answer("The problem, with the name to use.", _schema("Problem"))
    paths = {
        "/evaluations": {
            "post": _operation(
                "Submit one evaluation, or a list of up to 1000.",
                {"200": _answer("All are finished.", several), "202": _answer("Some are not finished.", several)}
                | _refusals(*body_errors, 429),
                **_body(_one_or_several("NewEvaluation", 1000)),
            )
        },
        "/evaluations/{id}": {
            "get": _operation("Read an evaluation.", {"200": one} | _refusals(404, 422), parameters=[id, wait]),
        },
        "/evaluations/{id}/cancel": {
            "post": _operation("Cancel an evaluation.", {"200": one} | _refusals(404), parameters=[id])
        },
        "/records/{record}": {
            "get": _operation(
                "Read a whole record.",
                {"200": _answer("The record.", None)} | _refusals(404),
                parameters=[{"name": "record", "in": "path", "required": True, "schema": _TEXT}],
            )
        },
        "/problems": {
            "get": _operation("List the problems.", {"200": _answer("The problems.", None)} | _refusals()),
            "post": _operation(
                "Send a problem, if the server accepts problems.",
                {"201": problem} | _refusals(403, *body_errors),
                **_body(_schema("NewProblem")),
            ),
        },
        "/templates": {"get": _operation("List the templates.", {"200": _answer("Templates.", None)} | _refusals())},
        "/metrics": {
            "get": _operation(
                "Metrics in Prometheus' format.", {"200": _answer("Metrics.", _TEXT, "text/plain")} | _refusals()
            )
        },
        "/health": {
            "get": _operation(
                "Tell whether the judge runs.",
                {"200": _answer("It runs.", None), "503": _answer("It starts.", None)} | {"421": _refusals()["421"]},
                security=[],
            )
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "kernel-harness", "version": VERSION, "description": "Verdicts on GPU kernels."},
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }
