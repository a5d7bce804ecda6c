"""Tests ``serve``: requests, who may ask what, the queue's limits, and that kills lose nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import HONEST, PROBLEM, WRONG
from harness.errors import DeadlineExceeded, UsageError
from harness.server.client import Client
from harness.server.openapi import document
from tests.conftest import Ran
from tests.service.servers import LIMIT_S, Running, serving
from tests.service.test_async_evaluator import SPINNING, fenced

ONE, OTHER, THIRD = "token-of-one-1234567", "token-of-other-12345", "token-of-third-1234"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one problem."""
    root = tmp_path_factory.mktemp("served")
    (root / "problems").mkdir()
    (root / "problems" / "tanh.py").write_text(PROBLEM)
    return root


@pytest.fixture(scope="module")
def server(home: Path, root: Path) -> Iterator[Running]:
    """A server with three clients, which takes problems and four open evaluations of each client."""
    tokens = root / "tokens.txt"
    tokens.write_text(f"one {ONE}\n\nother {OTHER}\nthird {THIRD}\n")
    tokens.chmod(0o600)
    options = ("--token-file", tokens, "--quota", "4", "--accept-problems", "--root", root, "--timeout", "600")
    with serving(home, *options) as running:
        yield running


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"problem": "tanh", "solution": text, "cases": ["small"], **more}


def test_a_verdict_is_given_once_and_only_to_who_asked(server: Running) -> None:
    question = asked(HONEST + "# once\n")  # nobody else asks this, in whatever order the tests run
    code, first, _ = server.ask("POST", "/evaluations", question, token=ONE)
    assert (code, first["state"]) == (202, "queued")
    found = server.verdict(first["id"], ONE)
    assert (found["state"], found["error"], found["reward"]) == ("finished", None, -1.0)
    (record,) = found["records"]
    assert (record["status"], record["case"], record["own_share"]) == ("PASSED", "small", 0)
    assert record["verdict"] == "PASSED, no kernel of its own"
    code, again, _ = server.ask("POST", "/evaluations", question, token=ONE)
    assert (code, again) == (200, found)
    whole = server.ask("GET", f"/records/{record['record']}", token=ONE)[1]
    assert whole["outputs"][0]["name"] == "output"
    for method, path in (("GET", f"/evaluations/{first['id']}"), ("POST", f"/evaluations/{first['id']}/cancel")):
        assert server.ask(method, path, token=OTHER)[0] == 404
    code, own, _ = server.ask("POST", "/evaluations", question, token=OTHER)
    assert own["id"] != first["id"]
    assert server.verdict(own["id"], OTHER)["records"] == found["records"]


def test_a_batch_has_its_answers_in_order(server: Running) -> None:
    batch = [
        asked(WRONG + "# batch\n"),
        {"problem": PROBLEM.replace("tanh(x)", "sinh(x)"), "answer": fenced(WRONG), "constants": {"n": 3}},
        {"problem": "tanh", "answer": "I cannot help with that."},
        asked(HONEST.replace("return x.tanh()", "raise RuntimeError('\\ud800')")),
    ]
    code, sent, _ = server.ask("POST", "/evaluations", batch, token=ONE)
    assert code == 202
    found = [server.verdict(one["id"], ONE) for one in sent]
    statuses = [[record["status"] for record in one["records"]] for one in found]
    assert statuses == [["WRONG_OUTPUT"], ["PASSED"], [], ["RUNTIME_ERROR"]]
    assert [one["reward"] for one in found] == [-0.5, -1, -1, -0.5]
    assert found[2]["error"]["stage"] == "answer"
    assert "no code fence" in found[2]["error"]["message"]


def test_a_problem_that_is_sent_has_a_name_of_its_own(server: Running) -> None:
    sent = {"name": "tanh", "source": PROBLEM.replace("tanh(x)", "cosh(x)")}
    code, problem, _ = server.ask("POST", "/problems", sent, token=ONE)
    assert code == 201
    assert server.ask("POST", "/problems", sent, token=ONE)[1] == problem
    listed = {one["problem"]: one for one in server.ask("GET", "/problems", token=ONE)[1]["problems"]}
    assert listed[problem["problem"]] == problem
    assert listed["tanh"]["cases"] == ["small", "large"]
    code, one, _ = server.ask("POST", "/evaluations", asked(HONEST, problem=problem["problem"]), token=ONE)
    assert server.verdict(one["id"], ONE)["records"][0]["status"] == "WRONG_OUTPUT"
    for name, words in (("../x", "cannot name a problem"), ("x" * 200, "cannot name"), (3, "must be strings")):
        code, refusal, _ = server.ask("POST", "/problems", {**sent, "name": name}, token=ONE)
        assert (code, words in refusal["error"]["message"]) == (422, True)
    code, refusal, _ = server.ask("POST", "/problems", {"name": "broken", "source": "x = 1\n"}, token=ONE)
    assert (code, refusal["error"]["stage"]) == (422, "problem")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", 400, "not JSON"),
        (b'{"priority": NaN}', 400, "NaN is no JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        ([], 422, "1 to 1000 evaluations, not 0"),
        ([1], 422, "evaluation 0: an evaluation must be an object"),
        ({}, 422, "either 'solution'"),
        ({"solution": HONEST}, 422, "name the 'problem'"),
        (asked(HONEST, answer="x"), 422, "either 'solution'"),
        (asked(HONEST, problem="tan"), 422, "Did you mean 'tanh'?"),
        (asked(HONEST, problem="/etc/passwd"), 422, "no problem"),
        (asked(HONEST, problem="../problems/tanh"), 422, "no problem"),
        (asked(HONEST, problem=3), 422, "'problem' must be a string, not a number"),
        (asked(3), 422, "'solution' must be a string"),
        (asked(HONEST, cases=["smal"]), 422, "no case 'smal'"),
        (asked(HONEST, cases="small"), 422, "'cases' must be a list"),
        (asked(HONEST, constants={"m": 3}), 422, "exclude each other"),
        ({"problem": "tanh", "solution": HONEST, "constants": {"m": 3}}, 422, "'m'"),
        (asked(HONEST, every_case=1), 422, "'every_case' must be true or false"),
        (asked(HONEST, priority=1.5), 422, "whole number"),
        (asked(HONEST, priority=101), 422, "whole number"),
        (asked(HONEST, deadline_s=0), 422, "'deadline_s' must be above 0"),
        (asked(HONEST, deadline_s=10**400), 422, "too large"),
        (b'{"problem": "tanh", "solution": "x", "priority": 1e999}', 422, "too large"),
        (asked(HONEST, problem="\ud800"), 422, "no problem"),
        (asked(HONEST, cases=["\ud800"]), 422, "no case"),
        (
            {"problem": "tanh", "solution": HONEST, "constants": {"n": json.loads("[" * 900 + "]" * 900)}},
            422,
            "too deeply",
        ),
        (asked(HONEST, deadline_s="1"), 422, "must be a number, not a string"),
        (asked(HONEST, deadline_s=None), 422, "must be a number, not null"),
        (asked(HONEST, path="x"), 422, "unknown key 'path'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_request_is_told_what_is_wrong(server: Running, body: object, code: int, words: str) -> None:
    found, refusal, _ = server.ask("POST", "/evaluations", body, token=ONE)
    assert (found, words in refusal["error"]["message"]) == (code, True), refusal


def test_wrong_types_sizes_and_paths_are_refused(server: Running) -> None:
    assert server.ask("POST", "/evaluations", b"{}", token=ONE, Content_Type="text/plain")[0] == 415
    assert server.ask("POST", "/evaluations", b" " * ((32 << 20) + 1), token=ONE)[0] == 413
    for path, code in (
        ("/evaluations/none", 404),
        ("/records/none", 404),
        ("/evaluations/none?wait=61", 422),
        ("/evaluations/none?wait=nan", 422),
        ("/evaluations/none?wait=x", 422),
        ("/nothing", 404),
        ("/evaluations", 405),
    ):
        found, refusal, _ = server.ask("GET", path, token=ONE)
        assert (found, set(refusal["error"])) == (code, {"stage", "message"}), path


def test_without_a_token_only_health_and_the_description_are_shown(server: Running) -> None:
    for path in document()["paths"]:
        for token in (None, "token-of-nobody-12345"):
            method = "POST" if path in ("/evaluations", "/evaluations/{id}/cancel") else "GET"
            code, _, headers = server.ask(method, path, token=token)
            assert code == (200 if path == "/health" else 401)
            assert code == 200 or headers["WWW-Authenticate"] == "Bearer"
    assert server.ask("GET", "/problems", Authorization=f"Basic {ONE}")[0] == 401
    assert server.ask("GET", "/problems", Host="evil.example", token=ONE)[0] == 200
    assert server.ask("GET", "/openapi.json")[1]["openapi"] == "3.1.0"
    assert server.ask("GET", "/health")[1] == {"status": "ok", "device": "cpu", "version": "0.1.0"}
    assert server.ask("GET", "/templates", token=OTHER)[1] == {"templates": []}


def test_a_client_over_its_quota_waits_and_others_do_not(server: Running) -> None:
    refused = r'^harness_refused_total{code="429"} (\d+)$'
    before = re.search(refused, server.ask("GET", "/metrics", token=ONE)[1], re.MULTILINE)
    full = [asked(SPINNING + f"# quota {number}\n", deadline_s=600) for number in range(4)]
    sent = server.ask("POST", "/evaluations", full, token=OTHER)[1]
    code, refusal, headers = server.ask("POST", "/evaluations", [asked(HONEST + "# 5\n")], token=OTHER)
    assert (code, refusal["error"]["stage"]) == (429, "quota")
    assert 1 <= int(headers["Retry-After"]) <= 60
    assert [one["id"] for one in server.ask("POST", "/evaluations", full, token=OTHER)[1]] == [
        one["id"] for one in sent
    ]
    late = server.ask("POST", "/evaluations", asked(HONEST + "# late\n", deadline_s=0.001), token=ONE)[1]
    for one in sent:
        code, found, _ = server.ask("POST", f"/evaluations/{one['id']}/cancel", token=OTHER)
        assert (code, found["state"], found["reward"]) == (200, "cancelled", None)
    expired = server.verdict(late["id"], ONE)
    assert (expired["state"], expired["reward"], expired["error"]["stage"]) == ("expired", None, "deadline")
    again = server.ask("POST", "/evaluations", asked(HONEST + "# late\n"), token=ONE)[1]
    assert again["id"] == late["id"]
    assert server.verdict(late["id"], ONE)["state"] == "finished"
    text = server.ask("GET", "/metrics", token=ONE)[1]
    cancelled = re.search(r'^harness_evaluations{state="cancelled"} (\d+)$', text, re.MULTILINE)
    assert cancelled is not None
    assert int(cancelled[1]) >= 4  # other tests' servers have used the home
    after = re.search(refused, text, re.MULTILINE)
    assert after is not None
    assert int(after[1]) == (int(before[1]) if before else 0) + 1


def test_the_client_waits_asks_again_and_gives_up_in_time(server: Running) -> None:
    client = Client(server.url, THIRD)  # what it gives up stays open for a second, and counts for its quota
    assert client.evaluate(asked(HONEST)).records[0]["status"] == "PASSED"
    wanted = [asked(HONEST + f"# client {number}\n") for number in range(3)]
    assert all(one.has_passed for one in client.stream(wanted))
    with pytest.raises(DeadlineExceeded, match=r"within the deadline of 0\.5 s"):
        client.evaluate(asked(SPINNING + "# client\n", deadline_s=1), deadline_s=0.5)
    with pytest.raises(UsageError, match="status 401"):
        Client(server.url, "token-of-nobody-12345").evaluate(asked(HONEST))
    with pytest.raises(DeadlineExceeded, match="does not take"):
        Client("http://127.0.0.1:9").evaluate(asked(HONEST), deadline_s=0.1)
    for address in ("127.0.0.1:8077", "http://127.0.0.1:99999", "http://[::1", "http://a..b:80", "http://host/a b"):
        with pytest.raises(UsageError, match="not the address"):
            Client(address)
    with pytest.raises(UsageError, match="printable ASCII"):
        Client(server.url, "one\ntwo")


def test_the_client_sends_what_the_server_has_room_for(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(server.url, f"{THIRD}\n")  # as read from a file
    bodies: list[int] = []
    sent = Client._sent

    def counted(self: Client, method: str, path: str, data: bytes | None, wait_s: float) -> Any:
        bodies.append(len(data or b""))
        return sent(self, method, path, data, wait_s)

    monkeypatch.setattr(Client, "_sent", counted)
    more = 4 + 2  # the quota, and more
    wanted = [asked(HONEST + f"# one of many {number}\n") for number in range(more)]
    assert [one.has_passed for one in client.stream(wanted, deadline_s=300)] == [True] * more
    bodies.clear()
    large = [asked(HONEST + f"# {'x' * 240_000} {number}\n") for number in range(40)]
    with contextlib.suppress(DeadlineExceeded):
        next(client.stream(large, deadline_s=5))
    assert max(bodies) < 9 << 20


def _children(number: int) -> dict[int, str]:
    """The child processes of a process, with their command lines."""
    found = {}
    for one in Path(f"/proc/{number}/task").glob("*/children"):
        for child in one.read_text().split():
            with contextlib.suppress(OSError):
                found[int(child)] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def _named(number: int, words: str) -> int:
    """Waits for a child process with these words in its command line."""
    end = time.monotonic() + LIMIT_S
    while not (found := [child for child, line in _children(number).items() if words in line]):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found[0]


def test_kills_lose_nothing_and_judge_nothing_twice(own_home: Path, root: Path) -> None:
    texts = [(WRONG if number % 3 == 2 else HONEST) + f"# kill {number}\n" for number in range(6)]
    with serving(own_home, "--root", root) as server:
        assert server.ask("GET", "/problems", Host="evil.example")[0] == 421
        assert server.ask("POST", "/problems", {"name": "x", "source": "x"})[0] == 403
        sent = server.ask("POST", "/evaluations", [asked(text) for text in texts])[1]
        judge = _named(server.process.pid, "harness.executors.service")
        os.kill(_named(judge, "harness.executors.lane_start"), signal.SIGKILL)
        assert server.verdict(sent[0]["id"])["records"][0]["status"] == "PASSED"
        os.kill(judge, signal.SIGKILL)
        assert server.verdict(sent[1]["id"])["records"][0]["status"] == "PASSED"
        server.process.kill()
        assert server.process.wait() == -signal.SIGKILL
    with serving(own_home, "--root", root) as server:
        found = [server.verdict(one["id"]) for one in sent]
        assert server.end() == 130
    assert [one["records"][0]["status"] for one in found] == ["PASSED", "PASSED", "WRONG_OUTPUT"] * 2
    with contextlib.closing(sqlite3.connect(own_home / "store.db")) as store:
        counts = store.execute("SELECT count(*), count(DISTINCT digest) FROM records").fetchone()
        left = store.execute("SELECT count(*) FROM evaluations WHERE request != ''").fetchone()
    assert (counts, left) == ((6, 6), (0,))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--host 0.0.0.0", "others could reach the server: give --token-file"),
        ("--host 0.0.0.0 --token-file GOOD", "give --require-confinement"),
        ("--host 192.0.2.1 --token-file GOOD --require-confinement", "cannot listen on 192.0.2.1"),
        ("--accept-problems", "clients need a token"),
        ("--token-file OPEN", "others may read it; run: chmod 600"),
        ("--token-file NONE", "No such file"),
        ("--token-file EMPTY", "it holds no token"),
        ("--token-file SHORT", "at least 16"),
        ("--token-file TWICE", "line 2 repeats a token"),
        ("--token-file WORDS", "line 1 must have a client's name and its token"),
        ("--device gpu", "gpu"),
    ],
)
def test_what_would_be_unsafe_or_wrong_is_refused(
    harness: Callable[..., Ran], tmp_path: Path, options: str, words: str
) -> None:
    files = {
        "GOOD": f"one {ONE}\n", "OPEN": f"one {ONE}\n", "EMPTY": "\n", "SHORT": "one short\n",
        "TWICE": f"one {ONE}\nother {ONE}\n", "WORDS": f"{ONE}\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "OPEN" else 0o600)
    ran = harness("serve", "--port", "0", *options.split(), cwd=tmp_path, HARNESS_HOME=str(tmp_path / "home"))
    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert ONE not in ran.err


def test_two_servers_do_not_share_a_home_or_a_port(
    server: Running, harness: Callable[..., Ran], tmp_path: Path, home: Path
) -> None:
    ran = harness("serve", "--port", "0", "--device", "cpu", HARNESS_HOME=str(home))
    assert (ran.code, "another server works on" in ran.err) == (3, True)
    port = server.url.rpartition(":")[2]
    ran = harness("serve", "--port", port, "--device", "cpu", HARNESS_HOME=str(tmp_path))
    assert (ran.code, "Address already in use" in ran.err) == (2, True)


@pytest.mark.parametrize("path", ["/evaluations", "/nowhere"])
def test_a_body_that_breaks_http_ends_its_connection_and_nothing_else(path: str, root: Path, own_home: Path) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(own_home, "--root", root) as running:
        host, port = running.url.removeprefix("http://").split(":")
        for begun, broken in ((head, "zz\r\nhello\r\n"), (head + "5\r\nhelloXX\r\n", "")):
            with contextlib.closing(socket.create_connection((host, int(port)), timeout=LIMIT_S)) as connection:
                connection.sendall(begun.encode())
                if broken:  # behind the answer, if there is one before the body
                    time.sleep(0.2)
                    connection.sendall(broken.encode())
                while connection.recv(4096):
                    pass
        assert running.ask("GET", "/openapi.json")[0] == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.process.stderr is not None
        assert "Traceback" not in running.process.stderr.read()


def test_the_description_is_json(server: Running) -> None:
    served = server.ask("GET", "/openapi.json")[1]
    assert served == json.loads(json.dumps(document()))
