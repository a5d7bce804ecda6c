"""Tests the tools that ``mcp`` offers to agents, over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from benchmarks.kills import HONEST, KERNEL, PROBLEM, REPOSITORY, WRONG
from harness.server.mcp_tools import MOST_CHARACTERS
from tests.service.test_async_evaluator import LIMIT_S, fenced


@pytest.fixture(scope="module")
def said(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tools say, asked one after another in one session."""
    root = tmp_path_factory.mktemp("mcp")
    (root / "problems").mkdir()
    (root / "problems" / "tanh.py").write_text(PROBLEM)
    (root / "problems" / "bad.py").write_text("x = 1\n")
    wrong = root / "wrong.py"
    wrong.write_text(WRONG)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "harness", "mcp", "--device", "cpu", "--root", str(root)],
        env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
    )

    async def asked() -> dict[str, Any]:
        async with Client(server, read_timeout_seconds=600) as client:
            found: dict[str, Any] = {"tools": (await client.list_tools()).tools, "instructions": client.instructions}

            async def call(name: str, tool: str, **arguments: Any) -> str:
                result = await client.call_tool(tool, arguments)
                text = "".join(getattr(part, "text", "") for part in result.content)
                found[name] = (bool(result.is_error), text)
                return text

            judged = await call("right", "evaluate", solution=HONEST + "# mcp\n", problem="tanh", cases=["small"])
            await call("wrong", "evaluate", solution=str(wrong), problem="tanh", cases=["small"])
            await call("answer", "evaluate", solution=fenced(HONEST), problem="tanh", cases=["small"], is_answer=True)
            await call("no code", "evaluate", solution="no", problem="tanh", is_answer=True)
            await call("no case", "evaluate", solution=HONEST, problem="tanh", cases=["smal"])
            await call("checked", "check", solution=KERNEL, problem="tanh", cases=["small"])
            await call("fit", "validate", problem="tanh")
            await call("unfit", "validate", problem="bad")
            await call("option", "validate", problem="--help")
            record = re.search(r"record (\w{12})", judged)
            await call("shown", "show", record=record[1] if record else "")
            await call("no record", "show", record="zzz")
            await call("no template", "render", template="tanh")
            await call("profiled", "profile", solution=str(wrong), problem="tanh", case="small")
            await call("text is fit", "validate", problem=PROBLEM + "# mcp\n")
            await call("text profiled", "profile", solution=WRONG + "# mcp\n", problem=PROBLEM, case="small")
            await call("missing", "evaluate")
            await call("null byte", "show", record="x\0")
            await call("long", "profile", solution="x" * 200_000, problem="tanh")
            return found

    return asyncio.run(asked())


def test_the_tools_are_described(said: dict[str, Any]) -> None:
    names = {tool.name: tool.description for tool in said["tools"]}
    assert names.keys() == {"evaluate", "check", "validate", "show", "render", "profile"}
    assert all(len(words) < 600 for words in names.values())
    assert "ModelNew" in said["instructions"]


@pytest.mark.parametrize(
    ("name", "is_error", "words"),
    [
        ("right", False, "case small: PASSED, no kernel of its own (record "),
        ("wrong", False, "case small: WRONG_OUTPUT"),
        ("answer", False, "PASSED"),
        ("no code", True, "no code fence"),
        ("no case", True, "no case 'smal'"),
        ("checked", False, "case small: PASSED"),
        ("fit", False, "tanh: fine"),
        ("unfit", False, "FAILED"),
        ("option", True, "no problem '--help'"),
        ("shown", False, "PASSED"),
        ("no record", True, "no record 'zzz'"),
        ("no template", True, "tanh"),
        ("profiled", False, "WRONG_OUTPUT"),
        ("text is fit", False, ": fine"),
        ("text profiled", False, "WRONG_OUTPUT"),
        ("missing", True, "solution"),
        ("null byte", True, "show: an argument cannot be passed on"),
        ("long", True, "give the path of a file"),
    ],
)
def test_a_tool_says_in_few_words_what_its_command_says(
    said: dict[str, Any], name: str, is_error: bool, words: str
) -> None:
    found, text = said[name]
    assert (found, words in text) == (is_error, True), text
    assert len(text) < MOST_CHARACTERS + 100
    assert "Traceback" not in text


def test_the_reward_is_told(said: dict[str, Any]) -> None:
    assert said["right"][1].endswith("reward -1.000")
    assert said["wrong"][1].endswith("reward -0.500")


def test_a_device_that_cannot_be_is_told_before_an_agent_connects(harness: Callable[..., Any]) -> None:
    ran = harness("mcp", "--device", "nope")
    assert (ran.code, ran.out) == (2, "")
    assert "--device 'nope'" in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_its_input_is_open(home: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "harness", "mcp", "--device", "cpu"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        assert b"serverInfo" in process.stdout.readline()
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 128 + number
