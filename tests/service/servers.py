"""Starts ``serve`` for tests, and asks it over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
#: Waiting for what always comes; a busy machine is slow.
LIMIT_S = 300.0


@dataclass
class Running:
    """A server, and where it listens."""

    process: subprocess.Popen[str]
    url: str

    def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Sends a request; a body that is no bytes is sent as JSON."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= {"Authorization": f"Bearer {token}"} if token else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=LIMIT_S)
        with contextlib.closing(connection):
            connection.request(method, path, body=data, headers=sent)
            response = connection.getresponse()
            text = response.read().decode()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(text) if is_json else text, response.headers

    def verdict(self, id: str, token: str | None = None) -> dict[str, Any]:
        """Waits for the end of an evaluation."""
        for _ in range(int(LIMIT_S) // 30):
            code, found, _ = self.ask("GET", f"/evaluations/{id}?wait=30", token=token)
            assert code == 200, found
            if found["state"] not in ("queued", "running"):
                return dict(found)
        raise AssertionError(f"no end of {found}")

    def end(self) -> int:
        """Ends the server as Ctrl-C does, and returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LIMIT_S)


@contextlib.contextmanager
def serving(home: Path, *options: str | Path, **environment: str) -> Iterator[Running]:
    """Runs a server on a free port for the block."""
    variables = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY), **environment}
    command = [sys.executable, "-m", "harness", "serve", "--port", "0", "--device", "cpu", *map(str, options)]
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if found := re.match(r"listening on (\S+), judging on cpu$", line):
                    yield Running(process, found[1])
                    break
            else:
                raise AssertionError("".join(said))
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
