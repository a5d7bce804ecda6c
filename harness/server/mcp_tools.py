"""The tools of the MCP server: each does what a command does, and answers in a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import ParamSpec

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from harness.async_evaluator import AsyncEvaluator, Settings
from harness.entries import Answer
from harness.errors import HarnessError, UsageError
from harness.package import VERSION
from harness.project.given_problems import keep_problem
from harness.project.paths import PYTHON_OPTIONS, import_path
from harness.records.record import EvaluationRecord
from harness.rewards import reward

#: The most characters of an answer; the rest is cut out of its middle.
MOST_CHARACTERS = 6000
#: The most characters of a record's message.
_MOST_MESSAGE = 2000
#: Seconds that a tool may take.
LIMIT_S = 1800.0
_INSTRUCTIONS = (
    "Judges GPU kernels against PyTorch problems. Write a solution: Python that defines ModelNew with the problem's "
    "signature and builds its CUDA with load_inline. Use `check` until it passes, then `evaluate`. A solution or a "
    "problem is a name, a file's path, or a text of several lines."
)
Arguments = ParamSpec("Arguments")


class Tools:
    """The tools, with the evaluators that they open when they are first needed.

    Args:
        device: The device of ``evaluate`` and ``profile``.
        home: ``HARNESS_HOME``.
        root: Folder with problems, templates and solutions.
    """

    def __init__(self, device: str, home: Path, root: Path):
        self._settings = Settings(device=device, home=home, root=root)
        self._home, self._root, self._device = home, root, device
        self._opened: dict[bool, AsyncEvaluator] = {}
        self._lock: asyncio.Lock | None = None

    def server(self) -> MCPServer[None]:
        """Returns the MCP server."""
        server: MCPServer[None] = MCPServer(
            "kernel-harness", instructions=_INSTRUCTIONS, version=VERSION, log_level="ERROR", lifespan=self._lifespan
        )
        for tool in (self.evaluate, self.check, self.validate, self.show, self.render, self.profile):
            server.tool(structured_output=False)(_explained(tool))
        return server

    async def evaluate(
        self, solution: str, problem: str = "", cases: list[str] | None = None, is_answer: bool = False
    ) -> str:
        """Builds, runs and judges a solution: outputs, gradients, and on a GPU its speed over eager PyTorch.

        `solution` is a text, a file's path or problem/variant. `problem` may be left out for the latter. `is_answer`:
        the text is a whole answer in Markdown. Without `cases` one case is judged.
        """
        return await self._judged(False, solution, problem, cases, is_answer)

    async def check(
        self, solution: str, problem: str = "", cases: list[str] | None = None, is_answer: bool = False
    ) -> str:
        """Checks every access of a solution's kernels on the CPU: races, accesses out of bounds, deadlocks.

        Names lines and threads. The arguments are those of `evaluate`. It needs no GPU.
        """
        return await self._judged(True, solution, problem, cases, is_answer)

    async def validate(self, problem: str) -> str:
        """Checks that a problem runs and can tell right answers from wrong ones.

        `problem` is a name, a file's path or a text.
        """
        return await self._command(
            "validate", "--device", "cpu", "--root", str(self._root), "--", self._problem(problem)
        )

    async def show(self, record: str) -> str:
        """Shows everything about a record, which other tools name, with the command that repeats it."""
        return await self._command("show", "--home", str(self._home), "--", record)

    async def render(self, template: str, variant: str = "", parameters: dict[str, str] | None = None) -> str:
        """Renders a template with parameters and returns the solution's text."""
        words = [word for name, value in (parameters or {}).items() for word in ("-p", f"{name}={value}")]
        if variant:
            words += ["--variant", variant]
        return await self._command("render", "-o", "-", "--root", str(self._root), *words, "--", template, most=100_000)

    async def profile(self, solution: str, problem: str = "", case: str = "") -> str:
        """Shows which kernels one call of a solution launches, and for how long.

        `solution` and `problem` are those of `evaluate`.
        """
        words = ["--device", self._device, "--home", str(self._home), "--root", str(self._root)]
        words += ["--problem", self._problem(problem)] if problem else []
        words += ["--case", case] if case else []
        with tempfile.TemporaryDirectory(prefix="harness-mcp-") as folder:
            if "\n" in solution:
                text, solution = solution, str(Path(folder) / "candidate.py")
                Path(solution).write_bytes(text.encode(errors="surrogatepass"))
            return await self._command("profile", *words, "--", solution)

    def _problem(self, problem: str) -> str:
        """Returns a problem's name or path; a text becomes a file."""
        return str(keep_problem(self._home, problem)) if "\n" in problem else problem

    async def _judged(self, checks: bool, solution: str, problem: str, cases: list[str] | None, is_answer: bool) -> str:
        evaluator = await self._evaluator(checks)
        answer = await evaluator.evaluate(
            solution, problem or None, cases=cases or (), is_answer=is_answer, deadline_s=LIMIT_S
        )
        return summary(answer)

    async def _evaluator(self, checks: bool) -> AsyncEvaluator:
        """Opens an evaluator, or opens it again if its judge has ended."""
        assert self._lock is not None
        async with self._lock:
            opened = self._opened.get(checks)
            if opened is not None and opened.is_alive:
                return opened
            if opened is not None:
                await opened.close()
            settings: Settings = {**self._settings, "device": "cpu", "check": True} if checks else self._settings
            self._opened[checks] = await AsyncEvaluator(**settings).__aenter__()
            return self._opened[checks]

    async def _command(self, *words: str, most: int = MOST_CHARACTERS) -> str:
        """Runs a command of the harness and returns what it prints.

        Raises:
            HarnessError: The command fails or takes too long.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *PYTHON_OPTIONS, "-m", "harness", *words, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": import_path(), "NO_COLOR": "1"},
            )  # fmt: skip
        except (ValueError, OSError) as error:  # a null byte, or a text longer than an argument may be
            raise UsageError(f"{words[0]}: an argument cannot be passed on: {error}; give the path of a file") from None
        try:
            async with asyncio.timeout(LIMIT_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise HarnessError(f"{words[0]} took longer than {LIMIT_S:.0f} s") from None
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        text = out.decode(errors="replace").strip()
        if process.returncode and not text:
            raise HarnessError(err.decode(errors="replace").strip().removeprefix("error: "))
        return _cut(text, most)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: MCPServer[None]) -> AsyncIterator[None]:
        self._lock = asyncio.Lock()
        try:
            yield
        finally:
            opened, self._opened = self._opened, {}
            for evaluator in opened.values():
                await evaluator.close()


def summary(answer: Answer) -> str:
    """Returns an answer in a few lines: a paragraph for each case, and the reward."""
    lines = [_of_record(record) for record in answer.records]
    earned = reward(answer)
    return _cut("\n\n".join([*lines, f"reward {'masked' if earned is None else f'{earned:.3f}'}"]), MOST_CHARACTERS)


def _of_record(record: EvaluationRecord) -> str:
    head = f"case {record.case}: {record.verdict} (record {record.record})"
    speed = [
        f"{way}: {ratio:.2f}x eager" + (f" [{low:.2f}, {high:.2f}]" if way in record.certified else ", not certified")
        for way, ratio in (record.speedup or {}).items()
        for low, high in [record.speedup_interval.get(way, (float("nan"), float("nan")))]
    ]
    return "\n".join(part for part in (head, *speed, _cut(record.message, _MOST_MESSAGE)) if part)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[... {len(text) - most} characters left out ...]\n{text[-(most // 2) :]}"


def _explained(tool: Callable[Arguments, Awaitable[str]]) -> Callable[Arguments, Awaitable[str]]:
    """Turns the harness's errors into a tool's, without a traceback."""

    @functools.wraps(tool)
    async def explained(*arguments: Arguments.args, **named: Arguments.kwargs) -> str:
        try:
            return await tool(*arguments, **named)
        except HarnessError as error:
            raise ToolError(_cut(str(error), MOST_CHARACTERS)) from None

    return explained
