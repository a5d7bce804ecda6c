"""Tests that a killed compiler is distinguished from one that refuses, by real output of build tools."""

from __future__ import annotations

import pytest

from harness.compilation.errors import BuildKilled, failed_build


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
