"""Tests that a killed compiler is distinguished from one that refuses, by real output of build tools."""

from __future__ import annotations

import pytest

from harness.compilation.errors import BuildKilled, failed_build, is_lasting


@pytest.mark.parametrize(
    ("log", "program"),
    [
        ("g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n", "cc1plus"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", "cicc"),
        ("nvcc error   : 'ptxas' died due to signal 9 (Kill signal)\nninja: build stopped.\n", "ptxas"),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]\n", "ld"),
        ("clang++: error: unable to execute command: Killed\n", "the compiler"),
        ("FAILED: [code=137] cuda.cuda.o\n/usr/local/cuda/bin/nvcc -c cuda.cu\n", "the compiler"),
    ],
)
def test_a_killed_one(log: str, program: str) -> None:
    failure = failed_build("does not build", log, "key")
    assert isinstance(failure, BuildKilled)
    assert failure.message.startswith(f"{program} was killed")
    assert (failure.log, failure.key) == (log, "")


@pytest.mark.parametrize(
    "log",
    [
        "main.cpp:3:1: error: 'Killed' was not declared in this scope\n",
        "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)\n",
        "g++: internal compiler error: Segmentation fault signal terminated program cc1plus\n",
        "FAILED: [code=1] main.o\n",
        "",
    ],
)
def test_a_refusal(log: str) -> None:
    failure = failed_build("does not build", log, "key")
    assert not isinstance(failure, BuildKilled)
    assert (failure.message, failure.log, failure.key) == ("does not build", log, "key")


@pytest.mark.parametrize(
    "log",
    [
        "virtual memory exhausted: Cannot allocate memory\n",
        "main.cpp:3:1: fatal error: error writing to /tmp/x.s: No space left on device\n",
        "fork: Resource temporarily unavailable\n",
    ],
)
def test_a_busy_machine_says_nothing_about_the_source(log: str) -> None:
    failure = failed_build("s.py:1: error: it does not build", log, "key")
    assert (failure.log, failure.key) == (log, "")


@pytest.mark.parametrize(
    ("message", "log", "lasts"),
    [
        ("s.py:3: error: 'y' was not declared", "s.py:3: error: 'y' was not declared\n", True),
        ("line 3: error: 'y' was not declared", "s.py:3: error: 'y' was not declared\n", True),
        ("line 3: error: no member (in cutlass.h)", "", False),
        ("s.py:3: fatal error: cutlass.h: No such file or directory", "", False),
        ("s.py:3: error: expected ';'", "g++: internal compiler error: Segmentation fault\n", False),
        ("torch/extension.h(3): error: incomplete", "torch/extension.h(3): error: incomplete\n", False),
        ("s.py:3: error: no member (in cutlass.h)", "", False),
    ],
)
def test_a_later_run_relies_on_what_the_text_alone_decides(message: str, log: str, lasts: bool) -> None:
    assert is_lasting(message, log) is lasts
