"""Tests which of a solution's flags the emulator's compiler gets."""

from __future__ import annotations

from harness.emulator.flags import cuda_flags, host_flags, linker_flags


def test_flags_of_nvcc_are_translated_or_dropped() -> None:
    given = ["-O3", "--use_fast_math", "-arch=sm_80", "-gencode", "arch=compute_80,code=sm_80", "-lineinfo"]
    given += ["--expt-relaxed-constexpr", "-Xptxas", "-v", "--ptxas-options=-v", "-maxrregcount", "64", "--unheard-of"]
    given += [
        "-DA=1",
        "-D",
        "B",
        "-UC",
        "-I/x",
        "-I",
        "/y",
        "-Xcompiler",
        "-fPIC,-DD,-fopenmp",
        "-std=c++17",
        "-std=c++23",
    ]
    kept = ["-DA=1", "-D", "B", "-UC", "-I/x", "-I", "/y", "-DD", "-fopenmp", "-std=c++23"]
    assert cuda_flags(given) == kept
    assert host_flags(["-O3", "-ffast-math", "-march=native", "-Wall", "-DX", "-fopenmp"]) == ["-DX", "-fopenmp"]
    assert linker_flags(["-lcudart", "-lcublas", "-lm", "-L/x"]) == ["-lm", "-L/x"]
