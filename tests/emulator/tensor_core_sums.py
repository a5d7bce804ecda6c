"""Runs products of matrices on the emulator or on a GPU over the same tiles, and compares the bits of their sums.

    python3 -m tests.emulator.tensor_core_sums --write      # on a GPU of sm_90: writes tensor_core_sums.json
    python3 -m tests.emulator.tensor_core_sums --tiles 200  # on such a GPU: compares it with the emulator

A tile has 16 rows of the left factor, 16 columns of the right one, each of 32 bytes along the depth, and 256 addends.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.emulator.both_ways import on_emulator, on_gpu

RESULTS = Path(__file__).with_name("tensor_core_sums.json")
ROWS, COLUMNS, BYTES = 16, 16, 32
SUMS = ROWS * COLUMNS


@dataclass(frozen=True)
class Form:
    """A format of floating numbers: bits of exponent and mantissa, and bytes in memory."""

    exponent: int
    mantissa: int
    bytes: int

    @property
    def bias(self) -> int:
        """The exponent field of 1."""
        return (1 << self.exponent - 1) - 1

    def bits(self, sign: int, field: int, mantissa: int) -> int:
        """The number's bits; a field that is too small or too large is the nearest of a normal number."""
        field = min(max(field, 1), (1 << self.exponent) - 2)
        return (sign << self.exponent | field) << self.mantissa | mantissa


FORMS = {
    "f16": Form(5, 10, 2),
    "bf16": Form(8, 7, 2),
    "tf32": Form(8, 23, 4),
    "e4m3": Form(4, 3, 1),
    "e5m2": Form(5, 2, 1),
    "f32": Form(8, 23, 4),
}
Draw = Callable[[Form, random.Random], int]


def _near(form: Form, generator: random.Random) -> int:
    """A number about as large as others, so that all their bits count."""
    field = form.bias + generator.randint(-2, 1)
    return form.bits(generator.getrandbits(1), field, generator.getrandbits(form.mantissa))


def _wide(form: Form, generator: random.Random) -> int:
    field = form.bias + generator.randint(-12, 11)
    return form.bits(generator.getrandbits(1), field, generator.getrandbits(form.mantissa))


def _sparse(form: Form, generator: random.Random) -> int:
    """Zero in most cases, so that few numbers meet."""
    return _wide(form, generator) if generator.random() < 0.15 else generator.getrandbits(1) << form.bytes * 8 - 1


def _any(form: Form, generator: random.Random) -> int:
    """Any finite number, subnormal ones too; of those with eight bits of exponent no giants."""
    bits = generator.getrandbits(8 * form.bytes)
    if form.exponent == 8:
        field = form.bias + generator.randint(-60, 59)
        return form.bits(bits >> 8 * form.bytes - 1, field, bits & (1 << form.mantissa) - 1)
    top = (1 << form.exponent) - 1
    return bits if bits >> form.mantissa & top != top else bits & ~(1 << form.mantissa)


def _extreme(form: Form, generator: random.Random) -> int:
    """Infinities and NaN, the largest and the smallest numbers among ordinary ones."""
    if generator.random() < 0.9:
        return _near(form, generator)
    top, sign = (1 << form.exponent) - 1, generator.getrandbits(1)
    field = generator.choice([0, 0, 1, form.bias // 2, top - 1, top - 1, top])
    mantissa = generator.choice([0, 1, (1 << form.mantissa) - 1, generator.getrandbits(form.mantissa)])
    return (sign << form.exponent | field) << form.mantissa | mantissa


DRAWS: dict[str, Draw] = {"near": _near, "wide": _wide, "sparse": _sparse, "any": _any, "extreme": _extreme}
#: Like ``near``, but the second half of each row takes away the first one, up to a bit.
CANCELLING = "cancelling"
KINDS = (*DRAWS, CANCELLING)


@dataclass(frozen=True)
class Instruction:
    """An instruction of tensor cores.

    Attributes:
        name: Its name, or the shape of a ``wmma`` fragment.
        left: Format of the left factor.
        right: Format of the right one.
        sums: ``f32`` or ``f16``.
        bytes: Bytes of a row along the depth.
    """

    name: str
    left: str
    right: str
    sums: str = "f32"
    bytes: int = BYTES


def _instructions() -> list[Instruction]:
    small = [(left, right) for left in ("e4m3", "e5m2") for right in ("e4m3", "e5m2")]
    found = []
    for depth, one, sums in ((16, "f16", "f32"), (16, "f16", "f16"), (16, "bf16", "f32"), (8, "tf32", "f32")):
        mma = f"mma.sync.aligned.m16n8k{{}}.row.col.{sums}.{one}.{one}.{sums}"
        found += [Instruction(mma.format(depth // part), one, one, sums, BYTES // part) for part in (1, 2)]
        found.append(Instruction(f"wgmma.mma_async.sync.aligned.m64n16k{depth}.{sums}.{one}.{one}", one, one, sums))
        found.append(Instruction(f"wmma.m16n16k{depth}.{sums}.{one}", one, one, sums))
    for left, right in small:
        found.append(Instruction(f"mma.sync.aligned.m16n8k32.row.col.f32.{left}.{right}.f32", left, right))
        for sums in ("f32", "f16"):
            name = f"wgmma.mma_async.sync.aligned.m64n16k32.{sums}.{left}.{right}"
            found.append(Instruction(name, left, right, sums))
    return found


INSTRUCTIONS = _instructions()
_START = r"""
#include <cstdint>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>

struct Tiles { const uint32_t *left, *right, *addends; uint32_t* sums; };

// What a lane holds of 16 rows of sums and eight columns; `fourth` is which of its four.
__device__ int place(int columns, int fourth) {
  return (threadIdx.x % 32 / 4 + fourth / 2 * 8) * 16 + columns * 8 + threadIdx.x % 4 * 2 + fourth % 2;
}
__device__ uint32_t pair(const uint32_t* from, int columns, int half) {
  return from[place(columns, 2 * half)] | from[place(columns, 2 * half + 1)] << 16;
}
__device__ void put(uint32_t* to, int columns, int half, uint32_t value) {
  to[place(columns, 2 * half)] = value & 0xffff;
  to[place(columns, 2 * half + 1)] = value >> 16;
}
"""


def _mma(one: Instruction) -> str:
    """The body of a kernel for mma.sync, of one warp."""
    lefts, rights = ("0123", "01") if one.bytes == BYTES else ("01", "0")
    left = ", ".join(f'"r"(l[(g + {int(i) % 2 * 8}) * 8 + {int(i) // 2 * 4} + m])' for i in lefts)
    right = ", ".join(f'"r"(r[(8 * c + g) * 8 + {int(i) * 4} + m])' for i in rights)
    count = 4 if one.sums == "f32" else 2
    wide = one.sums == "f32"
    addends = ", ".join(f'"r"({f"a[place(c, {i})]" if wide else f"pair(a, c, {i})"})' for i in range(count))
    results = ", ".join(f'"=r"(d{i})' for i in range(count))
    groups, at = [], 0
    for size in (count, len(lefts), len(rights), count):
        groups.append("{" + ", ".join(f"%{at + i}" for i in range(size)) + "}")
        at += size
    kept = " ".join(f"s[place(c, {i})] = d{i};" if wide else f"put(s, c, {i}, d{i});" for i in range(count))
    return f"""for (int c = 0; c < 2; ++c) {{
    uint32_t {", ".join(f"d{i}" for i in range(count))};
    asm volatile("{one.name} {", ".join(groups)};" : {results} : {left}, {right}, {addends});
    {kept}
  }}"""


def _wgmma(one: Instruction) -> str:
    """The body of a kernel for wgmma, of four warps that all compute the same rows."""
    wide = one.sums == "f32"
    count, letter, held = (8, "f", "float") if wide else (4, "r", "uint32_t")
    first = [
        f"__uint_as_float(a[place({i // 4}, {i % 4})])" if wide else f"pair(a, {i // 2}, {i % 2})" for i in range(count)
    ]
    last = [
        f"s[place({i // 4}, {i % 4})] = __float_as_uint(d{i});" if wide else f"put(s, {i // 2}, {i % 2}, d{i});"
        for i in range(count)
    ]
    sums = ", ".join(f'"+{letter}"(d{i})' for i in range(count))
    of_sums = ", ".join(f"%{i}" for i in range(count))
    of_left = ", ".join(f"%{count + i}" for i in range(4))
    left = ", ".join(f'"r"(l[(g + {i % 2 * 8}) * 8 + {i // 2 * 4} + m])' for i in range(4))
    transposed = ", 0" if one.left in ("f16", "bf16") else ""
    call = f"{one.name} {{{of_sums}}}, {{{of_left}}}, %{count + 4}, p, 1, 1{transposed};"
    return f"""__shared__ __align__(128) uint32_t shared[128];
  for (int i = threadIdx.x; i < 128; i += 128) {{
    const int n = i / 8, word = i % 8;
    shared[n / 8 * 64 + word / 4 * 32 + n % 8 * 4 + word % 4] = r[i];
  }}
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const uint64_t at = static_cast<uint64_t>(__cvta_generic_to_shared(shared));
  const uint64_t descriptor = (at & 0x3ffff) >> 4 | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
  {held} {", ".join(f"d{i} = {value}" for i, value in enumerate(first))};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 5}, 0; {call} }}"
               : {sums} : {left}, "l"(descriptor), "r"(1));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {sums} :: "memory");
  if (threadIdx.x < 32) {{ {" ".join(last)} }}"""


def _wmma(one: Instruction) -> str:
    """The body of a kernel for wmma, of one warp."""
    depth = BYTES // FORMS[one.left].bytes
    held = {"f16": "__half", "bf16": "__nv_bfloat16", "tf32": "float"}[one.left]
    number = "wmma::precision::tf32" if one.left == "tf32" else held
    total = "float" if one.sums == "f32" else "__half"
    convert = "memcpy(&addends[i], &a[i], 4)" if total == "float" else "memcpy(&addends[i], &a[i], 2)"
    back = "memcpy(&s[i], &addends[i], 4)" if total == "float" else "s[i] = 0; memcpy(&s[i], &addends[i], 2)"
    return f"""namespace wmma = nvcuda::wmma;
  __shared__ __align__(128) {total} addends[256];
  for (int i = threadIdx.x; i < 256; i += 32) {{ {convert}; }}
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, {depth}, {number}, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, {depth}, {number}, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, {depth}, {total}> sums;
  wmma::load_matrix_sync(left, reinterpret_cast<const {held}*>(l), {depth});
  wmma::load_matrix_sync(right, reinterpret_cast<const {held}*>(r), {depth});
  wmma::load_matrix_sync(sums, addends, 16, wmma::mem_row_major);
  wmma::mma_sync(sums, left, right, sums);
  wmma::store_matrix_sync(addends, sums, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) {{ {back}; }}"""


def source(instructions: Sequence[Instruction] = INSTRUCTIONS) -> str:
    """The CUDA program: ``run(instruction, tiles, left, right, addends, sums)``, all numbers as bits."""
    kernels, cases = [], []
    for number, one in enumerate(instructions):
        make = {"mma": _mma, "wgmma": _wgmma, "wmma": _wmma}[one.name.partition(".")[0]]
        kernels.append(f"""__global__ void kernel_{number}(Tiles tiles) {{
  const uint32_t *l = tiles.left + blockIdx.x * 128, *r = tiles.right + blockIdx.x * 128;
  const uint32_t* a = tiles.addends + blockIdx.x * 256;
  uint32_t* s = tiles.sums + blockIdx.x * 256;
  [[maybe_unused]] const int g = threadIdx.x % 32 / 4, m = threadIdx.x % 4;
  {make(one)}
}}""")
        threads = 128 if one.name.startswith("wgmma") else 32
        cases.append(f"case {number}: kernel_{number}<<<tiles, {threads}>>>(on_device); break;")
    joined = "\n".join(kernels)
    return f"""{_START}{joined}
extern "C" int run(int instruction, int tiles, const void* left, const void* right, const void* addends, void* sums) {{
  Tiles on_device;
  cudaMalloc(&on_device.left, tiles * 512);
  cudaMalloc(&on_device.right, tiles * 512);
  cudaMalloc(&on_device.addends, tiles * 1024);
  cudaMalloc(&on_device.sums, tiles * 1024);
  cudaMemcpy(const_cast<uint32_t*>(on_device.left), left, tiles * 512, cudaMemcpyHostToDevice);
  cudaMemcpy(const_cast<uint32_t*>(on_device.right), right, tiles * 512, cudaMemcpyHostToDevice);
  cudaMemcpy(const_cast<uint32_t*>(on_device.addends), addends, tiles * 1024, cudaMemcpyHostToDevice);
  switch (instruction) {{
    {" ".join(cases)}
  }}
  const int status = cudaDeviceSynchronize();
  cudaMemcpy(sums, on_device.sums, tiles * 1024, cudaMemcpyDeviceToHost);
  cudaFree(const_cast<uint32_t*>(on_device.left));
  cudaFree(const_cast<uint32_t*>(on_device.right));
  cudaFree(const_cast<uint32_t*>(on_device.addends));
  cudaFree(on_device.sums);
  return status;
}}
"""


def _factor(form: Form, kind: str, lines: int, tiles: int, generator: random.Random, is_right: bool) -> bytes:
    """Rows or columns of a factor, each of 32 bytes."""
    depth, found = BYTES // form.bytes, bytearray()
    draw = DRAWS.get(kind, _near)
    for _ in range(tiles * lines):
        line = [draw(form, generator) for _ in range(depth)]
        if kind == CANCELLING:
            sign = (1 << 8 * form.bytes - 1) * is_right
            line[depth // 2 :] = [bits ^ sign for bits in line[: depth // 2]]
            line[0] ^= 1 << form.mantissa - 2 if not is_right else 0
        found += b"".join(bits.to_bytes(form.bytes, "little") for bits in line)
    return bytes(found)


def inputs(one: Instruction, kind: str, tiles: int) -> tuple[bytes, bytes, bytes]:
    """Left factor, right factor and addends of some tiles, the same in every run."""
    generator = random.Random(f"{one.left} {one.right} {one.sums} {kind}")
    left = _factor(FORMS[one.left], kind, ROWS, tiles, generator, False)
    right = _factor(FORMS[one.right], kind, COLUMNS, tiles, generator, True)
    form, draw = FORMS[one.sums], DRAWS.get(kind, _near)
    addends = [draw(form, generator) if generator.random() < 0.75 else 0 for _ in range(tiles * SUMS)]
    return left, right, struct.pack(f"<{len(addends)}I", *addends)


def sums(library: ctypes.CDLL, number: int, kind: str, tiles: int) -> tuple[int, ...]:
    """The bits of an instruction's sums."""
    found = ctypes.create_string_buffer(tiles * SUMS * 4)
    status = library.run(number, tiles, *inputs(INSTRUCTIONS[number], kind, tiles), found)
    if status:
        raise RuntimeError(f"{INSTRUCTIONS[number].name}: CUDA error {status}")
    return struct.unpack(f"<{tiles * SUMS}I", found.raw)


def digest(bits: Sequence[int]) -> str:
    """A digest of sums."""
    return hashlib.sha256(struct.pack(f"<{len(bits)}I", *bits)).hexdigest()[:16]


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write digests of what the GPU computes, for the tests")
    parser.add_argument("--tiles", type=int, default=8, help="tiles of each kind for each instruction [default: 8]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        gpu = on_gpu(source(), Path(scratch), "-gencode", "arch=compute_90a,code=sm_90a")
        if options.write:
            found = {
                one.name: {kind: digest(sums(gpu, number, kind, options.tiles)) for kind in KINDS}
                for number, one in enumerate(INSTRUCTIONS)
            }
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            return 0
        emulator = on_emulator(source(), Path(scratch), Path(scratch, "emulator"))
        wrong = 0
        for number, one in enumerate(INSTRUCTIONS):
            for kind in KINDS:
                expected, got = (sums(library, number, kind, options.tiles) for library in (gpu, emulator))
                pairs = [pair for pair in zip(expected, got, strict=True) if pair[0] != pair[1]]
                wrong += bool(pairs)
                if pairs:
                    print(
                        f"{one.name}, {kind}: {len(pairs)} of {len(got)} differ: {pairs[0][0]:#x}, not {pairs[0][1]:#x}"
                    )
    print(f"{len(INSTRUCTIONS)} instructions, {len(KINDS)} kinds of {options.tiles * SUMS} sums each: {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
