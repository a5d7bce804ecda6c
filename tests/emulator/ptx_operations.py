"""Runs instructions of PTX on the emulator or on a GPU over the same inputs.

    python3 -m tests.emulator.ptx_operations --write       # on a GPU: writes ptx_results.json
    python3 -m tests.emulator.ptx_operations --samples 64  # on a GPU: compares it with the emulator

Each operation has its PTX text, and letters of ``asm`` constraints for its results and its operands. A thread gets an
operand as 64 bits, of which it takes what the letter says.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.emulator.both_ways import on_emulator, on_gpu

RESULTS = Path(__file__).with_name("ptx_results.json")
LANES, OPERANDS, MOST_RESULTS = 32, 10, 4


@dataclass(frozen=True)
class Operation:
    """Some PTX with its operands.

    Attributes:
        text: The PTX; ``%0`` and so on are results, then operands.
        results: A constraint's letter for each result.
        operands: The same for the operands.
        ulps: How far a result may be off: the instruction is an approximation, or the order of a sum is the chip's own.
        kind: The kind of numbers: ``f16`` or ``bf16`` for packed halves, ``t`` for factors of a matrix, else by letter.
    """

    text: str
    results: str
    operands: str
    ulps: int = 0
    kind: str = ""


def _each(pattern: str, letters: str, names: Sequence[str], kind: str = "", ulps: int = 0) -> list[Operation]:
    results, operands = letters.split("=")
    return [Operation(pattern.replace("@", name), results, operands, ulps, kind) for name in names]


_SIZED = {"16": "h", "32": "r", "64": "l"}


def _integers(pattern: str, letters: str, names: Sequence[str]) -> list[Operation]:
    """The pattern for each type; ``t`` among the letters stands for the type's own."""
    found = []
    for name in names:
        results, operands = letters.replace("t", _SIZED[name[1:]]).split("=")
        found.append(Operation(pattern.replace("@", name), results, operands))
    return found


_ALL = [f"{sign}{bits}" for sign in "us" for bits in _SIZED]
_WORDS = [f"{sign}{bits}" for sign in "us" for bits in (32, 64)]
_THREE = "%0, %1, %2;"
OPERATIONS: list[Operation] = [
    *_integers(f"add.@ {_THREE}", "t=tt", _ALL),
    *_integers(f"sub.@ {_THREE}", "t=tt", _ALL),
    *_integers(f"mul.lo.@ {_THREE}", "t=tt", _ALL),
    *_integers(f"mul.hi.@ {_THREE}", "t=tt", _ALL),
    *_integers("mad.lo.@ %0, %1, %2, %3;", "t=ttt", _ALL),
    *_each("add.sat.s32 %0, %1, %2;", "r=rr", [""]),
    *_each("sub.sat.s32 %0, %1, %2;", "r=rr", [""]),
    *_each("mul.wide.@32 %0, %1, %2;", "l=rr", ["u", "s"]),
    *_each("mul.wide.@16 %0, %1, %2;", "r=hh", ["u", "s"]),
    *_each("mad.wide.@32 %0, %1, %2, %3;", "l=rrl", ["u", "s"]),
    *_each("{ add.cc.u32 %0, %2, %4; addc.u32 %1, %3, %5; }", "rr=rrrr", [""]),
    *_integers(f"min.@ {_THREE}", "t=tt", _ALL),
    *_integers(f"max.@ {_THREE}", "t=tt", _ALL),
    *_integers("abs.@ %0, %1;", "t=t", ["s16", "s32", "s64"]),
    *_integers("neg.@ %0, %1;", "t=t", ["s16", "s32", "s64"]),
    *_integers(f"div.@ {_THREE}", "t=tt", _WORDS),
    *_integers(f"rem.@ {_THREE}", "t=tt", _WORDS),
    *_integers(f"and.@ {_THREE}", "t=tt", ["b16", "b32", "b64"]),
    *_integers(f"xor.@ {_THREE}", "t=tt", ["b16", "b32", "b64"]),
    *_integers("not.@ %0, %1;", "t=t", ["b16", "b32", "b64"]),
    *_integers("cnot.@ %0, %1;", "t=t", ["b16", "b32", "b64"]),
    *_integers("{ .reg .u32 by; and.b32 by, %2, 79; shl.@ %0, %1, by; }", "t=tr", ["b16", "b32", "b64"]),
    *_integers("{ .reg .u32 by; and.b32 by, %2, 79; shr.@ %0, %1, by; }", "t=tr", _ALL),
    *_each(
        "{ .reg .u32 by; and.b32 by, %3, 79; shf.@.b32 %0, %1, %2, by; }",
        "r=rrr",
        ["l.wrap", "r.wrap", "l.clamp", "r.clamp"],
    ),
    *_integers("{ .reg .u32 p, n; and.b32 p, %2, 79; and.b32 n, %3, 79; bfe.@ %0, %1, p, n; }", "t=trr", _WORDS),
    *_integers(
        "{ .reg .u32 p, n; and.b32 p, %3, 79; and.b32 n, %4, 79; bfi.@ %0, %1, %2, p, n; }", "t=ttrr", ["b32", "b64"]
    ),
    *_integers("bfind.@ %0, %1;", "r=t", _WORDS),
    *_integers("brev.@ %0, %1;", "t=t", ["b32", "b64"]),
    *_integers("clz.@ %0, %1;", "r=t", ["b32", "b64"]),
    *_integers("popc.@ %0, %1;", "r=t", ["b32", "b64"]),
    *_each("prmt.b32@ %0, %1, %2, %3;", "r=rrr", ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"]),
    *_each("lop3.b32 %0, %1, %2, %3, @;", "r=rrr", ["0x96", "0xe8", "0x1b"]),
    *_each("dp4a.@ %0, %1, %2, %3;", "r=rrr", ["s32.s32", "u32.u32", "s32.u32", "u32.s32"]),
    *_each(
        f"@.f32 {_THREE}",
        "f=ff",
        [
            "add",
            "add.rz",
            "add.rm",
            "add.rp.ftz",
            "sub",
            "sub.ftz",
            "mul",
            "mul.rz",
            "mul.sat",
            "add.sat",
            "div.rn",
            "min",
            "max",
            "min.NaN",
            "max.NaN",
            "copysign",
        ],
    ),
    *_each(f"@.f64 {_THREE}", "d=dd", ["add", "sub.rz", "mul", "mul.rp", "div.rn", "min", "max"]),
    *_each("fma.@.f32 %0, %1, %2, %3;", "f=fff", ["rn", "rz", "rm", "rp", "rn.ftz", "rn.sat"]),
    *_each("fma.@.f64 %0, %1, %2, %3;", "d=ddd", ["rn", "rz"]),
    *_each("@.f32 %0, %1;", "f=f", ["abs", "neg", "sqrt.rn", "rcp.rn", "abs.ftz"]),
    *_each("@.f32 %0, %1;", "f=f", ["rcp.approx", "rsqrt.approx", "sqrt.approx"], ulps=2),
    *_each(f"@.f32 {_THREE}", "f=ff", ["div.full"], ulps=4),
    *_each("@.f32 %0, %1;", "f=f", ["ex2.approx"], kind="near", ulps=4),
    *_each("@.f32 %0, %1;", "f=f", ["tanh.approx"], kind="near", ulps=1 << 14),
    *_each(f"@.f16x2 {_THREE}", "r=rr", ["add", "sub", "mul", "min", "max", "add.sat"], kind="f16"),
    *_each(f"@.bf16x2 {_THREE}", "r=rr", ["add", "mul", "min", "max"], kind="bf16"),
    *_each("fma.rn@.f16x2 %0, %1, %2, %3;", "r=rrr", ["", ".relu"], kind="f16"),
    *_each("fma.rn@.bf16x2 %0, %1, %2, %3;", "r=rrr", ["", ".relu"], kind="bf16"),
    *_each(
        "{ .reg .pred p; setp.@.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }",
        "r=ff",
        ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "geu", "num", "nan"],
    ),
    *_each(
        "{ .reg .pred p; setp.@ p, %1, %2; selp.u32 %0, 1, 0, p; }", "r=rr", ["lt.s32", "lo.u32", "hs.u32", "ge.s32"]
    ),
    Operation("{ .reg .pred p, q; setp.lt.s32 p|q, %1, %2; @p mov.u32 %0, 7; @q mov.u32 %0, 9; }", "r", "rr"),
    *_each("slct.f32.s32 %0, %1, %2, %3;", "f=ffr", [""]),
    *_each("mov.b64 %0, {%1, %2};", "l=rr", [""]),
    *_each("{ .reg .b32 lo; mov.b64 {lo, %0}, %1; }", "r=l", [""]),
    *_each(
        "cvt.@.f32 %0, %1;", "r=f", ["rni.s32", "rzi.s32", "rmi.s32", "rpi.s32", "rzi.u32", "rni.ftz.u32"], kind="mixed"
    ),
    *_each("cvt.@.f32 %0, %1;", "l=f", ["rzi.s64", "rzi.u64"], kind="mixed"),
    *_each("cvt.@ %0, %1;", "f=r", ["rn.f32.s32", "rz.f32.u32", "rp.f32.s32"]),
    *_each("cvt.@ %0, %1;", "f=f", ["rni.f32.f32", "rzi.f32.f32", "sat.f32.f32"], kind="mixed"),
    *_each("cvt.@ %0, %1;", "h=f", ["rn.f16.f32", "rz.f16.f32", "rn.bf16.f32"]),
    *_each("cvt.f32.f16 %0, %1;", "f=h", [""]),
    *_each("cvt.@.f64 %0, %1;", "f=d", ["rn.f32", "rz.f32", "rm.f32"]),
    *_each("cvt.@x2.f32 %0, %1, %2;", "r=ff", ["rn.f16", "rn.bf16", "rn.relu.f16"]),
    *_each("cvt.rna.tf32.f32 %0, %1;", "r=f", [""]),
    *_each("cvt.@ %0, %1;", "r=r", ["s32.s8", "u32.u8", "sat.u8.s32", "sat.s8.s32", "s32.s16"]),
    *_each(
        "{ .reg .pred p; shfl.sync.@.b32 %0|p, %2, 5, 0x1f, 0xffffffff; selp.u32 %1, 1, 0, p; }",
        "rr=r",
        ["bfly", "idx"],
    ),
    *_each(
        "{ .reg .pred p; shfl.sync.@.b32 %0|p, %2, 3, %3, 0xffffffff; selp.u32 %1, 1, 0, p; }".replace("%3", "0x181f"),
        "rr=r",
        ["down", "bfly", "idx"],
    ),
    *_each(
        "{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, 3, @, 0xffffffff; selp.u32 %1, 1, 0, p; }", "rr=r", ["0", "0x1800"]
    ),
    *_each("{ .reg .pred p; setp.lt.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }", "r=r", [""]),
    *_each("redux.sync.@ %0, %1, 0xffffffff;", "r=r", ["add.s32", "min.s32", "max.u32", "xor.b32"]),
    *_each("mov.u32 %0, %%@;", "r=", ["laneid", "lanemask_lt", "lanemask_ge", "ntid.x"]),
]
_FOUR, _TWO = "{%0,%1,%2,%3}", "{%0,%1}"


def _product(shape: str, types: str, letters: str, kind: str) -> Operation:
    """A matrix product whose numbers are small integers: each sum is exact in any order."""
    results, left, right, addend = letters.split(" ")
    at, groups = 0, []
    for letters_of in (results, left, right, addend):
        groups.append("{" + ",".join(f"%{at + i}" for i in range(len(letters_of))) + "}")
        at += len(letters_of)
    return Operation(
        f"mma.sync.aligned.{shape}.row.col.{types} {', '.join(groups)};", results, left + right + addend, 0, kind
    )


OPERATIONS += [
    _product("m16n8k16", "f32.f16.f16.f32", "ffff rrrr rr ffff", "small f16"),
    _product("m16n8k8", "f32.f16.f16.f32", "ffff rr r ffff", "small f16"),
    _product("m16n8k16", "f16.f16.f16.f16", "rr rrrr rr rr", "small f16"),
    _product("m16n8k16", "f32.bf16.bf16.f32", "ffff rrrr rr ffff", "small bf16"),
    _product("m16n8k8", "f32.bf16.bf16.f32", "ffff rr r ffff", "small bf16"),
    _product("m16n8k8", "f32.tf32.tf32.f32", "ffff rrrr rr ffff", "small f32"),
    _product("m16n8k4", "f32.tf32.tf32.f32", "ffff rr r ffff", "small f32"),
    _product("m8n8k4", "f64.f64.f64.f64", "dd d d dd", "small f64"),
    _product("m8n8k16", "s32.s8.s8.s32", "rr r r rr", ""),
    _product("m16n8k16", "s32.u8.s8.s32", "rrrr rr r rrrr", ""),
    _product("m16n8k32", "s32.s8.u8.s32", "rrrr rrrr rr rrrr", ""),
    _product("m16n8k32", "satfinite.s32.s8.s8.s32", "rrrr rrrr rr rrrr", ""),
]

_FROM = {
    "r": "(unsigned)x[{}]", "l": "x[{}]", "h": "(unsigned short)x[{}]", "f": "__uint_as_float((unsigned)x[{}])",
    "d": "__longlong_as_double((long long)x[{}])",
}  # fmt: skip
_HELD = {"r": "unsigned", "l": "unsigned long long", "h": "unsigned short", "f": "float", "d": "double"}
_INTO = {
    **{"r": "o{}", "l": "o{}", "h": "o{}"},
    **{"f": "__float_as_uint(o{})", "d": "(unsigned long long)__double_as_longlong(o{})"},
}


def source(operations: Sequence[Operation] = OPERATIONS) -> str:
    """The CUDA program: ``run(operation, blocks, inputs, outputs)`` with ten operands and four results a thread."""
    cases = []
    for number, one in enumerate(operations):
        declared = " ".join(f"{_HELD[letter]} o{i}{{}};" for i, letter in enumerate(one.results))
        results = ", ".join(f'"+{letter}"(o{i})' for i, letter in enumerate(one.results))
        operands = ", ".join(f'"{letter}"({_FROM[letter].format(i)})' for i, letter in enumerate(one.operands))
        kept = " ".join(f"y[{i}] = {_INTO[letter].format(i)};" for i, letter in enumerate(one.results))
        cases.append(
            f'case {number}: {{ {declared} asm volatile("{one.text}" : {results} : {operands}); {kept} }} break;'
        )
    return f"""
__global__ void perform(int operation, const unsigned long long* inputs, unsigned long long* outputs) {{
  const int thread = blockIdx.x * {LANES} + threadIdx.x;
  const unsigned long long* x = inputs + {OPERANDS} * thread;
  unsigned long long* y = outputs + {MOST_RESULTS} * thread;
  switch (operation) {{
{chr(10).join(cases)}
  }}
}}
extern "C" int run(int operation, int blocks, const unsigned long long* inputs, unsigned long long* outputs) {{
  const int threads = blocks * {LANES};
  unsigned long long *in, *out;
  cudaMalloc(&in, threads * {OPERANDS} * 8);
  cudaMalloc(&out, threads * {MOST_RESULTS} * 8);
  cudaMemcpy(in, inputs, threads * {OPERANDS} * 8, cudaMemcpyHostToDevice);
  cudaMemset(out, 0, threads * {MOST_RESULTS} * 8);
  perform<<<blocks, {LANES}>>>(operation, in, out);
  const int status = cudaDeviceSynchronize();
  cudaMemcpy(outputs, out, threads * {MOST_RESULTS} * 8, cudaMemcpyDeviceToHost);
  cudaFree(in);
  cudaFree(out);
  return status;
}}
"""


_INTEGERS = [0, 1, 2, 31, 32, 33, 127, 128, 255, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80000001]
_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 3e38, -3e38, 1e-40, -1e-45, float("inf"), float("-inf"), float("nan"), 2.5, 1e10]


def _bits(value: float, form: str) -> int:
    return int.from_bytes(struct.pack(form, value), "little")


def _operand(letter: str, kind: str, generator: random.Random) -> int:
    if kind.startswith("small"):
        number = float(generator.randint(-8, 8))
        if letter != "r" or kind == "small f32":
            return _bits(number, "<d" if letter == "d" else "<f")
        pair = [number, float(generator.randint(-8, 8))]
        if kind == "small f16":
            return sum(_bits(one, "<e") << 16 * i for i, one in enumerate(pair))
        return sum(_bits(one, "<f") >> 16 << 16 * i for i, one in enumerate(pair))
    if kind == "near":
        return _bits(generator.uniform(-8, 8), "<f")
    if kind == "mixed" and generator.random() < 0.7:
        return _bits(generator.choice([generator.uniform(-300, 300), generator.randint(-9, 9) + 0.5]), "<f")
    if letter in "fd" and generator.random() < 0.3:
        return _bits(generator.choice(_FLOATS), "<f" if letter == "f" else "<d")
    if letter in "rlh" and not kind and generator.random() < 0.4:
        return generator.choice(_INTEGERS) * (-1 if generator.random() < 0.3 else 1) % (1 << 64)
    if letter == "f" and generator.random() < 0.6:
        return _bits(generator.uniform(-100, 100), "<f")
    return generator.getrandbits(64)


def inputs(number: int, blocks: int, operations: Sequence[Operation] = OPERATIONS) -> list[int]:
    """The operands of all threads for an operation, the same in every run."""
    one, generator = operations[number], random.Random(number)
    found = []
    for _ in range(blocks * LANES):
        given = [_operand(letter, one.kind, generator) for letter in one.operands]
        found += given + [0] * (OPERANDS - len(given))
    return found


def results(library: ctypes.CDLL, number: int, blocks: int) -> list[list[int]]:
    """The results of an operation, by thread."""
    given = (ctypes.c_ulonglong * (blocks * LANES * OPERANDS))(*inputs(number, blocks))
    found = (ctypes.c_ulonglong * (blocks * LANES * MOST_RESULTS))()
    status = library.run(number, blocks, given, found)
    if status:
        raise RuntimeError(f"{OPERATIONS[number].text}: CUDA error {status}")
    count = len(OPERATIONS[number].results)
    return [list(found[at : at + count]) for at in range(0, len(found), MOST_RESULTS)]


def distance(letter: str, kind: str, one: int, other: int) -> int:
    """How many numbers lie between two results; 0 if they are the same, or both NaN."""
    if one == other:
        return 0
    if letter in "fd":
        width, form, whole = (32, "<f", "<i") if letter == "f" else (64, "<d", "<q")
        pair = [struct.unpack(form, value.to_bytes(width // 8, "little"))[0] for value in (one, other)]
        if all(value != value for value in pair):
            return 0
        places = [struct.unpack(whole, value.to_bytes(width // 8, "little"))[0] for value in (one, other)]
        first, second = (place if place >= 0 else -(place & ((1 << width - 1) - 1)) for place in places)
        return abs(first - second)
    if kind in ("f16", "bf16"):
        edge = 0x7C00 if kind == "f16" else 0x7F80
        halves = [((one >> at & 0xFFFF), (other >> at & 0xFFFF)) for at in (0, 16)]
        if all(a == b or (a & 0x7FFF > edge and b & 0x7FFF > edge) for a, b in halves):
            return 0
    return 1 << 62


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write what the GPU computes, for the tests")
    parser.add_argument("--samples", type=int, default=1, help="warps of operands for each operation [default: 1]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        gpu = on_gpu(source(), Path(scratch), "-arch=native")
        if options.write:
            RESULTS.write_text(
                json.dumps({one.text: results(gpu, number, 1) for number, one in enumerate(OPERATIONS)}) + "\n",
                encoding="utf-8",
            )
            return 0
        emulator = on_emulator(source(), Path(scratch), Path(scratch, "emulator"))
        wrong = 0
        for number, one in enumerate(OPERATIONS):
            pairs = zip(results(gpu, number, options.samples), results(emulator, number, options.samples), strict=True)
            far = [
                distance(letter, one.kind, right, found)
                for expected, got in pairs
                for letter, right, found in zip(one.results, expected, got, strict=True)
            ]
            wrong += max(far) > one.ulps
            if max(far):
                print(
                    f"{one.text}: {sum(map(bool, far))} of {len(far)} differ, by at most {max(far)} ulps of {one.ulps}"
                )
        print(f"{len(OPERATIONS)} operations, {options.samples * LANES} threads each: {wrong} beyond their bound")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
