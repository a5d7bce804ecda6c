"""Rewrites kernels whose threads never wait for each other into loops over the threads of a block.

Such a kernel needs no fiber for each CUDA thread. With the loop around its body
(``cuemu/threads.h``) the compiler sees ``threadIdx`` change by one in each iteration. So it can run
several threads in one vector.

The module leaves a kernel unchanged if it cannot prove that no thread waits. That kernel is as
correct, only slower. Every function that a kernel calls, directly or not, must be defined in the
same text or be known here. So a barrier that a header hides cannot go unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harness.emulator.compiler import INCLUDE
from harness.emulator.lexer import Kind, Token, tokenize
from harness.emulator.shared_memory import Scopes
from harness.emulator.syntax import Code, names_in
from harness.emulator.waits import declares_volatile

_BEGIN = "CUEMU_EACH_THREAD_BEGIN"
_END = "CUEMU_EACH_THREAD_END"
# The variable that stores the current thread's index for the functions that the kernel calls.
_PUBLISHED_INDEX = "cuemu_thread_index"

_LOOPS = frozenset({"for", "while", "do", "goto"})
_TYPES = frozenset(
    {
        *("bool", "char", "short", "int", "long", "unsigned", "signed", "float", "double", "size_t", "ptrdiff_t"),
        *("half", "half2", "__half", "__half2", "nv_bfloat16", "nv_bfloat162", "__nv_bfloat16", "__nv_bfloat162"),
        *("dim3", "uint3", "BFloat16", "Half"),
        *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast", "bit_cast"})
_KEYWORDS = frozenset(
    {
        *("if", "switch", "return", "sizeof", "alignof", "decltype", "static_assert", "constexpr", "else", "case"),
        *(
            "__builtin_expect",
            "__builtin_assume",
            "__builtin_assume_aligned",
            "__launch_bounds__",
            "__align__",
            "alignas",
            "__attribute__",
        ),
    }
)
# Words that are not the type of a declaration if they precede a name and a parenthesis.
_STATEMENTS = frozenset(
    {"return", "else", "do", "case", "goto", "throw", "new", "delete", "constexpr", "operator", "and", "or", "not"}
)
# Functions of the mathematical library, without the suffix of their type.
_MATH = frozenset(
    {
        *("abs", "labs", "llabs", "fabs", "sqrt", "cbrt", "rsqrt", "rcbrt", "exp", "exp2", "exp10", "expm1", "log"),
        *("log2", "log10", "log1p", "logb", "ilogb", "pow", "hypot", "sin", "cos", "tan", "asin", "acos", "atan"),
        *("atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sinpi", "cospi", "sincos", "sincospi", "erf"),
        *("erfc", "erfcx", "erfinv", "erfcinv", "normcdf", "normcdfinv", "lgamma", "tgamma", "fma", "fmin", "fmax"),
        *("fmod", "fdim", "remainder", "floor", "ceil", "trunc", "round", "rint", "nearbyint", "lround", "llround"),
        *("lrint", "llrint", "ldexp", "scalbn", "frexp", "modf", "copysign", "nextafter", "isnan", "isinf"),
        *("isfinite", "signbit", "fdivide", "saturate", "min", "max", "umin", "umax", "llmin", "llmax", "rhypot"),
        *(
            "norm3d",
            "norm4d",
            "rnorm3d",
            "rnorm4d",
            "norm",
            "rnorm",
            "cyl_bessel_i0",
            "cyl_bessel_i1",
            "ullmin",
            "ullmax",
        ),
    }
)
# Of these, the single-precision functions that the emulator has without a call.
_INLINED = frozenset({"fminf", "fmaxf"})
# Functions of the standard library that compute a value from values.
_STANDARD = frozenset({"lowest", "infinity", "quiet_NaN", "epsilon", "denorm_min", "move", "forward", "swap", "clamp"})
_INTRINSIC = re.compile(
    r"make_\w+"
    r"|__(u?mul(24|hi|64hi)|u?sad|u?r?hadd|popc|popcll|clz|clzll|ffs|ffsll|brev|brevll|byte_perm|funnelshift_\w+|dp4a|dp2a_\w+|fns)"
    r"|__v\w+[24]|__vi\w+_(s32|u32|s16x2|u16x2)(_relu)?|__nv_bswap(16|32|64)|__cvta_\w+|__is(Global|Shared|Local)"
    r"|__(ldg|ldca|ldcg|ldcs|ldlu|stwb|stcg|stcs|stwt)"
    r"|__(fadd|fsub|fmul|fdiv|frcp|fsqrt|frsqrt|fmaf|fmaf_ieee|dadd|dsub|dmul|ddiv|drcp|dsqrt|fma)_r[nzud]"
    r"|__(exp|exp10|log|log2|log10|pow|sin|cos|tan|tanh|fdivide|sincos|saturate)f"
    r"|__\w+_as_\w+"
    r"|__(float|floats|float2|double|half|halves|half2|bfloat16|bfloat162|low|high|lows|highs|int|uint|ll|ull|short|ushort)2\w+"
    r"|__h(b?(eq|ne|gt|ge|lt|le)|add|sub|mul|div|fma|cmadd|neg|abs|max|min|isnan|isinf)\w*"
    r"|h2?(exp|log|sqrt|rsqrt|rcp|sin|cos|tanh|ceil|floor|trunc|rint)\w*"
)
_ATOMIC = re.compile(r"atomic(Add|Sub|Exch|Min|Max|Inc|Dec|And|Or|Xor|CAS)(_block|_system)?")
# Functions whose reports name the current thread.
_ASKING = frozenset({"assert", "__trap"})
_WAITING_CALL = re.compile(
    r"__(sync|shfl|ballot|any|all|match|reduce_|threadfence|pipeline|barrier|uni|cluster)\w*|__activemask|__nanosleep|__ldcv"
    r"|(__)?asm(__)?"
)
# Names that rule out a kernel even if it does not call them: it may pass them to something that
# does.
_WAITING = re.compile(_WAITING_CALL.pattern + "|__shared__|cooperative_groups|nvcuda|wmma|cub|thrust")
_INDICES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
# Words that would mean something else inside a lambda, or could not occur there.
_BOUND_TO_FUNCTION = frozenset({"__func__", "__FUNCTION__", "__PRETTY_FUNCTION__", "struct", "class", "union", "asm"})
_NOT_NAMES = frozenset(
    {
        *("__launch_bounds__", "__cluster_dims__", "__attribute__", "__align__", "alignas", "decltype", "__maxnreg__"),
        *("C10_LAUNCH_BOUNDS_1", "C10_LAUNCH_BOUNDS_2"),
    }
)
_TYPE_INTRODUCERS = frozenset({"struct", "class", "union", "enum", "typename", "using"})
_INCLUDE = re.compile(r"#[ \t]*include[ \t]*(?P<bracket>[<\"]?)(?P<path>[^>\"\s]*)")
_DEFINE = re.compile(r"#[ \t]*define[ \t]+(?P<name>[A-Za-z_]\w*)(?P<parameters>\([^)]*\))?")
_C_HEADERS = frozenset({"float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"})
_TORCH_FOLDERS = ("torch/", "ATen/", "c10/", "pybind11/")


@dataclass
class _Part:
    """A function with a body, or a macro.

    Attributes:
        name: The part's name; ``operator()`` or ``operator`` for operators.
        names: Every name in the part.
        is_known: Whether everything that it calls is defined in the text or known here.
        calls_objects: Whether it calls a variable, and so an ``operator()`` or a lambda of the
            text.
        loops: Whether it has a loop.
        is_atomic: Whether it has atomic operations.
        is_on_device: Whether it is a device function or a macro.
        place: For a function, the positions of its declaration, its parameters, its ``{`` and its
            ``}``.
    """

    name: str
    names: set[str]
    is_known: bool = True
    calls_objects: bool = False
    loops: bool = False
    is_atomic: bool = False
    is_on_device: bool = True
    place: tuple[int, int, int, int] | None = None


@dataclass
class _Text:
    """The definitions in a text.

    Attributes:
        parts: The functions and macros by name.
        types: The names of types and template parameters.
        variables: The names of variables, parameters and members.
        lambdas: The names of local variables that hold lambdas.
        has_device_lambdas: Whether host code may pass kernels a lambda to call.
        has_volatile: Whether it declares something volatile.
    """

    parts: dict[str, list[_Part]] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    lambdas: set[str] = field(default_factory=set)
    has_device_lambdas: bool = False
    has_volatile: bool = False

    def all_parts(self) -> Iterator[_Part]:
        """Yields every function and macro."""
        for parts in self.parts.values():
            yield from parts

    def reached_from(self, start: _Part) -> list[_Part]:
        """Returns the parts that a part names, directly or not; itself if it is recursive."""
        reached: list[_Part] = []
        waiting = [start]
        while waiting:
            for part in self._named_in(waiting.pop()):
                if not any(part is other for other in reached):
                    reached.append(part)
                    waiting.append(part)
        return reached

    def _named_in(self, part: _Part) -> Iterator[_Part]:
        for name in part.names & self.parts.keys():
            yield from self.parts[name]
        # Operators and constructors run without being named. So does the ``operator()`` behind a
        # variable that the code calls like a function.
        implied = {*self.types, "operator", "operator()"} if part.calls_objects else {*self.types, "operator"}
        for name in implied & self.parts.keys():
            yield from (other for other in self.parts[name] if other.is_on_device)


def rewrite_plain_kernels(code: Code) -> None:
    """Puts a loop over the block's threads into every kernel that certainly waits for nothing.

    Call it after the rewriting of ``__shared__``, which marks the functions that have such
    variables.

    Args:
        code: The text of a translation unit.
    """
    if "__global__" not in names_in(code.tokens) or not all(map(_is_known_include, code.tokens)):
        return
    text = _read(code)
    if text is None:
        return
    for part in text.all_parts():
        # A kernel that device code calls, against CUDA's rules, does not run as a whole block.
        if _is_kernel(code, part) and not any(
            part.name in other.names for other in text.all_parts() if other is not part and other.is_on_device
        ):
            _rewrite_kernel(code, part, text)


def _is_kernel(code: Code, part: _Part) -> bool:
    return part.place is not None and "__global__" in names_in(code.span(part.place[0], part.place[1]))


def _rewrite_kernel(code: Code, kernel: _Part, text: _Text) -> None:
    reached = text.reached_from(kernel)
    loop = _loop_of(code, kernel, reached, text)
    if loop is None or kernel.place is None or not _may_become_lambda(code, kernel):
        return
    for part in (kernel, *reached):
        start, _, _, closing = part.place or (0, 0, 0, 0)
        for position in range(start, closing):
            if code.text(position) == "threadIdx" and part is not kernel:
                code.token(position).written = _PUBLISHED_INDEX
            elif code.text(position) in _INLINED and code.text(position - 2) != "std":
                code.token(position).written = f"cuemu_{code.text(position)}"
    _, _, opening, closing = kernel.place
    code.token(opening).written = f"{{ {_BEGIN}({loop})"
    code.token(closing).written = f"{_END} }}"


def _loop_of(code: Code, kernel: _Part, reached: list[_Part], text: _Text) -> str | None:
    """Returns a kernel's loop (``Loop`` in ``cuemu/threads.h``).

    None if a thread may have to wait.
    """
    everything = [kernel, *reached]
    if not all(part.is_known and not _has_shared(code, part) for part in everything):
        return None
    if text.has_device_lambdas and any(part.calls_objects for part in everything):
        return None
    loops = any(part.loops or _is_recursive(part, text) for part in everything)
    is_atomic = any(part.is_atomic for part in everything)
    is_volatile = text.has_volatile or any("volatile" in part.names for part in everything)
    if loops and (is_atomic or is_volatile):
        return None  # it may wait for an action of another thread
    callees = [part for part in reached if part.place is not None]
    if any(part.place is None and "threadIdx" in part.names for one in callees for part in text.reached_from(one)):
        # A macro's text cannot name one variable in the kernel and another in a function it calls.
        return None
    if any("threadIdx" in part.names for part in callees) or any(part.names & _ASKING for part in everything):
        return "published"
    # No compiler exchanges a loop in a thread with the loop over threads, so vectors would gain
    # nothing.
    return "ordered" if loops or is_atomic else "vectors"


def _is_recursive(part: _Part, text: _Text) -> bool:
    return any(part is other for other in text.reached_from(part))


def _has_shared(code: Code, part: _Part) -> bool:
    """Tells whether a function has shared variables, also those that the rewriter moved."""
    return part.place is not None and code.token(part.place[2]).written != "{"


def _is_known_include(token: Token) -> bool:
    """Tells whether a token is harmless: no ``#include``, or one of a known header.

    Everything in such a header that waits is known here by name.
    """
    found = _INCLUDE.match(token.text) if token.kind is Kind.DIRECTIVE else None
    if found is None:
        return True
    path, bracket = found["path"], found["bracket"]
    if bracket and (path.startswith(_TORCH_FOLDERS) or path in _C_HEADERS):
        return True
    if bracket == "<" and re.fullmatch(r"\w+", path):
        return True  # a header of the standard library
    return bool(bracket and path) and ".." not in path and (INCLUDE / path).is_file()


def _read(code: Code) -> _Text | None:
    """Reads the definitions in a text; None if something outside its functions may wait."""
    text = _Text(has_volatile=declares_volatile(code))
    scopes = Scopes(code)
    for position in range(len(code)):
        if code.text(position) in _TYPE_INTRODUCERS and code.is_name(position + 1):
            text.types.add(code.text(position + 1))
        elif code.text(position) == "__device__" and code.text(position - 1) == "]":
            text.has_device_lambdas = True
        elif not _is_declared(code, position):
            continue
        elif code.text(position + 1) != "=" or code.text(position + 2) != "[":
            text.variables.add(code.text(position))
        elif scopes.in_function(position):
            text.lambdas.add(code.text(position))
    macros: list[tuple[_Part, Code]] = []
    for token in code.tokens:
        if token.kind is Kind.DIRECTIVE and (found := _DEFINE.match(token.text)):
            body = Code(tokenize(token.text[found.end() :], directives=False))
            macros.append((_Part(found["name"], names_in(body.tokens)), body))
    places = scopes.functions
    functions = [_function(code, *place) for place in places]
    for part in (*(macro for macro, _ in macros), *functions):
        text.parts.setdefault(part.name, []).append(part)
    ends = [0, *(closing for *_, closing in places)]
    starts = [*(header for header, *_ in places), len(code)]
    outside = set[str]().union(*(names_in(code.span(*between)) for between in zip(ends, starts, strict=True)))
    if any(_WAITING_CALL.fullmatch(name) or _ATOMIC.fullmatch(name) for name in outside):
        return None
    for macro, body in macros:
        _examine(body, 0, len(body), macro, text)
    for function in functions:
        _, parameters, _, closing = function.place or (0, 0, 0, 0)
        _examine(code, parameters, closing, function, text)
    return text


def _function(code: Code, header: int, opening: int, closing: int) -> _Part:
    parameters = header
    name = ""
    for position in range(header, opening):
        if code.text(position) == "operator":
            is_call = code.text(position + 1) == "(" and code.text(position + 2) == ")"
            name, parameters = "operator()" if is_call else "operator", position
            break
        if code.text(position) == "(" and code.is_name(position - 1) and code.text(position - 1) not in _NOT_NAMES:
            name, parameters = code.text(position - 1), position
            break
    own = names_in(code.span(parameters, closing))
    is_on_device = not names_in(code.span(header, opening)).isdisjoint({"__global__", "__device__", "constexpr"})
    return _Part(name, own, is_on_device=is_on_device, place=(header, parameters, opening, closing))


def _examine(code: Code, start: int, stop: int, part: _Part, text: _Text) -> None:
    """Finds out whether a part loops, has atomic operations, or calls something unknown."""
    part.loops = bool(part.names & _LOOPS)
    part.is_atomic = any(map(_ATOMIC.fullmatch, part.names))
    if any(map(_WAITING.fullmatch, part.names)):
        part.is_known = False
        return
    for position in range(start, stop):
        if _is_called(code, position) and not _is_known_call(code, position, text):
            part.calls_objects = part.calls_objects or code.text(position) in text.variables
            part.is_known = part.is_known and code.text(position) in text.variables | text.lambdas


def _is_declared(code: Code, position: int) -> bool:
    """Tells whether the name at a position may declare a variable, a parameter or a member."""
    return (
        code.is_name(position)
        and code.text(position + 1) in (",", ")", "=", ";", "{", "[")
        and (code.text(position - 1) in ("&", "&&", "*") or _is_type(code, position - 1))
    )


def _is_type(code: Code, position: int) -> bool:
    """Tells whether the name at a position may be the type of what follows."""
    return code.is_name(position) and code.text(position) not in _STATEMENTS


def _is_called(code: Code, position: int) -> bool:
    if not code.is_name(position):
        return False
    if code.text(position + 1) == "(":
        return True
    closing = code.angle_close(position + 1) if code.text(position + 1) == "<" else None
    return closing is not None and code.text(closing + 1) == "("


def _is_known_call(code: Code, position: int, text: _Text) -> bool:
    name = code.text(position)
    if name in text.parts or name in text.types:
        return True
    if name in _KEYWORDS or name in _LOOPS or name in _TYPES or name in _CASTS or name in _ASKING:
        return True
    if code.text(position + 1) == "(" and _is_type(code, position - 1) and code.text(position - 1) not in text.parts:
        return True  # a variable with its initializer
    if name in _MATH or name.removesuffix("f") in _MATH or name in _STANDARD or name == "printf":
        return True
    return _INTRINSIC.fullmatch(name) is not None or _ATOMIC.fullmatch(name) is not None


def _may_become_lambda(code: Code, kernel: _Part) -> bool:
    """Tells whether a kernel's body means the same in a lambda with copied parameters."""
    _, parameters, opening, closing = kernel.place or (0, 0, 0, 0)
    end = code.close_of(parameters)
    if end is None or code.text(closing) != "}" or kernel.names & _BOUND_TO_FUNCTION:
        return False
    if any(code.text(position) in ("&", "&&", "[") for position in range(parameters, end)):
        return False
    for position in range(opening, closing):
        if code.text(position) in _INDICES and code.text(position - 1) == "::":
            return False
        if code.text(position) == "[" and not _may_stay(code, position):
            return False
    return _has_whole_conditions(code.span(opening, closing))


def _may_stay(code: Code, position: int) -> bool:
    """Tells whether a bracket opens an index, an attribute, or a capturing lambda."""
    before = code.text(position - 1)
    if before in ("]", ")") or (code.is_name(position - 1) and before not in _STATEMENTS):
        return True
    if "[" in (before, code.text(position + 1)):
        return True
    return code.text(position + 1) in ("&", "=") and code.text(position + 2) == "]"


def _has_whole_conditions(tokens: Iterable[Token]) -> bool:
    """Tells whether every ``#if`` of a span ends in it, and no other ``#if`` branches there."""
    depth = 0
    for token in tokens:
        if token.kind is Kind.DIRECTIVE:
            word = token.text.lstrip("# \t")
            depth += word.startswith("if")
            if depth == 0 and word.startswith(("el", "endif")):
                return False
            depth -= word.startswith("endif")
    return depth == 0
