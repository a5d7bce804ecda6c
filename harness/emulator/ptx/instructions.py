"""The instructions of PTX that the emulator runs, each with the C++ that it means.

Semantics are those of NVIDIA's "PTX ISA" 8.x. What no row matches is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """An instruction, or several of one form.

    Attributes:
        about: The row's heading in the documentation.
        pattern: What the opcode matches as a whole. Its groups are the values of `code` and of `types`.
        types: The types of the operands, the result first; a group's name stands for what it matched. `-` says
            that there is no result, as an address (`@`), or a place in a tensor (`#`), in the first place does. `*` are registers in braces, `>*`
            such results, `+*` such results that are read, too, as operand `{a}`, and `w` is `t` in twice its size; `?` in front marks an operand that may be missing, `|`
            behind a result with a predicate.
        code: The C++ expression of the result, or a statement. `{a}`, `{b}` and so on are the operands behind the
            result, `{T}` is the C++ type of the group `t`, `{name}` what a group matched, `{name?}` whether it did,
            `{name?text}` the text if it did, and `{name|text}` the text if it did not.
    """

    about: str
    pattern: re.Pattern[str]
    types: tuple[str, ...]
    code: str


ROWS: list[Row] = []


def _rows(about: str, *rows: tuple[str, str, str]) -> None:
    ROWS.extend(Row(about, re.compile(pattern), tuple(types.split()), code) for pattern, types, code in rows)


_INT = r"\.(?P<t>[us](?:16|32|64))"
_WORD = r"\.(?P<t>[us](?:32|64))"
_SIGNED = r"\.(?P<t>s(?:16|32|64))"
_BITS = r"\.(?P<t>b(?:16|32|64))"
_LOGIC = r"\.(?P<t>b16|b32|b64|pred)"
_FLOAT = r"\.(?P<t>f(?:32|64))"
_SMALL = r"\.(?P<t>b?f16(?:x2)?)"
_ROUND = r"(?:\.(?P<round>r[nzmp]))?"
_MUST_ROUND = r"\.(?P<round>r[nzmp])"
# What these two say is done to every operand and result of the type float.
_FTZ = r"(?P<ftz>\.ftz(?=.*\.f32))?"
_SAT = r"(?P<sat>\.sat)?"

_SUM = "P::wrap<{T}>({a}, {b}, P::Plus())"
_PRODUCT = "P::wrap<{T}>({a}, {b}, P::Times())"
_rows(
    "integers: add, sub, mul, mad, div, rem, abs, neg, min, max",
    (rf"add{_INT}", "t t t", _SUM),
    (rf"sub{_INT}", "t t t", "P::wrap<{T}>({a}, {b}, P::Minus())"),
    (r"add\.sat\.s32", "s32 s32 s32", "P::clamped(std::int64_t({a}) + {b})"),
    (r"sub\.sat\.s32", "s32 s32 s32", "P::clamped(std::int64_t({a}) - {b})"),
    (r"add\.cc\.[us]32", "u32 u32 u32", "P::with_carry(std::uint64_t({a}) + {b}, cuemu_carry)"),
    (r"addc\.cc\.[us]32", "u32 u32 u32", "P::with_carry(std::uint64_t({a}) + {b} + cuemu_carry, cuemu_carry)"),
    (r"addc\.[us]32", "u32 u32 u32", "{a} + {b} + cuemu_carry"),
    (rf"mul\.lo{_INT}", "t t t", _PRODUCT),
    (rf"mul\.hi{_INT}", "t t t", "P::high<{T}>({a}, {b})"),
    (r"mul\.wide\.(?P<t>[us](?:16|32))", "w t t", "P::Wide<{T}>({a}) * {b}"),
    (rf"mad\.lo{_INT}", "t t t t", f"P::wrap<{{T}}>({_PRODUCT}, {{c}}, P::Plus())"),
    (rf"mad\.hi{_INT}", "t t t t", "P::wrap<{T}>(P::high<{T}>({a}, {b}), {c}, P::Plus())"),
    (r"mad\.wide\.(?P<t>[us](?:16|32))", "w t t w", "P::wrap<P::Wide<{T}>>(P::Wide<{T}>({a}) * {b}, {c}, P::Plus())"),
    (rf"div{_INT}", "t t t", "P::divided<{T}>({a}, {b})"),
    (rf"rem{_INT}", "t t t", "P::remainder<{T}>({a}, {b})"),
    (rf"abs{_SIGNED}", "t t", "{a} < 0 ? P::wrap<{T}>({T}(0), {a}, P::Minus()) : {a}"),
    (rf"neg{_SIGNED}", "t t", "P::wrap<{T}>({T}(0), {a}, P::Minus())"),
    (rf"min{_INT}", "t t t", "{b} < {a} ? {b} : {a}"),
    (rf"max{_INT}", "t t t", "{b} > {a} ? {b} : {a}"),
)
_rows(
    "bits: and, or, xor, not, cnot, shl, shr, shf, bfe, bfi, bfind, brev, clz, popc, prmt, lop3, dp4a",
    (rf"and{_LOGIC}", "t t t", "{a} & {b}"),
    (rf"or{_LOGIC}", "t t t", "{a} | {b}"),
    (rf"xor{_LOGIC}", "t t t", "{a} ^ {b}"),
    (r"not\.pred", "pred pred", "!{a}"),
    (rf"not{_BITS}", "t t", "~{a}"),
    (rf"cnot{_BITS}", "t t", "{a} == 0"),
    (rf"shl{_BITS}", "t t u32", "P::shifted_left<{T}>({a}, {b})"),
    (r"shr\.(?P<t>[bus](?:16|32|64))", "t t u32", "P::shifted_right<{T}>({a}, {b})"),
    (
        r"shf\.(?P<side>[lr])\.(?:wrap|(?P<clamp>clamp))\.b32",
        "u32 u32 u32 u32",
        "::__funnelshift_{side}{clamp?c}({a}, {b}, {c})",
    ),
    (rf"bfe{_WORD}", "t t u32 u32", "P::field<{T}>({a}, {b}, {c})"),
    (r"bfi\.(?P<t>b(?:32|64))", "t t t u32 u32", "P::inserted<{T}>({a}, {b}, {c}, {d})"),
    (rf"bfind{_WORD}", "u32 t", "P::leading<{T}>({a})"),
    (r"brev\.b32", "u32 u32", "::__brev({a})"),
    (r"brev\.b64", "u64 u64", "::__brevll({a})"),
    (r"clz\.(?P<t>b(?:32|64))", "u32 t", "std::countl_zero({a})"),
    (r"popc\.(?P<t>b(?:32|64))", "u32 t", "std::popcount({a})"),
    (r"prmt\.b32(?:\.(?P<mode>f4e|b4e|rc8|ecl|ecr|rc16))?", "u32 u32 u32 u32", 'P::permuted({a}, {b}, {c}, "{mode}")'),
    (r"lop3\.b32", "u32 u32 u32 u32 u32", "P::lop3({a}, {b}, {c}, {d})"),
    *(
        (
            rf"dp4a\.{left}32\.{right}32",
            f"{sum} u32 u32 {sum}",
            f"P::dp4a<P::{left}8, P::{right}8>({{a}}, {{b}}, {{c}})",
        )
        for left, right, sum in (("s", "s", "s32"), ("u", "u", "u32"), ("s", "u", "s32"), ("u", "s", "s32"))
    ),
)

_BINARY = (("add", "x + y"), ("sub", "x - y"), ("mul", "x * y"))
_EXTREME = (("min", "P::fmin{nan?_nan}"), ("max", "P::fmax{nan?_nan}"))
_rows(
    "float and double: add, sub, mul, fma, div, rcp, sqrt, rsqrt, abs, neg, min, max, copysign, testp",
    *(
        (rf"{name}{_ROUND}{_FTZ}{_SAT}\.f32", "f32 f32 f32", f"::__f{name}_{{direction}}({{a}}, {{b}})")
        for name, _ in _BINARY
    ),
    *((rf"{name}{_ROUND}\.f64", "f64 f64 f64", f"::__d{name}_{{direction}}({{a}}, {{b}})") for name, _ in _BINARY),
    (rf"(?:fma|mad){_MUST_ROUND}{_FTZ}{_SAT}\.f32", "f32 f32 f32 f32", "::__fmaf_{direction}({a}, {b}, {c})"),
    (rf"(?:fma|mad){_MUST_ROUND}\.f64", "f64 f64 f64 f64", "::__fma_{direction}({a}, {b}, {c})"),
    (rf"div{_MUST_ROUND}{_FTZ}\.f32", "f32 f32 f32", "::__fdiv_{direction}({a}, {b})"),
    (rf"div{_MUST_ROUND}\.f64", "f64 f64 f64", "::__ddiv_{direction}({a}, {b})"),
    (rf"div\.(?:approx|full){_FTZ}\.f32", "f32 f32 f32", "{a} / {b}"),
    *((rf"{name}{_MUST_ROUND}{_FTZ}\.f32", "f32 f32", f"::__f{name}_{{direction}}({{a}})") for name in ("rcp", "sqrt")),
    *((rf"{name}{_MUST_ROUND}\.f64", "f64 f64", f"::__d{name}_{{direction}}({{a}})") for name in ("rcp", "sqrt")),
    (rf"rcp\.approx{_FTZ}\.f32", "f32 f32", "1.0f / {a}"),
    (rf"sqrt\.approx{_FTZ}\.f32", "f32 f32", "std::sqrt({a})"),
    (rf"rsqrt\.approx{_FTZ}{_FLOAT}", "t t", "1 / std::sqrt({a})"),
    (rf"abs{_FTZ}{_FLOAT}", "t t", "std::fabs({a})"),
    (rf"neg{_FTZ}{_FLOAT}", "t t", "-({a})"),
    *((rf"{name}{_FTZ}(?P<nan>\.NaN(?=\.f32))?{_FLOAT}", "t t t", f"{call}({{a}}, {{b}})") for name, call in _EXTREME),
    (rf"copysign{_FLOAT}", "t t t", "std::copysign({b}, {a})"),
    *(
        (rf"testp\.{kind}{_FLOAT}", "pred t", f"{test}({{a}})")
        for kind, test in (
            ("finite", "std::isfinite"),
            ("infinite", "std::isinf"),
            ("notanumber", "std::isnan"),
            ("number", "!std::isnan"),
        )
    ),
)
_rows(
    "ex2, lg2, sin, cos, tanh (`.approx`, in full precision here)",
    *(
        (rf"{name}\.approx{_FTZ}\.f32", "f32 f32", f"std::{call}({{a}})")
        for name, call in (("ex2", "exp2"), ("lg2", "log2"), ("sin", "sin"), ("cos", "cos"))
    ),
    (r"tanh\.approx\.f32", "f32 f32", "std::tanh({a})"),
    *(
        (rf"{name}\.approx{ftz}{_SMALL}", "t t", f"P::each({{a}}, [](float x) {{{{ return std::{call}(x); }}}})")
        for name, call, ftz in (("ex2", "exp2", r"(?:\.ftz(?=\.bf16))?"), ("tanh", "tanh", ""))
    ),
)
_rows(
    "f16, f16x2, bf16, bf16x2: add, sub, mul, fma, abs, neg, min, max",
    *(
        (rf"{name}(?:\.rn)?(?:\.ftz(?=.*\.f16))?(?P<clamped>\.sat(?=\.f16))?{_SMALL}", "t t t",
         f"P::each({{a}}, {{b}}, [](float x, float y) {{{{ return {{clamped?::__saturatef}}({sum}); }}}})")
        for name, sum in _BINARY
    ),
    *(
        (rf"{name}(?:\.ftz(?=.*\.f16))?(?P<nan>\.NaN)?{_SMALL}", "t t t",
         f"P::each({{a}}, {{b}}, [](float x, float y) {{{{ return {call}(x, y); }}}})")
        for name, call in _EXTREME
    ),
    (rf"fma\.rn(?:\.ftz(?=.*\.f16))?(?P<relu>\.relu)?{_SMALL}", "t t t t", "P::fma({a}, {b}, {c}, {relu?})"),
    (rf"abs(?:\.ftz(?=.*\.f16))?{_SMALL}", "t t", "P::each({a}, [](float x) {{ return std::fabs(x); }})"),
    (rf"neg(?:\.ftz(?=.*\.f16))?{_SMALL}", "t t", "P::each({a}, [](float x) {{ return -x; }})"),
)  # fmt: skip

_ORDER = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARISONS = [
    *((name, "[bus](?:16|32|64)", f"{{a}} {sign} {{b}}") for name, sign in (("eq", "=="), ("ne", "!="))),
    *((name, "[us](?:16|32|64)", f"{{a}} {sign} {{b}}") for name, sign in _ORDER.items()),
    *(
        (name, "u(?:16|32|64)", f"{{a}} {sign} {{b}}")
        for name, sign in zip(("lo", "ls", "hi", "hs"), _ORDER.values(), strict=True)
    ),
    *((name, "f(?:32|64)", f"{{a}} {sign} {{b}}") for name, sign in (("eq", "=="), *_ORDER.items())),
    ("ne", "f(?:32|64)", "!P::unordered({a}, {b}) && {a} != {b}"),
    *(
        (f"{name}u", "f(?:32|64)", f"P::unordered({{a}}, {{b}}) || {{a}} {sign} {{b}}")
        for name, sign in (("eq", "=="), ("ne", "!="), *_ORDER.items())
    ),
    ("num", "f(?:32|64)", "!P::unordered({a}, {b})"),
    ("nan", "f(?:32|64)", "P::unordered({a}, {b})"),
]
_rows(
    "setp, selp, slct",
    *((rf"setp\.{name}{_FTZ}\.(?P<t>{kinds})", "pred| t t", test) for name, kinds, test in _COMPARISONS),
    *(
        (rf"setp\.{name}\.(?P<combined>{word}){_FTZ}\.(?P<t>{kinds})", "pred| t t pred", f"({test}) {sign} {{c}}")
        for name, kinds, test in _COMPARISONS
        for word, sign in (("and", "&&"), ("or", "||"), ("xor", "!="))
    ),
    (r"selp\.(?P<t>[bus](?:16|32|64)|f(?:32|64))", "t t t pred", "{c} ? {a} : {b}"),
    (r"slct\.(?P<t>[busf](?:32|64))\.s32", "t t t s32", "{c} >= 0 ? {a} : {b}"),
)
_rows(
    "mov (also to and from `{a, b}`, and of special registers), cvt, cvta",
    (r"mov\.(?P<t>[bus](?:16|32|64)|f(?:32|64)|pred)", "t t", "{a}"),
    (
        rf"cvt(?:\.(?P<round>r[nzmp]i?))?{_FTZ}{_SAT}\.(?P<t>[us](?:8|16|32|64)|f16|bf16|f32|f64)"
        r"\.(?P<from>[us](?:8|16|32|64)|f16|bf16|f32|f64)",
        "t from",
        'P::converted<{T}>({a}, "{round}", {sat?}, {ftz?})',
    ),
    (r"cvt\.rna\.tf32\.f32", "b32 f32", "P::tf32({a})"),
    (r"cvt\.rn(?P<relu>\.relu)?\.(?P<t>b?f16x2)\.f32", "t f32 f32", "P::packed<{T}>({b}, {a}, {relu?})"),
    (r"cvta(?:\.to)?\.(?:global|local|const|param|shared(?:::cta|::cluster)?)\.(?P<t>u(?:32|64))", "t t", "{a}"),
)

_SPACE = r"(?:\.(?:global|shared(?:::cta|::cluster)?|local|const))?"
_SHARED_TOO = r"(?:\.(?:global|shared(?:::cta|::cluster)?))?"
_CACHE = (
    r"(?:\.(?:ca|cg|cs|lu|cv|wb|wt|nc))*(?:\.L1::(?:evict_(?:normal|unchanged|first|last)|no_allocate))?"
    r"(?:\.L2::evict_(?:normal|first|last))?(?:\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?"
)
_READ_ONLY = _CACHE.replace("|nc))*", "))*\\.nc", 1)
_WITHIN = r"(?:\.(?:cta|cluster|gpu|sys))?"
# Operations of the block's scope are atomic for the block alone.
_OF_SCOPE = r"(?:\.(?:(?P<block>cta)|cluster|gpu|sys))?"
_SEVERAL = r"(?:\.v(?P<count>[24]))?\.(?P<t>[bus](?:8|16|32|64)|f(?:32|64))"
_SCOPE = rf"(?:\.relaxed|(?P<ordered>\.acquire|\.release|\.acq_rel))?{_OF_SCOPE}"
_ATOMIC = (
    ("add", "u32|s32|u64|f32|f64"), ("min", "u32|s32|u64|s64"), ("max", "u32|s32|u64|s64"), ("inc", "u32"),
    ("dec", "u32"), ("and", "b32|b64"), ("or", "b32|b64"), ("xor", "b32|b64"), ("exch", "b32|b64"),
)  # fmt: skip
#: Atomic operations that commute with their like, by the number of their kind in ``cuemu/atomics.h``.
REDUCTIONS = {
    "atomicAdd": 1, "atomicSub": 1, "atomicMin": 2, "atomicMax": 3, "atomicAnd": 4, "atomicOr": 5, "atomicXor": 6,
}  # fmt: skip


def _discards(head: str, name: str) -> str:
    """Notes that nobody uses the result of a reduction that commutes with its like."""
    kind = REDUCTIONS.get(f"atomic{name.capitalize()}") if head == "red" else None
    return f"::cuemu::discards({kind}); " if kind else ""


_rows(
    "ld, ldu, st, prefetch, createpolicy, atom, red",
    (rf"ld\.global{_READ_ONLY}{_SEVERAL}", ">* @ ?u64", "P::load_constant<{T}, {count|1}>({a})"),
    (rf"ld(?:\.weak)?{_SPACE}{_CACHE}{_SEVERAL}", ">* @ ?u64", "P::load_plain<{T}, {count|1}>({a})"),
    (rf"ld\.(?:volatile|relaxed|(?P<ordered>acquire)){_OF_SCOPE}{_SPACE}{_CACHE}{_SEVERAL}", ">* @ ?u64", "P::load_strong<{T}, {count|1}, {block?}>({a}, {ordered?})"),
    (rf"ldu\.global{_SEVERAL}", ">* @", "P::load_plain<{T}, {count|1}>({a})"),
    (rf"st(?:\.weak)?{_SPACE}{_CACHE}{_SEVERAL}", "@ * ?u64", "P::store_plain<{T}, {count|1}>({a}, {b})"),
    (rf"st\.(?:volatile|relaxed|(?P<ordered>release)){_OF_SCOPE}{_SPACE}{_CACHE}{_SEVERAL}", "@ * ?u64", "P::store_strong<{T}, {count|1}, {block?}>({a}, {b}, {ordered?})"),
    (r"prefetch(?:\.global|\.local)?\.L[12]|prefetchu\.L1", "@", "static_cast<void>({a})"),
    (r"createpolicy\.fractional\.L2::evict_\w+(?:\.L2::evict_\w+)?\.b64", "u64 ?f32", "0"),
    *(
        (rf"{head}{_SCOPE}{_SHARED_TOO}\.{name}\.(?P<t>{kinds})", types,
         f"P::atomic<{{block?}}>({{ordered?}}, [&] {{{{ {_discards(head, name)}return ::atomic{name.capitalize()}{{block?_block}}"
         "(P::pointer<P::Atomic<{T}>>({a}), P::Atomic<{T}>({b})); }})")
        for name, kinds in _ATOMIC
        for head, types in (("atom", "t @ t"), ("red", "@ t"))
        if (head, name) != ("red", "exch")
    ),
    *(
        (rf"{head}{_SCOPE}{_SHARED_TOO}\.add\.noftz{_SMALL}", types,
         "P::atomic<{block?}>({ordered?}, [&] {{ return P::add_at<{block?}>(P::pointer<{T}>({a}), {b}); }})")
        for head, types in (("atom", "t @ t"), ("red", "@ t"))
    ),
    *(
        (rf"{head}{_SCOPE}(?:\.global)?\.add(?:\.noftz(?=.*f16))?(?:\.L2::cache_hint)?\.v(?P<count>{count})\.(?P<t>{kinds})", types,
         "P::atomic<{block?}>({ordered?}, [&] {{ return P::add_to_each<{T}, {count}, {block?}>({a}, {b}); }})")
        for head, types in (("atom", ">* @ * ?u64"), ("red", "@ * ?u64"))
        for count, kinds in (("[24]", "f32|b?f16x2"), ("[248]", "b?f16"))
    ),
    (
        rf"atom{_SCOPE}{_SHARED_TOO}\.cas\.(?P<t>b(?:16|32|64))",
        "t @ t t",
        "P::atomic<{block?}>({ordered?}, [&] {{ return ::atomicCAS{block?_block}("
        "P::pointer<P::Atomic<{T}>>({a}), P::Atomic<{T}>({b}), "
        "P::Atomic<{T}>({c})); }})",
    ),
)  # fmt: skip
_rows(
    "membar, fence, bar and barrier: sync and arrive",
    (r"membar\.cta|fence(?:\.sc|\.acq_rel)?\.cta", "", "::cuemu::fence(false)"),
    (r"membar\.(?:gl|sys)|fence(?:\.sc|\.acq_rel)?\.(?:gpu|sys)", "", "::cuemu::fence(true)"),
    (r"fence(?:\.sc|\.acq_rel)?\.cluster", "", "::cuemu::fence_cluster(true)"),
    (r"fence\.proxy\.async(?:\.global|\.shared::(?:cta|cluster))?", "", "::cuemu::fence_async_proxy()"),
    (r"fence\.proxy\.alias", "", "::cuemu::fence(false)"),
    (r"fence\.mbarrier_init\.release\.cluster", "", "::cuemu::fence_cluster(false)"),
    (r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?", "- u32 ?u32", "P::meet({a}, {b}, true, __LINE__)"),
    (r"(?:bar|barrier)(?:\.cta)?\.arrive(?:\.aligned)?", "- u32 u32", "P::meet({a}, {b}, false, __LINE__)"),
)
_rows(
    "shfl, vote, match, redux, activemask, elect, bar.warp.sync",
    *(
        (rf"shfl\.sync\.{kind}\.b32", "u32| u32 u32 u32 u32",
         f"P::shuffled(::cuemu::WarpOp::{call}, {{a}}, {{b}}, {{c}}, {{d}}, cuemu_flag, __LINE__)")
        for kind, call in (("idx", "shuffle"), ("up", "shuffle_up"), ("down", "shuffle_down"), ("bfly", "shuffle_xor"))
    ),
    (r"vote\.sync\.ballot\.b32", "u32 pred u32", "::__ballot_sync({b}, {a}, __LINE__)"),
    (r"vote\.sync\.(?P<which>all|any)\.pred", "pred pred u32", "::__{which}_sync({b}, {a}, __LINE__) != 0"),
    (r"match\.any\.sync\.(?P<t>b(?:32|64))", "u32 t u32", "::__match_any_sync({b}, P::Atomic<{T}>({a}), __LINE__)"),
    (r"redux\.sync\.(?P<which>add|min|max)\.(?P<t>[us]32)", "t t u32", "::__reduce_{which}_sync({b}, {a}, __LINE__)"),
    (r"redux\.sync\.(?P<which>and|or|xor)\.b32", "u32 u32 u32", "::__reduce_{which}_sync({b}, {a}, __LINE__)"),
    (r"activemask\.b32", "u32", "::__activemask(__LINE__)"),
    (r"elect\.sync", "u32| u32", "P::elected({a}, cuemu_flag, __LINE__)"),
    (r"bar\.warp\.sync", "- u32", "::__syncwarp({a}, __LINE__)"),
)  # fmt: skip
_rows(
    "nanosleep, trap, brkpt, griddepcontrol, setmaxnreg",
    (r"nanosleep\.u32", "- u32", "::__nanosleep({a})"),
    (r"trap", "", "::__trap(__LINE__)"),
    (r"brkpt|griddepcontrol\.(?:wait|launch_dependents)", "", "static_cast<void>(0)"),
    (r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32", "- u32", "static_cast<void>({a})"),
)

_rows(
    "clusters: barrier.cluster, mapa, getctarank",
    (
        r"barrier\.cluster\.arrive(?:\.release|(?P<relaxed>\.relaxed))?(?:\.aligned)?",
        "",
        "::cuemu::arrive_at_cluster_barrier(!{relaxed?}, __LINE__)",
    ),
    (
        r"barrier\.cluster\.wait(?:\.acquire|(?P<relaxed>\.relaxed))?(?:\.aligned)?",
        "",
        "::cuemu::wait_at_cluster_barrier(!{relaxed?}, __LINE__)",
    ),
    (r"mapa(?:\.shared::cluster)?\.(?P<t>u(?:32|64))", "t t u32", "P::mapped<{T}>({a}, {b}, __LINE__)"),
    (
        r"getctarank(?:\.shared::cluster)?\.(?P<t>u(?:32|64))",
        "u32 t",
        "::cuemu::rank_of_shared(P::address({a}, 0), __LINE__)",
    ),
)

_L2 = r"(?:\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?"
_PLACE = rf"{_WITHIN}(?:\.shared(?:::cta)?)?\.b64"
_ANY_PLACE = rf"{_WITHIN}(?:\.shared(?:::cta|::cluster)?)?\.b64"
_ENDED = r"mbarrier\.(?:test_wait|try_wait)"
_rows(
    "cp.async and its groups; cp.async.bulk between global and shared memory, and its groups",
    (
        rf"cp\.async\.c[ag]\.shared(?:::cta)?\.global{_L2}",
        "@ @ u32 ?u32 ?u64",
        "P::copy_async({a}, {b}, {c}, {d}, __LINE__)",
    ),
    (r"cp\.async\.mbarrier\.arrive(?:\.shared(?:::cta)?)?\.b64", "@", "P::expect_copies({a}, __LINE__)"),
    (r"cp\.async\.mbarrier\.arrive\.noinc(?:\.shared(?:::cta)?)?\.b64", "@", "P::arrive_with_copies({a}, __LINE__)"),
    (r"cp\.async(?P<bulk>\.bulk)?\.commit_group", "", "::cuemu::commit_async_copies({bulk?})"),
    (r"cp\.async\.wait_group", "- u32", "P::wait_for_copies(false, {a})"),
    (r"cp\.async\.wait_all", "", "P::wait_for_copies(false, P::kAll)"),
    (r"cp\.async\.bulk\.wait_group(?:\.read)?", "- u32", "P::wait_for_copies(true, {a})"),
    (
        rf"cp\.async\.bulk\.shared::(?:cluster|cta)\.global\.mbarrier::complete_tx::bytes{_L2}",
        "@ @ u32 @ ?u64",
        "P::copy_bulk({a}, {b}, {c}, {d}, __LINE__)",
    ),
    (
        rf"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.multicast::cluster{_L2}",
        "@ @ u32 @ u16 ?u64",
        "P::share_bulk({a}, {b}, {c}, {d}, {e}, __LINE__)",
    ),
    (
        r"cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes",
        "@ @ u32 @",
        "P::copy_bulk({a}, {b}, {c}, {d}, __LINE__)",
    ),
    (
        rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{_L2}",
        "@ @ u32 ?u64",
        "P::copy_bulk_back({a}, {b}, {c}, __LINE__)",
    ),
)
_rows(
    "mbarrier: init, inval, arrive, expect_tx, test_wait, try_wait",
    (r"mbarrier\.init(?:\.shared(?:::cta)?)?\.b64", "@ u32", "P::begin_mbarrier({a}, {b}, __LINE__)"),
    (r"mbarrier\.inval(?:\.shared(?:::cta)?)?\.b64", "@", "P::end_mbarrier({a})"),
    (rf"mbarrier\.arrive(?:\.release|\.relaxed)?{_ANY_PLACE}", "u64 @ ?u32", "P::arrive({a}, 0, {b}, __LINE__)"),
    (
        rf"mbarrier\.arrive\.expect_tx(?:\.release|\.relaxed)?{_ANY_PLACE}",
        "u64 @ u32",
        "P::arrive({a}, {b}, 1, __LINE__)",
    ),
    (rf"mbarrier\.expect_tx(?:\.relaxed)?{_ANY_PLACE}", "@ u32", "P::arrive({a}, {b}, 0, __LINE__)"),
    (rf"{_ENDED}\.parity(?:\.acquire)?{_PLACE}", "pred @ u32 ?u32", "P::has_completed({a}, {b} & 1, __LINE__)"),
    (rf"{_ENDED}(?:\.acquire)?{_PLACE}", "pred @ u64 ?u32", "P::has_completed({a}, {b} >> 63, __LINE__)"),
)

_TENSOR = r"cp\.async\.bulk\.tensor\.(?P<rank>[12345])d"
_HINT = r"(?:\.L2::cache_hint)?"
_rows(
    "tensor maps: cp.async.bulk.tensor, prefetch, fence.proxy.tensormap",
    (
        rf"{_TENSOR}\.shared::(?:cluster|cta)\.global(?:\.tile)?\.mbarrier::complete_tx::bytes{_HINT}",
        "@ # @ ?u64",
        "P::load_box<{rank}>({a}, {b}, {c}, __LINE__)",
    ),
    (
        rf"{_TENSOR}\.shared::cluster\.global(?:\.tile)?\.mbarrier::complete_tx::bytes\.multicast::cluster{_HINT}",
        "@ # @ u16 ?u64",
        "P::share_box<{rank}>({a}, {b}, {c}, {d}, __LINE__)",
    ),
    (
        rf"{_TENSOR}\.global\.shared::cta(?:\.tile)?\.bulk_group{_HINT}",
        "# @ ?u64",
        "P::store_box<{rank}>({a}, {b}, __LINE__)",
    ),
    (rf"cp\.async\.bulk\.prefetch\.tensor\.[12345]d\.L2\.global(?:\.tile)?{_HINT}", "# ?u64", "static_cast<void>({a})"),
    (rf"cp\.async\.bulk\.prefetch\.L2\.global{_HINT}", "@ u32 ?u64", "static_cast<void>({a})"),
    (r"prefetch(?:\.param|\.const)?\.tensormap", "@", "static_cast<void>({a})"),
    (r"fence\.proxy\.tensormap::generic\.release\.(?:cta|cluster|gpu|sys)", "", "::cuemu::fence(true)"),
    (r"fence\.proxy\.tensormap::generic\.acquire\.(?:cta|cluster|gpu|sys)", "@ u32", "::cuemu::fence(true)"),
)

_8x8 = r"\.sync\.aligned\.m8n8\.x(?P<count>[124])(?P<trans>\.trans)?\.shared(?:::cta)?\.b16"
#: Shape, then factors, then sums of mma.sync.
_PRODUCTS = (
    ((16, 8, 8), ("f16.f16", "bf16.bf16", "tf32.tf32"), ("f32",)),
    ((16, 8, 16), ("f16.f16", "bf16.bf16"), ("f32",)),
    ((16, 8, 8), ("f16.f16",), ("f16",)),
    ((16, 8, 16), ("f16.f16",), ("f16",)),
    ((16, 8, 4), ("tf32.tf32",), ("f32",)),
    ((16, 8, 32), ("e4m3.e4m3", "e4m3.e5m2", "e5m2.e4m3", "e5m2.e5m2"), ("f32",)),
    ((8, 8, 4), ("f64.f64",), ("f64",)),
    *((shape, ("s8.s8", "s8.u8", "u8.s8", "u8.u8"), ("s32",)) for shape in ((8, 8, 16), (16, 8, 16), (16, 8, 32))),
)
_ELEMENT = {
    "f16": "half", "bf16": "bfloat16", "tf32": "tf32", "f32": "float32", "f64": "float64", "s8": "int8", "u8": "uint8",
    "s32": "int32", "e4m3": "e4m3", "e5m2": "e5m2",
}  # fmt: skip


def _product(shape: tuple[int, int, int], factors: str, total: str) -> tuple[str, str, str]:
    m, n, k = shape
    left, right = factors.split(".")
    elements = ", ".join(f"::cuemu::Element::{_ELEMENT[one]}" for one in (total, left, right, total))
    is_whole = total == "s32"
    saturates = r"(?P<satfinite>\.satfinite)?" if is_whole else ""
    return (
        rf"mma\.sync\.aligned\.m{m}n{n}k{k}\.row\.col{saturates}\.{total}\.{left}\.{right}\.{total}",
        ">* * * *",
        f"P::product<{m}, {n}, {k}, {elements}>({{a}}, {{b}}, {{c}}, {'{satfinite?}' if is_whole else 'false'}, __LINE__)",
    )


_rows(
    "ldmatrix, stmatrix (`m8n8`, `b16`), mma.sync (f16, bf16, tf32, f64, e4m3, e5m2, s8, u8)",
    (rf"ldmatrix{_8x8}", ">* @", "P::load_matrices<{count}, {trans?}>({a}, __LINE__)"),
    (rf"stmatrix{_8x8}", "@ *", "P::store_matrices<{count}, {trans?}>({a}, {b}, __LINE__)"),
    *(_product(shape, one, total) for shape, factors, totals in _PRODUCTS for one in factors for total in totals),
)


_SMALLEST = ("e4m3", "e5m2")
_COLUMNS = "|".join(str(count) for count in range(8, 257, 8))
#: Factors of wgmma with their depth, then their sums. Each multiple of 8 up to 256 is a number of columns.
_WARPGROUP = (
    *(("f16.f16", 16, sums) for sums in ("f32", "f16")),
    ("bf16.bf16", 16, "f32"),
    ("tf32.tf32", 8, "f32"),
    *((f"{left}.{right}", 32, sums) for left in _SMALLEST for right in _SMALLEST for sums in ("f32", "f16")),
    *((f"{left}.{right}", 32, "s32") for left in ("s8", "u8") for right in ("s8", "u8")),
)


def _warpgroup_product(factors: str, depth: int, sums: str) -> tuple[str, str, str]:
    left, right = factors.split(".")
    elements = ", ".join(f"::cuemu::Element::{_ELEMENT[one]}" for one in (sums, left, right))
    is_whole, is_half = sums == "s32", depth == 16
    scales = "1, 1" if is_whole else "{e}, {f}"
    saturates = r"(?P<satfinite>\.satfinite)?" if is_whole else ""
    return (
        rf"wgmma\.mma_async\.sync\.aligned\.m64n(?P<columns>{_COLUMNS})k{depth}"
        rf"{saturates}\.{sums}\.{left}\.{right}",
        f"+* * u64 pred{'' if is_whole else ' s32 s32'}{' u32 ?u32' if is_half else ''}",
        f"P::warpgroup_product<{{columns}}, {depth}, {elements}>({{a}}, {{b}}, {{c}}, {{d}}, {scales}, "
        f"{'{g}, {h}' if is_half else '0, 0'}, {'{satfinite?}' if is_whole else 'false'}, __LINE__)",
    )


_rows(
    "wgmma: fence, mma_async (f16, bf16, tf32, e4m3, e5m2, s8, u8), commit_group, wait_group",
    (r"wgmma\.fence\.sync\.aligned", "", "::cuemu::fence_registers()"),
    (r"wgmma\.commit_group\.sync\.aligned", "", "::cuemu::commit_products()"),
    (r"wgmma\.wait_group\.sync\.aligned", "- u32", "::cuemu::wait_for_products({a}, __LINE__)"),
    *(_warpgroup_product(*one) for one in _WARPGROUP),
)
