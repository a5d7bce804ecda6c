"""Tests inline PTX: its results are those of a GPU, and what the emulator does not run is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.emulator.rewrite import rewrite_cuda

from .native import Emulator
from .ptx_operations import OPERATIONS, RESULTS, distance, inputs, results, source

#: What an H100 computed, written by ``python3 -m tests.emulator.ptx_operations --write``.
ON_GPU = json.loads(RESULTS.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def built(native: Callable[..., Emulator], shared: Path, made_once: Callable[..., Path]) -> Emulator:
    def write() -> Path:
        path = shared / "ptx_operations.cu"
        path.write_text(source(), encoding="utf-8")
        return path

    return native(made_once("ptx_operations", write), False)


@pytest.mark.parametrize("number", range(len(OPERATIONS)), ids=[one.text for one in OPERATIONS])
def test_an_instruction_computes_what_a_gpu_computes(emulator: Emulator, number: int) -> None:
    one = OPERATIONS[number]
    expected, found = ON_GPU[one.text], results(emulator.kernels, number, 1)
    for thread, (right, got) in enumerate(zip(expected, found, strict=True)):
        for letter, first, second in zip(one.results, right, got, strict=True):
            assert distance(letter, one.kind, first, second) <= one.ulps, (
                thread,
                inputs(number, 1)[10 * thread :][:10],
            )
    assert emulator.reports() == []


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ('asm("tcgen05.wait::ld.sync.aligned;")', "tcgen05.wait::ld.sync.aligned"),
        ('asm("add.s32 %0, %1;" : "=r"(x) : "r"(x))', "add.s32 with 2 operands"),
        ('asm("add.s32 %0, %1, %7;" : "=r"(x) : "r"(x))', "add.s32 with %7"),
        ('asm("add.s64 %0, %1, %1;" : "=r"(x) : "r"(x))', "a register of 32 bits"),
        ('asm("mov.u32 %0, %%pm0;" : "=r"(x))', "mov.u32 with %pm0"),
        ('asm(NAME " %0;" : "=r"(x))', "NAME in it, which is no plain string"),
        ('asm("mov.u32 %0, 1" : "=w"(x))', "an operand that begins with =w"),
        ('asm("{ add.s32 %0, %0, 1;" : "+r"(x))', "an opening brace without a closing one"),
        ('asm(".shared .b32 x;")', ".shared .b32 x"),
        ('asm("ld.global.u32 %0, [%1+x];" : "=r"(x) : "l"(&x))', "the address"),
        ('asm("@p bra OUT;")', "bra with p"),
        ('asm("mov.u32 %0, 010;" : "=r"(x))', "mov.u32 with 010"),
        ('asm("ld.global.u32 %0, [%1+010];" : "=r"(x) : "l"(&x))', "the address"),
        ('asm("abs.ftz.f64 %0, %0;" : "+d"(d))', "abs.ftz.f64"),
        ('asm("st.acquire.gpu.u32 [%0], 1;" :: "l"(&x))', "st.acquire.gpu.u32"),
    ],
)
def test_what_is_not_run_is_named(statement: str, words: str) -> None:
    text = rewrite_cuda(f"__device__ void f(int x) {{\n{statement};\n}}\n").splitlines()[1]
    assert "cuemu-unsupported: inline PTX (" in text
    assert words in text


MACROS = """
#if __CUDACC_VER_MAJOR__ > 11
#define HINT(size) ".L2::" #size "B"
#else
#define HINT(size)
#endif
#define NAME "add"
#define TYPED(name) name ".s32"
#define ADD TYPED(NAME)
#define AGAIN AGAIN
#if 0
#define OTHER "sub.s32"
#else
#define OTHER ADD
#endif
#define PASTED(x) a##x
"""


@pytest.mark.parametrize(
    ("statement", "plain"),
    [
        ('asm(NAME ".s32 %0, %0, 1;" : "+r"(x))', 'asm("add.s32 %0, %0, 1;" : "+r"(x))'),
        ('asm(ADD " %0, %0, 1;" : "+r"(x))', 'asm("add.s32 %0, %0, 1;" : "+r"(x))'),
        ('asm(TYPED("mul.lo") " %0, %0, 3;" : "+r"(x))', 'asm("mul.lo.s32 %0, %0, 3;" : "+r"(x))'),
        (
            'asm("cp.async.cg.shared.global" HINT(128) " [%0], [%1], 16;" :: "r"(x), "l"(&x))',
            'asm("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(x), "l"(&x))',
        ),
    ],
)
def test_a_template_may_hold_macros_that_stand_for_strings(statement: str, plain: str) -> None:
    def rewritten(text: str) -> str:
        return rewrite_cuda(f"{MACROS}__device__ void f(int x) {{\n{text};\n}}\n#define IN_A_MACRO(x) {text}\n")

    found, expected = rewritten(statement), rewritten(plain)
    assert "cuemu-unsupported" not in found
    assert found == expected


@pytest.mark.parametrize(
    ("hint", "operands", "plain"),
    [
        (".L2::cache_hint", "[%0], [%1], 16, %2", "[%0], [%1], 16"),
        (".L2::cache_hint.L2::128B", "[%0], [%1], 16, %3, %2", "[%0], [%1], 16, %3"),
        (".L2::128B", "[%0], [%1], 16, %3", "[%0], [%1], 16, %3"),
    ],
)
def test_a_policy_of_the_cache_is_no_size(hint: str, operands: str, plain: str) -> None:
    def copied(instruction: str) -> str:
        given = '"r"(to), "l"(from), "l"(policy), "r"(bytes)'
        return rewrite_cuda(f'__device__ void f() {{ asm("cp.async.cg.shared.global{instruction};" :: {given}); }}')

    assert "P::copy_async(" in copied(f"{hint} {operands}")
    assert copied(f"{hint} {operands}") == copied(f" {plain}")
    assert "%3, a register of 32 bits" in copied(".L2::cache_hint [%0], [%1], 16, %3")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ('asm(AGAIN " %0;" : "+r"(x))', "AGAIN in it, which is no plain string"),
        ('asm(TYPED " %0;" : "+r"(x))', "TYPED in it, which is no plain string"),
        ('asm(PASTED(dd) " %0;" : "+r"(x))', "in it, which is no plain string"),
        ('asm(OTHER " %0, %0, 1;" : "+r"(x))', "depends on a macro with several definitions"),
    ],
)
def test_a_macro_that_may_mean_something_else_is_named(statement: str, words: str) -> None:
    text = rewrite_cuda(f"{MACROS}__device__ void f(int x) {{\n{statement};\n}}\n")
    assert "cuemu-unsupported: inline PTX (" in text
    assert words in text


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("ld.global.acquire.gpu.b32 %0, [%1];", "ld.acquire.gpu.global.b32 %0, [%1];"),
        ("ld.shared::cta.volatile.u32 %0, [%1];", "ld.volatile.shared::cta.u32 %0, [%1];"),
        ("atom.global.acq_rel.gpu.add.u32 %0, [%1], 1;", "atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"),
        (
            "ldmatrix.sync.aligned.x1.m8n8.shared.b16 {%0}, [%1];",
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];",
        ),
        (
            "ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%0, _}, [%1];",
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, _}, [%1];",
        ),
        (
            "stmatrix.sync.aligned.x1.m8n8.shared.b16 [%1], {%0};",
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%1], {%0};",
        ),
    ],
)
def test_modifiers_may_stand_in_another_order(older: str, newer: str) -> None:
    def written(statement: str) -> str:
        return rewrite_cuda(f'__device__ void f(int x, int* y) {{\nasm("{statement}" : "=r"(x) : "l"(y));\n}}\n')

    assert written(older) == written(newer)
    assert "cuemu-unsupported" not in written(older)
