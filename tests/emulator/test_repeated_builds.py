"""Tests builds with stand-ins for torch's headers that fail: which are repeated with torch's own, and what is shown."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.compilation.errors import BuildFailed, BuildKilled, Unsupported
from harness.compilation.torch_headers import LEAN
from harness.emulator import toolchain
from harness.emulator.declarations import DECLARED
from harness.emulator.diagnostics import SourceLocator
from harness.emulator.processes import FinishedProcess
from harness.emulator.toolchain import InlineSources, build_library, build_runtime
from harness.errors import ToolchainError


class Compilers:
    """Compilers that run nothing: each answers with the output that is next, an error where there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *outputs: str, status: int = 1):
        self.with_stand_ins: list[bool] = []
        self._outputs = list(outputs)
        self._status = status
        monkeypatch.setattr(toolchain, "run_together", self._run)

    def _run(self, commands: Sequence[Sequence[str]], *_: Any, **__: Any) -> list[FinishedProcess]:
        return [self._finished(command) for command in commands]

    def _finished(self, command: Sequence[str]) -> FinishedProcess:
        output = self._outputs.pop(0) if self._outputs else ""
        if "-c" in command:
            self.with_stand_ins.append(any(f"-I{place}" in command for place in (LEAN, DECLARED)))
        Path(command[command.index("-o") + 1]).touch()
        return FinishedProcess(self._status if output else 0, output)


STRANGE = "s.py:1:1: error: words that no list of signs has\n"


def built(folder: Path, cpp: str = "int f();", **given: Any) -> Path:
    return build_library(InlineSources("m", (cpp,), **given), folder, SourceLocator("s.py", ""))


def test_whatever_fails_with_the_stand_ins_is_built_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compilers = Compilers(monkeypatch, STRANGE)
    assert built(tmp_path).is_file()
    assert compilers.with_stand_ins == [True, False]


KERNEL = "__global__ void k(float* y) {{\n  {0};\n}}\n"


@pytest.mark.parametrize(
    ("line", "message", "repeats"),
    [
        ("y[0] = unheard_of", "'unheard_of' was not declared in this scope", False),
        ("y[0] = 1.0f", "expected ';' before '}' token", False),
        ('#include "unheard_of.h"', "unheard_of.h: No such file or directory", False),
        ("Unheard z", "'Unheard' was not declared in this scope; did you mean 'thread'?", False),
        ("y[0] = x.unheard", "'class at::Tensor' has no member named 'unheard'", False),
        ("y[0] = at::unheard(1)", "'unheard' is not a member of 'at'", False),
        ("y[0] = float y", "expected primary-expression before 'float'", False),
        ("y[0] = y * y", "invalid operands of types 'float*' and 'float*' to binary 'operator*'", False),
        ("h * h", "no match for 'operator*' in 'h * h' (operand types are '__half' and '__half')", False),
        ("__half(*y)", "no matching function for call to '__half::__half(float&)'", False),
        ("y[0] = h", "cannot convert '__half' to 'float' in assignment", False),
        # A header of torch's could declare, define or overload what these need.
        ("std::thread z", "'thread' is not a member of 'std'", True),
        ("TORCH_MODULE(Net)", "expected constructor, destructor, or type conversion before '(' token", True),
        ("y[0] = pow(y, y)", "no matching function for call to 'pow(float*, float*)'", True),
        ("y[0] = x * y", "no match for 'operator*' (operand types are 'at::Tensor' and '__half')", True),
        ("f(y)", "cannot convert 'float*' to 'const int*' for argument '1' to 'void f(const int*)'", True),
        ("y[0] = 1.0f", "expected '}' at end of input", True),
    ],
)
def test_a_build_is_repeated_if_torchs_headers_could_mend_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared_emulator: Path, line: str, message: str, repeats: bool
) -> None:
    headers = build_runtime(shared_emulator, with_headers=True).headers
    compilers = Compilers(monkeypatch, f"<cuda_sources[0]>:2:1: error: {message}\n")
    sources = InlineSources("m", (), (KERNEL.format(line),))
    with contextlib.suppress(BuildFailed):
        build_library(sources, tmp_path, SourceLocator("s.py", ""), headers=headers)
    assert compilers.with_stand_ins == ([True, False] if repeats else [True])


def test_the_plain_builds_errors_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Compilers(monkeypatch, STRANGE, STRANGE.replace("words", "torch's own words"))
    with pytest.raises(BuildFailed) as caught:
        built(tmp_path)
    assert "torch's own words" in caught.value.message
    assert STRANGE not in caught.value.log


def test_where_one_unit_fails_for_sure_the_stand_ins_errors_stay_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compilers = Compilers(monkeypatch, STRANGE, STRANGE.replace("words", "a kernel without torch"))
    with pytest.raises(BuildFailed, match="a kernel without torch") as caught:
        built(tmp_path, "#include <torch/extension.h>", cuda_sources=("int k;",), no_implicit_headers=True)
    assert compilers.with_stand_ins == [True, False]
    assert STRANGE not in caught.value.log


@pytest.mark.parametrize(
    ("output", "status", "error"),
    [
        ("s.py:1:1: error: 'cublasHandle_t' was not declared in this scope\n", 1, Unsupported),
        ("g++: fatal error: Killed signal terminated program cc1plus\n", -signal.SIGKILL, BuildKilled),
        ("s.py:1:1: fatal error: error writing to /tmp/x.s: No space left on device\n", 1, ToolchainError),
    ],
)
def test_what_no_other_header_helps_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str, status: int, error: type[Exception]
) -> None:
    compilers = Compilers(monkeypatch, output, status=status)
    with pytest.raises(error):
        built(tmp_path)
    assert compilers.with_stand_ins == [True]
