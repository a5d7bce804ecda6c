"""Runs random kernels on the emulator and on a GPU, and compares everything that they write, bit by bit.

    python3 -m tests.emulator.random_kernels --write --kernels 60   # on a GPU of sm_80 or later: random_kernels.json
    python3 -m tests.emulator.random_kernels --kernels 400 --seed 7 # on such a GPU: compares it with the emulator

A kernel is a list of random statements on registers of each thread: integers, floats with directed rounding, halves,
loops, branches, warps, shared memory with barriers, atomics, asynchronous copies, and products of matrices. Nothing in
it depends on the order of threads, and nothing is undefined.
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
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.emulator.both_ways import on_emulator, on_gpu

RESULTS = Path(__file__).with_name("random_kernels.json")
BLOCKS, THREADS, WORDS, COUNTERS = 3, 64, 14, 256
#: Kernels in one program.
IN_PROGRAM = 60
_START = r"""
#include <cstdint>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

// Infinities, NaN and giants become ordinary numbers.
__device__ float tame(float x) { return fminf(fmaxf(x, -1e15f), 1e15f); }
__device__ double tame(double x) { return fmin(fmax(x, -1e15), 1e15); }
__device__ __half small(float x) { return __float2half_rn(fminf(fmaxf(x, -60.0f), 60.0f)); }
"""


class _Writer:
    """Draws statements. Registers are ``u`` (32 bits), ``f`` (float) and ``d`` (double)."""

    def __init__(self, generator: random.Random):
        self._generator = generator

    def u(self) -> str:
        return f"u{self._generator.randrange(6)}"

    def f(self) -> str:
        return f"f{self._generator.randrange(4)}"

    def d(self) -> str:
        return f"d{self._generator.randrange(2)}"

    def pick(self, *choices: str) -> str:
        return self._generator.choice(choices)

    def number(self, least: int, most: int) -> int:
        return self._generator.randint(least, most)

    def integers(self) -> str:
        a, b, c, d = self.u(), self.u(), self.u(), self.u()
        return f"{a} = " + self.pick(
            f"{b} + {c};",
            f"{b} - {c} * {d};",
            f"({b} & {c}) ^ ~{d};",
            f"{b} << ({c} & 31);",
            f"static_cast<uint32_t>(static_cast<int>({b}) >> ({c} & 31));",
            f"{b} / ({c} | 1) + {d} % ({b} | 3);",
            f"static_cast<uint32_t>(static_cast<int>({b}) / static_cast<int>(({c} & 0xffff) | 1));",
            f"static_cast<uint32_t>((static_cast<uint64_t>({b}) * {c} + {d}) >> ({a} & 31));",
            f"__popc({b}) + __clz({c}) * 37 + __ffs({d});",
            f"__brev({b}) ^ __byte_perm({b}, {c}, {d});",
            f"__funnelshift_l({b}, {c}, {d}) - __funnelshift_rc({c}, {d}, {b});",
            f"__umulhi({b}, {c}) + static_cast<uint32_t>(__mulhi(static_cast<int>({c}), static_cast<int>({d})));",
            f"__usad({b}, {c}, {d});",
            f"__vaddus4({b}, {c}) ^ __vcmpgtu2({c}, {d}) ^ __vabsdiffs2({b}, {d});",
            f"__dp4a({b}, {c}, {d});",
            f"min({b}, {c}) ^ static_cast<uint32_t>(max(static_cast<int>({c}), static_cast<int>({d})));",
            f"{b} > {c} ? {d} : {b} + {self.number(1, 1 << 30)}u;",
        )

    def floats(self) -> str:
        a, b, c, d, u = self.f(), self.f(), self.f(), self.f(), self.u()
        way = self.pick("rn", "rz", "ru", "rd")
        value = self.pick(
            f"__fadd_{way}({b}, {c})",
            f"__fmul_{way}({b}, {c})",
            f"__fmaf_{way}({b}, {c}, {d})",
            f"__fdiv_{way}({b}, {c})",
            f"__fsqrt_{way}(fabsf({b}))",
            f"__frcp_{way}({b})",
            f"__int2float_{way}(static_cast<int>({u}))",
            f"__uint2float_{way}({u})",
            f"__double2float_{way}({self.d()})",
            f"fmodf({b}, {c})",
            f"truncf({b}) - rintf({c})",
            f"copysignf({b}, {c}) + 0.5f",
            f"ldexpf({b}, static_cast<int>({u} & 15) - 8)",
            f"{b} < {c} ? {d} : -{b}",
        )
        return f"{a} = tame({value});"

    def doubles(self) -> str:
        a, b, way = self.d(), self.d(), self.pick("rn", "rz", "ru", "rd")
        value = self.pick(
            f"__dadd_{way}({b}, {a})",
            f"__dmul_{way}({b}, {a})",
            f"__fma_{way}({a}, {b}, 0.3)",
            f"__ddiv_{way}({b}, {a})",
            f"__dsqrt_{way}(fabs({b}))",
            f"static_cast<double>({self.f()}) * 1.7",
            f"__hiloint2double(0x3ff00000 | ({self.u()} & 0xfffff), {self.u()})",
        )
        return f"{a} = tame({value});"

    def conversions(self) -> str:
        a, way = self.u(), self.pick("rn", "rz", "ru", "rd")
        return f"{a} ^= " + self.pick(
            f"static_cast<uint32_t>(__float2int_{way}({self.f()}));",
            f"__float2uint_{way}({self.f()});",
            f"static_cast<uint32_t>(__double2int_{way}({self.d()}));",
            f"static_cast<uint32_t>(__float2ll_{way}({self.f()}) >> 7);",
            f"__float_as_uint({self.f()});",
            f"static_cast<uint32_t>(__double2hiint({self.d()}) ^ __double2loint({self.d()}));",
        )

    def halves(self) -> str:
        a, b, c = (f"small({self.f()})" for _ in range(3))
        return f"{self.u()} ^= __half_as_ushort(" + self.pick(
            f"__hadd({a}, {b}));",
            f"__hmul({a}, __hsub({b}, {c})));",
            f"__hfma({a}, {b}, {c}));",
            f"__hmax({a}, {b})) + (__hgt({b}, {c}) ? 1 : 0);",
            f"__low2half(__hfma2(__halves2half2({a}, {b}), __halves2half2({b}, {c}), __halves2half2({c}, {a}))));",
        )

    def branches(self) -> str:
        one, other = (self.pick(self.integers(), self.floats(), self.conversions()) for _ in range(2))
        return self.pick(
            f"if ({self.u()} & {1 << self.number(0, 7)}) {{ {one} }} else {{ {other} }}",
            f"for (uint32_t i = 0, end = {self.u()} & 7; i < end; ++i) {{ {one} {self.u()} += i; }}",
            f"switch ({self.u()} % 3) {{ case 0: {one} break; case 1: {other} break; default: {self.u()} ^= 0x55; }}",
            f"do {{ {one} {self.u()} = {self.u()} >> 1; }} while ({self.f()} > 2.0f && ++steps < 40);",
        )

    def warps(self) -> str:
        a, b, c = self.u(), self.u(), self.u()
        return self.pick(
            f"{a} = __shfl_sync(~0u, {b}, {c} & 31);",
            f"{a} += __shfl_xor_sync(~0u, {b}, {self.number(1, 31)});",
            f"{a} ^= __shfl_up_sync(~0u, {b}, {self.number(1, 15)}, {self.pick('8', '16', '32')});",
            f"{self.f()} = __shfl_down_sync(~0u, {self.f()}, {self.number(1, 31)});",
            f"{a} = __ballot_sync(~0u, {b} & 4) + __any_sync(~0u, {c} == 0) + __all_sync(~0u, {c} != 0);",
            f"{a} = __reduce_{self.pick('add', 'min', 'max', 'xor', 'or', 'and')}_sync(~0u, {b});",
            f"{a} ^= __match_any_sync(~0u, {b} & 3);",
            f"if ({b} & 1) {{ {a} += __popc({c}); }} __syncwarp(); {a} ^= __shfl_sync(~0u, {a}, 5);",
        )

    def shared(self) -> str:
        odd, shift, a = self.number(0, 31) * 2 + 1, self.number(0, 63), self.u()
        write = f"memory[(threadIdx.x * {odd} + {shift}) % {THREADS}] = {self.u()};"
        read = f"{a} ^= memory[{self.u()} % {THREADS}];"
        return f"__syncthreads(); {write} __syncthreads(); {read}"

    def atomics(self) -> str:
        name = self.pick("Add", "Min", "Max", "And", "Or", "Xor")
        shared = f"__syncthreads(); atomic{name}(&memory[{self.u()} % {THREADS}], {self.u()}); __syncthreads(); "
        return self.pick(
            f"{shared}{self.u()} += memory[(threadIdx.x + 1) % {THREADS}];",
            f"atomicAdd(&counters[{self.u()} % {COUNTERS}], {self.u()});",
            f"atomicMax(&counters[{COUNTERS} + {self.u()} % {COUNTERS}], {self.u()});",
            f"{self.u()} += __syncthreads_count({self.u()} & 1) + __syncthreads_or({self.u()} == 9);",
        )

    def copies(self) -> str:
        at = f"(threadIdx.x * {self.number(0, 31) * 2 + 1}) % {THREADS}"
        return self.pick(
            f"__syncthreads(); __pipeline_memcpy_async(&memory[{at}], &inputs[{self.u()} % {THREADS}], 4); "
            f"__pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); "
            f"{self.u()} -= memory[{self.u()} % {THREADS}];",
            f"{{ const uint4 four = reinterpret_cast<const uint4*>(inputs)[{self.u()} % {THREADS // 4}]; "
            f"{self.u()} += four.x ^ four.w; {self.u()} ^= four.y + four.z; }}",
        )

    def products(self) -> str:
        """A warp's product of halves; each warp has tiles of its own."""
        left, right, scale = self.u(), self.f(), self.pick("0.25f", "3.0f", "0.001f")
        return (
            f"for (int i = 0; i < 8; ++i) {{ left[warp][threadIdx.x % 32 * 8 + i] = "
            f"small(static_cast<int>({left} >> i & 255) * {scale}); "
            f"right[warp][threadIdx.x % 32 * 8 + i] = small({right} * (i + 1)); "
            f"sums[warp][threadIdx.x % 32 * 8 + i] = {self.f()} - i; }} __syncwarp(); "
            "{ nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> a; "
            "nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::col_major> b; "
            "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c; "
            "nvcuda::wmma::load_matrix_sync(a, left[warp], 16); nvcuda::wmma::load_matrix_sync(b, right[warp], 16); "
            "nvcuda::wmma::load_matrix_sync(c, sums[warp], 16, nvcuda::wmma::mem_row_major); "
            "nvcuda::wmma::mma_sync(c, a, b, c); "
            "nvcuda::wmma::store_matrix_sync(sums[warp], c, 16, nvcuda::wmma::mem_row_major); } __syncwarp(); "
            f"{self.f()} = tame(sums[warp][{self.u()} % 256]); __syncwarp();"
        )

    def statements(self, count: int) -> Iterator[str]:
        """So many statements, each of a kind that is drawn."""
        kinds: list[Callable[[], str]] = [
            *([self.integers] * 5),
            *([self.floats] * 4),
            self.doubles,
            *([self.conversions] * 2),
            self.halves,
            *([self.branches] * 3),
            *([self.warps] * 3),
            *([self.shared] * 2),
            *([self.atomics] * 2),
            self.copies,
            self.products,
        ]
        for _ in range(count):
            yield self._generator.choice(kinds)()


def kernel(seed: int, statements: int) -> str:
    """A kernel's parameters and body."""
    body = "\n  ".join(_Writer(random.Random(seed)).statements(statements))
    registers = ", ".join(f"u{i} = inputs[threadIdx.x] * {2 * i + 1}u + blockIdx.x" for i in range(6))
    kept = ["u0", "u1", "u2", "u3", "u4", "u5", *(f"__float_as_uint(f{i})" for i in range(4))]
    kept += [f"static_cast<uint32_t>(__double2{half}int(d{i}))" for i in range(2) for half in ("hi", "lo")]
    written = " ".join(f"to[{i}] = {value};" for i, value in enumerate(kept))
    return f"""(const uint32_t* inputs, uint32_t* outputs, uint32_t* counters) {{
  __shared__ __align__(16) uint32_t memory[{THREADS}];
  __shared__ __align__(32) __half left[{THREADS // 32}][256], right[{THREADS // 32}][256];
  __shared__ __align__(32) float sums[{THREADS // 32}][256];
  const unsigned warp = threadIdx.x / 32;
  [[maybe_unused]] int steps = 0;
  uint32_t {registers};
  float f0 = u0 % 1000 * 0.37f, f1 = 1.5f, f2 = -static_cast<float>(u1 % 77), f3 = u2 * 1e-9f;
  double d0 = u3 * 0.001, d1 = -1.25;
  memory[threadIdx.x] = u4;
  left[warp][threadIdx.x % 32] = right[warp][threadIdx.x % 32] = small(0.0f);
  sums[warp][threadIdx.x % 32] = 0.0f;
  __syncthreads();
  {body}
  uint32_t* const to = outputs + (blockIdx.x * {THREADS} + threadIdx.x) * {WORDS};
  {written}
}}"""


def source(first: int, count: int, statements: int) -> str:
    """A program of kernels with seeds from ``first`` on: ``run(kernel, inputs, outputs, counters)``."""
    kernels = [f"__global__ void kernel_{i}{kernel(first + i, statements)}" for i in range(count)]
    cases = " ".join(f"case {i}: kernel_{i}<<<{BLOCKS}, {THREADS}>>>(in, out, sums); break;" for i in range(count))
    joined, words = "\n".join(kernels), BLOCKS * THREADS * WORDS
    return f"""{_START}{joined}
extern "C" int run(int kernel, const uint32_t* inputs, uint32_t* outputs, uint32_t* counters) {{
  uint32_t *in, *out, *sums;
  cudaMalloc(&in, {THREADS * 4});
  cudaMalloc(&out, {words * 4});
  cudaMalloc(&sums, {2 * COUNTERS * 4});
  cudaMemcpy(in, inputs, {THREADS * 4}, cudaMemcpyHostToDevice);
  cudaMemset(sums, 0, {2 * COUNTERS * 4});
  switch (kernel) {{ {cases} }}
  const int status = cudaDeviceSynchronize();
  cudaMemcpy(outputs, out, {words * 4}, cudaMemcpyDeviceToHost);
  cudaMemcpy(counters, sums, {2 * COUNTERS * 4}, cudaMemcpyDeviceToHost);
  cudaFree(in);
  cudaFree(out);
  cudaFree(sums);
  return status;
}}
"""


def results(library: ctypes.CDLL, number: int) -> tuple[int, ...]:
    """Everything that a kernel of a program writes."""
    generator = random.Random(number)
    inputs = (ctypes.c_uint32 * THREADS)(*(generator.getrandbits(32) for _ in range(THREADS)))
    outputs = (ctypes.c_uint32 * (BLOCKS * THREADS * WORDS))()
    counters = (ctypes.c_uint32 * (2 * COUNTERS))()
    status = library.run(number, inputs, outputs, counters)
    if status:
        raise RuntimeError(f"kernel {number}: CUDA error {status}")
    return (*outputs, *counters)


def digest(words: tuple[int, ...]) -> str:
    """A digest of what a kernel wrote."""
    return hashlib.sha256(struct.pack(f"<{len(words)}I", *words)).hexdigest()[:16]


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write digests of what the GPU computes, for the tests")
    parser.add_argument("--kernels", type=int, default=IN_PROGRAM, help="number of kernels [default: 60]")
    parser.add_argument("--seed", type=int, default=0, help="the first kernel's seed [default: 0]")
    parser.add_argument("--statements", type=int, default=24, help="statements of each kernel [default: 24]")
    options = parser.parse_args()
    found: list[str] = []
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for first in range(options.seed, options.seed + options.kernels, IN_PROGRAM):
            count = min(IN_PROGRAM, options.seed + options.kernels - first)
            folder = Path(scratch, str(first))
            folder.mkdir()
            text = source(first, count, options.statements)
            gpu = on_gpu(text, folder, "-arch=native")
            if options.write:
                found += [digest(results(gpu, number)) for number in range(count)]
                continue
            emulator = on_emulator(text, folder, Path(scratch, "emulator"))
            for number in range(count):
                pairs = list(zip(results(gpu, number), results(emulator, number), strict=True))
                places = [place for place, (one, other) in enumerate(pairs) if one != other]
                wrong += bool(places)
                if places:
                    right, mine = pairs[places[0]]
                    print(f"kernel {first + number}: {len(places)} words differ, the first at {places[0]}: "
                          f"{right:#x} on the GPU, {mine:#x} here")  # fmt: skip
    if options.write:
        RESULTS.write_text(json.dumps({"statements": options.statements, "kernels": found}, indent=1) + "\n")
        return 0
    print(f"{options.kernels} kernels of {options.statements} statements: {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
