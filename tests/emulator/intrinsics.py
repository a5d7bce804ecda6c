"""What CUDA's documentation says of functions on words and on the bits of 16-bit floats, in Python's exact numbers."""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from fractions import Fraction

WORD = 0xFFFFFFFF
_OPERATORS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_BITS = {"s32": 32, "u32": 32, "s16x2": 16, "u16x2": 16}
# Bits of exponent and of fraction.
_FORMATS = {"half": (5, 10), "bfloat16": (8, 7)}


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def parts(word: int, bits: int, is_signed: bool) -> list[int]:
    """The parts of a word, the lowest first."""
    values = [word >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [signed(value, bits) for value in values] if is_signed else values


def joined(values: list[int], bits: int) -> int:
    return sum((value & ((1 << bits) - 1)) << (at * bits) for at, value in enumerate(values))


def _clamped(value: int, bits: int, is_signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def _away_from_zero(total: int) -> int:
    return -((1 - total) // 2) if total < 0 else (total + 1) // 2


def simd(name: str, x: int, y: int) -> int:
    """A function whose name begins with __v and ends with the number of parts."""
    match = re.fullmatch(r"__v(cmp|set)?(\w+?)([24])", name)
    assert match
    what, operation, bits = match[1], match[2], 32 // int(match[3])
    if what:
        op, sign = operation[:2], operation[2:]
        compared = zip(parts(x, bits, sign == "s"), parts(y, bits, sign == "s"), strict=True)
        return joined([(-1 if what == "cmp" else 1) * _OPERATORS[op](a, b) for a, b in compared], bits)
    is_signed = operation in ("abs", "absss", "neg", "negss", "addss", "subss") or (
        operation[-1] == "s" and operation not in ("addus", "subus")
    )
    left, right = parts(x, bits, is_signed), parts(y, bits, is_signed)
    if operation in ("sads", "sadu"):
        return sum(abs(a - b) for a, b in zip(left, right, strict=True)) & WORD
    operations: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "addss": lambda a, b: _clamped(a + b, bits, True),
        "addus": lambda a, b: _clamped(a + b, bits, False),
        "subss": lambda a, b: _clamped(a - b, bits, True),
        "subus": lambda a, b: _clamped(a - b, bits, False),
        "haddu": lambda a, b: (a + b) // 2,
        "abs": lambda a, _: abs(a),
        "absss": lambda a, _: _clamped(abs(a), bits, True),
        "neg": lambda a, _: -a,
        "negss": lambda a, _: _clamped(-a, bits, True),
        **{f"absdiff{sign}": lambda a, b: abs(a - b) for sign in "su"},
        **{f"avg{sign}": lambda a, b: _away_from_zero(a + b) for sign in "su"},
        **{f"max{sign}": max for sign in "su"},
        **{f"min{sign}": min for sign in "su"},
    }
    return joined([operations[operation](a, b) for a, b in zip(left, right, strict=True)], bits)


def dpx(name: str, x: int, y: int, z: int) -> int:
    """A function of DPX; bits from 32 up tell which value was the first one."""
    match = re.fullmatch(r"__vi(add|b)?(max|min)(3)?_(\w+?)(_relu)?", name)
    assert match
    kind, extremum, bits, is_signed = match[1], {"max": max, "min": min}[match[2]], _BITS[match[4]], match[4][0] == "s"
    a, b, c = (parts(word, bits, is_signed) for word in (x, y, z))
    if kind == "add":
        wrapped = [signed(i + j, bits) if is_signed else (i + j) & ((1 << bits) - 1) for i, j in zip(a, b, strict=True)]
        found = [extremum(i, j) for i, j in zip(wrapped, c, strict=True)]
    else:
        found = [extremum(i, j) for i, j in zip(a, b, strict=True)]
        found = [extremum(i, j) for i, j in zip(found, c, strict=True)] if match[3] else found
    if match[5]:
        found = [max(value, 0) for value in found]
    chosen = [int(value == i) for value, i in zip(found, a, strict=True)] if kind == "b" else []
    return joined(found, bits) | sum(one << (32 + at) for at, one in enumerate(chosen))


def product(name: str, x: int, y: int, z: int) -> int:
    """__dp2a_lo, __dp2a_hi and __dp4a, for signed words with a sixteenth of the third one."""
    is_signed = name.startswith(("int:", "short2:", "char4:"))
    total = signed(z, 32) >> 4 if is_signed else z
    if name.endswith("__dp4a"):
        left, right = parts(x, 8, is_signed), parts(y, 8, is_signed)
    else:
        left, right = parts(x, 16, is_signed), parts(y, 8, is_signed)
        right = right[2:] if name.endswith("_hi") else right[:2]
    return (total + sum(a * b for a, b in zip(left, right, strict=True))) & WORD


def find_nth_set(mask: int, base: int, offset: int) -> int:
    offset = signed(offset, 32)
    if offset == 0:
        return base if mask >> base & 1 else WORD
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    return ([at for at in places if mask >> at & 1] + [WORD] * 40)[min(abs(offset), 40) - 1]


def widened(bits: int, tag: str) -> float:
    if tag == "half":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def narrowed(value: Fraction, tag: str, rounding: str) -> int:
    """The bits of the 16-bit float next to a value."""
    exponent_bits, fraction_bits = _FORMATS[tag]
    bias = (1 << (exponent_bits - 1)) - 1
    sign, magnitude = (1, -value) if value < 0 else (0, value)
    exponent = 1 - bias
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = magnitude / Fraction(2) ** (exponent - fraction_bits)
    whole = math.floor(steps)
    rest = steps - whole
    is_up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rz": False,
        "ru": rest > 0 and not sign,
        "rd": rest > 0 and bool(sign),
    }[rounding]
    bits = ((exponent + bias - 1) << fraction_bits) + whole + is_up
    largest = (((1 << exponent_bits) - 1) << fraction_bits) - 1
    if bits > largest:
        bits = largest if rounding == "rz" or rounding == ("ru" if sign else "rd") else largest + 1
    return sign << 15 | bits


def from_integer(name: str, x: int, y: int) -> int:
    match = re.fullmatch(r"__(u?)(short|int|l?l)2(half|bfloat16)_(r[nzud])", name)
    assert match
    word = y << 32 | x
    bits = {"short": 16, "int": 32, "ll": 64, "l": 64}[match[2]]
    value = word & ((1 << bits) - 1) if match[1] else signed(word, bits)
    return narrowed(Fraction(value), match[3], match[4])


def to_integer(name: str, x: int) -> int:
    match = re.fullmatch(r"__(half|bfloat16)2(u?)(ll|char)_(r[nzud])", name)
    assert match
    bits, is_signed = {"ll": 64, "char": 8}[match[3]], not match[2]
    value = widened(x & 0xFFFF, match[1])
    if math.isnan(value):
        return 1 << 63 if bits == 64 else 0
    if math.isinf(value):
        whole = (1 if value > 0 else -1) << 80
    else:
        whole = {"rn": round, "rz": math.trunc, "ru": math.ceil, "rd": math.floor}[match[4]](value)
    # A narrow result has been converted to 64 bits.
    return _clamped(whole, bits, is_signed) & ((1 << 64) - 1)


def comparison(name: str, x: int, y: int) -> int:
    match = re.fullmatch(r"(bf16:)?__h(b?)(eq|ne|lt|le|gt|ge)(u?)2(_mask)?", name)
    assert match
    tag, one = ("bfloat16", 0x3F80) if match[1] else ("half", 0x3C00)
    pairs = [[widened(part, tag) for part in parts(word, 16, False)] for word in (x, y)]
    found = []
    for a, b in zip(*pairs, strict=True):
        is_unordered = math.isnan(a) or math.isnan(b)
        found.append(bool(match[4]) if is_unordered else _OPERATORS[match[3]](a, b))
    if match[2]:
        return int(all(found))
    return joined([(0xFFFF if match[5] else one) * truth for truth in found], 16)


def complex_sum(x: int, y: int, z: int) -> int | None:
    """__hcmadd; None if a number on the way is not finite, or one of the result is zero, of either sign."""

    def fma(a: int, b: int, c: int) -> int | None:
        if any(word is None or (word & 0x7C00) == 0x7C00 for word in (a, b, c)):
            return None
        total = Fraction(widened(a, "half")) * Fraction(widened(b, "half")) + Fraction(widened(c, "half"))
        return narrowed(total, "half", "rn")

    (a, b), (c, d), (real, imaginary) = (parts(word, 16, False) for word in (x, y, z))
    real, imaginary = fma(a, c, real), fma(a, d, imaginary)
    real, imaginary = fma(b ^ 0x8000, d, real), fma(b, c, imaginary)
    return joined([real, imaginary], 16) if real and imaginary and 0x8000 not in (real, imaginary) else None


def expected(name: str, x: int, y: int, z: int) -> int | None:
    """A function's result for three words; None if nothing is said about it."""
    if name == "__fns":
        return find_nth_set(x, y, z)
    if name.startswith("__nv_bswap"):
        count = int(name.removeprefix("__nv_bswap")) // 8
        return int.from_bytes((x & ((1 << 8 * count) - 1)).to_bytes(count, "little"), "big")
    if name == "__hcmadd":
        return complex_sum(x, y, z)
    if name == "__hisnan2":
        return joined([0x3C00 * math.isnan(widened(part, "half")) for part in parts(x, 16, False)], 16)
    if "__dp" in name:
        return product(name, x, y, z)
    if name.startswith("__vi"):
        return dpx(name, x, y, z)
    if name.startswith("__v"):
        return simd(name, x, y)
    if re.match(r"__u?(short|int|ll)2", name) or name.startswith("__ull2"):
        return from_integer(name, x, y)
    if name.startswith(("__half2", "__bfloat162")):
        return to_integer(name, x)
    return comparison(name, x, y)
