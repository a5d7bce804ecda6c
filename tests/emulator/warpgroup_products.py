"""Writes kernels that multiply by a warpgroup (wgmma), one for each case, and what each result has to be."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

ROWS = 64
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
_FORMATS = {"f16": "e", "tf32": "f", "f32": "f", "s8": "b", "u8": "B", "s32": "i"}
#: The words of small integers in formats of 8 bits that are no integers.
_WORDS = {
    "e4m3": {0: 0x00, 1: 0x38, 2: 0x40, -1: 0xB8, -2: 0xC0, 3: 0x44, -3: 0xC4},
    "e5m2": {0: 0x00, 1: 0x3C, 2: 0x40, -1: 0xBC, -2: 0xC0, 3: 0x42, -3: 0xC2},
}


@dataclass(frozen=True)
class Case:
    """A product of 64 rows.

    Attributes:
        columns: The number of columns.
        left: The type of the left factor.
        right: The type of the right factor.
        sums: The type of the sums.
        swizzle: The descriptors' layout: 0 none, 1 of 128 bytes, 2 of 64, 3 of 32.
        turned: Whether depth does not run along memory, of the left matrix and of the right one.
        in_registers: Whether registers hold the left matrix.
        scales: The signs of both factors.
        is_kept: Whether the sums begin with 5 instead of nothing.
    """

    columns: int
    left: str
    right: str
    sums: str = "f32"
    swizzle: int = 1
    turned: tuple[bool, bool] = (False, False)
    in_registers: bool = False
    scales: tuple[int, int] = (1, 1)
    is_kept: bool = False

    @property
    def depth(self) -> int:
        return 32 // _BYTES[self.left]

    @property
    def name(self) -> str:
        parts = (self.columns, self.left, self.right, self.sums, self.swizzle, *map(int, self.turned))
        return "_".join(map(str, (*parts, int(self.in_registers), self.scales.count(-1), int(self.is_kept))))


CASES = [
    *(Case(24, "f16", "f16", swizzle=swizzle) for swizzle in range(4)),
    *(Case(24, "f16", "f16", swizzle=swizzle, turned=(True, False)) for swizzle in range(4)),
    *(Case(24, "f16", "f16", swizzle=swizzle, turned=(False, True)) for swizzle in range(4)),
    *(Case(128, "f16", "f16", swizzle=swizzle, turned=(True, True)) for swizzle in range(4)),
    Case(256, "bf16", "bf16", scales=(-1, 1), is_kept=True),
    Case(8, "f16", "f16", "f16", swizzle=3, is_kept=True),
    Case(16, "f16", "f16", "f16", in_registers=True, turned=(False, True), scales=(-1, -1)),
    Case(32, "bf16", "bf16", in_registers=True, scales=(1, -1)),
    Case(40, "tf32", "tf32", swizzle=2),
    Case(16, "tf32", "tf32", swizzle=0, in_registers=True, is_kept=True),
    Case(16, "e4m3", "e5m2", swizzle=3),
    Case(16, "e5m2", "e4m3", "f16", in_registers=True),
    Case(16, "s8", "u8", "s32", is_kept=True),
    Case(24, "u8", "s8", "s32", in_registers=True, swizzle=0),
]

_HEAD = """
#include <cuda_runtime.h>

__device__ unsigned shared_address(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }

// Where byte `byte` of an element (row, depth) of a matrix lies: the canonical layouts in units of 16 bytes.
__device__ unsigned place(int row, int depth, int bytes, int rows, int swizzle, bool turned) {
  const int per_chunk = 16 / bytes, chunks = swizzle == 0 ? 1 : 16 >> swizzle;
  const int line = turned ? depth : row, across = turned ? row : depth;
  const int column = across / per_chunk, inner = across % per_chunk * bytes, group = line / 8 * 128;
  unsigned offset;
  if (swizzle == 0 && !turned) offset = line / 8 * 256 + column * 128 + line % 8 * 16;
  else if (swizzle == 0) offset = column * 128 + group * (rows / per_chunk) + line % 8 * 16;
  else if (!turned) offset = group * chunks + line % 8 * chunks * 16 + column * 16;
  else offset = column / chunks * chunks * 256 + group * chunks + line % 8 * chunks * 16 + column % chunks * 16;
  return (offset ^ (offset >> 7 & (chunks - 1)) << 4) + inner;
}

__device__ unsigned long long descriptor(const void* at, int bytes, int rows, int swizzle, bool turned) {
  const int chunks = swizzle == 0 ? 1 : 16 >> swizzle;
  unsigned long long leading = 128, stride = 256;
  if (swizzle == 0 && turned) leading = rows / (16 / bytes) * 128, stride = 128;
  else if (turned) leading = chunks * 256, stride = chunks * 128;
  else if (swizzle != 0) stride = chunks * 128;
  return static_cast<unsigned long long>((shared_address(at) & 0x3ffff) >> 4) | leading >> 4 << 16 | stride >> 4 << 32 |
         static_cast<unsigned long long>(swizzle) << 62;
}

__device__ void fill(char* to, const char* from, int rows, int bytes, int swizzle, bool turned) {
  for (int i = threadIdx.x; i < rows * 32; i += 128) {
    const int element = i / bytes, depth = 32 / bytes;
    to[place(element / depth, element % depth, bytes, rows, swizzle, turned) + i % bytes] = from[i];
  }
}
"""


def kernel(case: Case) -> str:
    """The kernel of a case and a function that launches it."""
    count = case.columns // 2 * (2 if case.sums == "f16" else 4) // 4
    letter = "f" if case.sums == "f32" else "r"
    kind = "float" if letter == "f" else "unsigned"
    sums = ", ".join(f"%{i}" for i in range(count))
    left = ", ".join(f"%{count + i}" for i in range(4))
    behind = count + 4 if case.in_registers else count + 1
    left_text = f"{{{left}}}" if case.in_registers else f"%{count}"
    left_operands = ", ".join(f'"r"(a[{i}])' for i in range(4)) if case.in_registers else '"l"(left_at)'
    turns = [case.turned[1]] if case.in_registers else list(case.turned)
    tail = "" if case.sums == "s32" else "".join(f", {scale}" for scale in case.scales)
    tail += "".join(f", {int(one)}" for one in turns) if case.depth == 16 else ""
    opcode = f"wgmma.mma_async.sync.aligned.m64n{case.columns}k{case.depth}.{case.sums}.{case.left}.{case.right}"
    outputs = ", ".join(f'"+{letter}"(c[{i}])' for i in range(count))
    first = {"f32": "5.0f", "f16": "0x45004500u", "s32": "5u"}[case.sums]
    size = _BYTES[case.left]
    return f"""
__global__ void kernel_{case.name}(const char* left, const char* right, unsigned* target) {{
  __shared__ __align__(1024) char a_tile[8192], b_tile[32768];
  {kind} c[{count}];
  for (int i = 0; i < {count}; ++i) c[i] = {first};
  unsigned a[4];
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  for (int i = 0; i < 4; ++i) {{
    a[i] = reinterpret_cast<const unsigned*>(left + (row + i % 2 * 8) * 32)[i / 2 * 4 + threadIdx.x % 4];
  }}
  fill(a_tile, left, {ROWS}, {size}, {case.swizzle}, {int(case.turned[0])});
  fill(b_tile, right, {case.columns}, {size}, {case.swizzle}, {int(case.turned[1])});
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const unsigned long long left_at = descriptor(a_tile, {size}, {ROWS}, {case.swizzle}, {int(case.turned[0])});
  const unsigned long long right_at = descriptor(b_tile, {size}, {case.columns}, {case.swizzle}, {int(case.turned[1])});
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{behind + 1}, 0;\\n"
    "{opcode} {{{sums}}}, {left_text}, %{behind}, p{tail};\\n}}"
    : {outputs} : {left_operands}, "l"(right_at), "r"({int(case.is_kept)}));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {count}; ++i) {{
    target[threadIdx.x * {count} + i] = {"__float_as_uint(c[i])" if letter == "f" else "c[i]"};
  }}
}}
extern "C" void run_{case.name}(const char* left, const char* right, unsigned* target) {{
  char *a, *b;
  unsigned* c;
  cudaMalloc(&a, {ROWS * 32});
  cudaMalloc(&b, {case.columns * 32});
  cudaMalloc(&c, {128 * count * 4});
  cudaMemcpy(a, left, {ROWS * 32}, cudaMemcpyHostToDevice);
  cudaMemcpy(b, right, {case.columns * 32}, cudaMemcpyHostToDevice);
  kernel_{case.name}<<<1, 128>>>(a, b, c);
  cudaMemcpy(target, c, {128 * count * 4}, cudaMemcpyDeviceToHost);
  cudaFree(a);
  cudaFree(b);
  cudaFree(c);
}}
"""


def source() -> str:
    return _HEAD + "".join(map(kernel, CASES))


def factors(case: Case, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Small integers, so that every sum is exact: (64, depth) and (columns, depth)."""
    chosen = random.Random(seed)

    def row(kind: str) -> list[int]:
        # Bytes of -1 look like memory to which nothing was written.
        return [chosen.choice((0, 1, 2, 3) if kind == "u8" else (-3, -2, 0, 1, 2, 3)) for _ in range(case.depth)]

    return [row(case.left) for _ in range(ROWS)], [row(case.right) for _ in range(case.columns)]


def packed(rows: list[list[int]], kind: str) -> bytes:
    values = [value for row in rows for value in row]
    if kind in _WORDS:
        return bytes(_WORDS[kind][value] for value in values)
    if kind == "bf16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)


def expected(case: Case, left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    """(64, columns)."""
    sign = case.scales[0] * case.scales[1]
    first = 5 if case.is_kept else 0
    return [[first + sign * sum(x * y for x, y in zip(a, b, strict=True)) for b in right] for a in left]


def unpacked(case: Case, data: bytes) -> list[list[float]]:
    """(64, columns), from what the threads hold."""
    values = struct.unpack(f"<{ROWS * case.columns}{_FORMATS[case.sums]}", data)
    held = case.columns // 2
    result = [[0.0] * case.columns for _ in range(ROWS)]
    for thread in range(128):
        for i in range(held):
            row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
            result[row][i // 4 * 8 + thread % 4 * 2 + i % 2] = values[thread * held + i]
    return result
