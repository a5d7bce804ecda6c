"""A server on the loopback that speaks the chat-completions protocol by a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-test-9f8e7d6c5b"
#: Answers a request: gets its handler and the prompt.
Step = Callable[["Handler", str], None]


class Handler(BaseHTTPRequestHandler):
    """Takes the next step of the script for each request."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["messages"][0]["content"]
        with self.server.lock:
            self.server.asked.append(body)
            step = self.server.steps.pop(0) if self.server.steps else says("no more")
        self.server.arrived.release()
        if self.headers["authorization"] != f"Bearer {KEY}":
            step = fails(401, message=f"Incorrect API key provided: {self.headers['authorization']}")
        try:
            step(self, prompt)
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, format: str, *values: Any) -> None:
        pass

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send(self, data: str) -> None:
        raw = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
        self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def piece(self, text: str, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        self.send(json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}))


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, steps: list[Step]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.steps = steps
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.arrived = threading.Semaphore(0)
        self.released = threading.Event()

    @property
    def prompts(self) -> list[str]:
        return [body["messages"][0]["content"] for body in self.asked]

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"http://127.0.0.1:{self.server_address[1]}/v1", "OPENAI_API_KEY": KEY}

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def serving(*steps: Step) -> Iterator[Server]:
    server = Server(list(steps))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()


def block(code: str) -> str:
    return f"The idea.\n```python\n{code}\n```\n"


def says(text: str, sent: int = 100, received: int = 10, finish: str = "stop") -> Step:
    """Streams a text in pieces, then the usage."""

    def step(handler: Handler, prompt: str) -> None:
        handler.begin()
        for start in range(0, len(text), 1000):
            handler.piece(text[start : start + 1000])
        handler.piece("", finish)
        usage = {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}
        handler.send(json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage}))
        handler.send("[DONE]")
        handler.end()

    return step


def by_prompt(choose: Callable[[str], str]) -> Step:
    """Says what a function makes of the prompt."""
    return lambda handler, prompt: says(choose(prompt))(handler, prompt)


def fails(code: int, message: str = "no", **headers: str) -> Step:
    """Answers with an error's status."""

    def step(handler: Handler, prompt: str) -> None:
        data = json.dumps({"error": {"message": message, "type": "x"}}).encode()
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return step


def says_nonsense(data: str = "{not json") -> Step:
    def step(handler: Handler, prompt: str) -> None:
        handler.begin()
        handler.send(data)
        handler.end()

    return step


def dies(handler: Handler, prompt: str) -> None:
    """Closes the connection in the middle of an answer."""
    handler.begin()
    handler.piece("```python\nimport torch")
    handler.close_connection = True


def ends_early(handler: Handler, prompt: str) -> None:
    """Ends an answer properly, but without its finish."""
    handler.begin()
    handler.piece("```python\nimport torch")
    handler.end()


def never_ends(handler: Handler, prompt: str) -> None:
    """Says nothing until the test is over."""
    handler.begin()
    handler.piece("Let me think")
    handler.server.released.wait()


def says_much(handler: Handler, prompt: str) -> None:
    """Streams 10 MB, unless the client stops it."""
    handler.begin()
    for _ in range(160):
        handler.piece("x" * 65536)
    handler.piece("", "stop")
    handler.end()
