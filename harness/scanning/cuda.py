"""The rules about C++ and CUDA. They work on tokens, including the bodies of macros."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from harness.emulator.lexer import Kind, tokenize
from harness.scanning.literals import Located
from harness.scanning.rules import Hit

#: The limit for all sources together, each text counted once.
MOST_CHARACTERS = 1 << 19
#: The limit for characters that the lexer reads again. An unclosed raw string makes it read the
#: rest of the text, each time one begins. An unclosed quote in a preprocessor line makes it read
#: the rest of that line.
_MOST_LOOKED_AT = 20_000_000


class MeaningfulToken(NamedTuple):
    """A token that is neither blank nor comment.

    Attributes:
        kind: The token's kind.
        text: The token's text.
        line: The solution's line.
        in_macro: Whether the token lies in a macro's body.
    """

    kind: Kind
    text: str
    line: int
    in_macro: bool


_INCLUDE = re.compile(r"#\s*include(?:_next)?\s*(?:[<\"]([^>\"\n]*)|(\S+))")
_DEFINE = re.compile(r"#\s*define\s+\w+(?:\([^)\n]{0,2000}\))?")


def pieces(source: Located) -> Iterator[MeaningfulToken]:
    """Yields the tokens of a text without blanks and comments.

    A preprocessor line comes first, then the tokens of its macro.
    """
    row = 0
    for token in tokenize(source.text):
        line = source.lines[row]
        if token.is_code:
            yield MeaningfulToken(token.kind, token.text, line, False)
        elif token.kind is Kind.DIRECTIVE:
            yield MeaningfulToken(token.kind, token.text, line, False)
            if head := _DEFINE.match(token.text):
                inner = row + head.group(0).count("\n")
                for one in tokenize(token.text[head.end() :], directives=False):
                    if one.is_code:
                        yield MeaningfulToken(one.kind, one.text, source.lines[inner], True)
                    inner += one.text.count("\n")
        row += token.text.count("\n")


def too_long(text: str) -> bool:
    """Tells whether a text exceeds the scan's limit, or would keep the lexer busy for long."""
    raw_strings = text.count('R"') * len(text)
    lines = text.replace("\\\n", "").replace("\\\r\n", "").split("\n")
    quotes = sum(len(line) * (line.count('"') + line.count("'")) for line in lines)
    return len(text) > MOST_CHARACTERS or raw_strings + quotes > _MOST_LOOKED_AT


class _Kernels(NamedTuple):
    """The kernels in all sources: where each is defined, and how often each name occurs."""

    defined: dict[str, int]
    mentions: dict[str, int]


def cuda_hits(sources: Sequence[Located], named: Callable[[str], bool]) -> Iterator[Hit]:
    """Yields the hits of the rules in a solution's C++ and CUDA texts.

    Args:
        sources: The texts.
        named: A function that tells whether a Python string of the solution equals a name.
    """
    kernels = _Kernels({}, {})
    for source in sources:
        tokens = list(pieces(source))
        for index, piece in enumerate(tokens):
            yield from _token_hits(tokens, index, piece)
        yield from _read_hits(tokens)
        yield from _body_hits(tokens, kernels)
    for name, line in kernels.defined.items():
        if not kernels.mentions.get(name) and not named(name):
            yield Hit(line, "unlaunched-kernel", name)


def _token_hits(tokens: Sequence[MeaningfulToken], index: int, piece: MeaningfulToken) -> Iterator[Hit]:
    if piece.kind is Kind.NAME and "##" in piece.text:
        parts = [part.strip() for part in piece.text.split("##")]
        yield Hit(piece.line, "token-pasting", " ## ".join(parts))
        yield from (Hit(piece.line, rule, part) for part in parts if (rule := _rule_of(part)))
    elif piece.kind is Kind.NAME:
        if rule := _rule_of(piece.text):
            yield Hit(piece.line, rule, piece.text)
        elif piece.text in _CALLS and _is_free_call(tokens, index):
            yield Hit(piece.line, _CALLS[piece.text], f"{piece.text}(...)")
        elif _text(tokens, index - 1) == "::":
            name = f"{_text(tokens, index - 2)}::{piece.text}"
            if name in _QUALIFIED:
                yield Hit(piece.line, _QUALIFIED[name], name)
        elif piece.text == "half" and _is_type(tokens, index):
            yield Hit(piece.line, "low-precision", "half")
    elif piece.kind is Kind.STRING:
        for words, rule in _ASSEMBLY:
            if words in piece.text and _is_assembly(tokens, index):
                yield Hit(piece.line, rule, words)
    elif piece.kind is Kind.DIRECTIVE:
        yield from _directive_hits(piece)
    elif piece.text == "##" and _text(tokens, index + 1) != "__VA_ARGS__":
        yield Hit(piece.line, "token-pasting", f"{_text(tokens, index - 1)} ## {_text(tokens, index + 1)}")


def _rule_of(name: str) -> str:
    """Returns the rule for a name, or for all names with its prefix; empty if there is none."""
    if name in _NAMES:
        return _NAMES[name]
    if not name.startswith(tuple(_FAMILIES)):
        return ""
    return next(rule for prefix, rule in _FAMILIES.items() if name.startswith(prefix))


def _directive_hits(piece: MeaningfulToken) -> Iterator[Hit]:
    if include := _INCLUDE.match(piece.text):
        path = include.group(1)
        if path is None or path.startswith("/") or ".." in path or ":" in path:
            yield Hit(piece.line, "include-path", f"#include {path or include.group(2)}")
        elif path in _LOW_PRECISION_HEADERS:
            yield Hit(piece.line, "low-precision", f"#include <{path}>")


def _body_hits(tokens: Sequence[MeaningfulToken], kernels: _Kernels) -> Iterator[Hit]:
    """Yields the hits in the bodies of device functions, in one pass over the text."""
    depth = 0
    pending: MeaningfulToken | None = (
        # The __global__ or __device__ whose body has not begun; later the function's name.
        None
    )
    is_kernel = False
    name = ""
    # The depth of the current device function's body.
    body = None
    for index, piece in enumerate(tokens):
        text = piece.text
        if piece.kind is Kind.NAME and not (is_kernel and pending and not name and _names_kernel(tokens, index)):
            kernels.mentions[text] = kernels.mentions.get(text, 0) + 1
        if piece.in_macro or piece.kind is Kind.DIRECTIVE:
            continue
        if text in ("__global__", "__device__") and body is None:
            is_kernel = text == "__global__" or (pending is not None and is_kernel)
            pending, name = piece, ""
        elif pending and not name and _names_kernel(tokens, index):
            pending, name = piece, text
        elif text == "{":
            depth += 1
            if pending and body is None:
                body = depth
                if is_kernel and name:
                    kernels.defined.setdefault(name, pending.line)
                    if _text(tokens, index + 1) == "}":
                        yield Hit(pending.line, "empty-kernel", name)
                pending, is_kernel = None, False
        elif text == "}":
            if body == depth:
                body = None
            depth -= 1
        elif text == ";" and pending:
            pending, is_kernel = None, False
        elif text == "printf" and body is not None:
            yield Hit(piece.line, "device-printing", "printf(...)")


def _names_kernel(tokens: Sequence[MeaningfulToken], index: int) -> bool:
    """Tells whether a token is the name of the function that the text declares here."""
    piece = tokens[index]
    return piece.kind is Kind.NAME and piece.text not in _ATTRIBUTES and _text(tokens, index + 1) == "("


def _text(tokens: Sequence[MeaningfulToken], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


def _is_free_call(tokens: Sequence[MeaningfulToken], index: int) -> bool:
    """Tells whether a name is called as a system function: no member and no declaration."""
    if _text(tokens, index + 1) != "(":
        return False
    before = _text(tokens, index - 1)
    if before == "::":
        return _text(tokens, index - 2) == "std" or tokens[index - 2].kind is not Kind.NAME
    if before in (".", "->", "*", "&", ">"):
        return False
    return index == 0 or tokens[index - 1].kind is not Kind.NAME or before in ("return", "else", "do", "throw")


def _read_hits(tokens: Sequence[MeaningfulToken]) -> Iterator[Hit]:
    """Yields a hit where host code reads a tensor where it takes its pointer.

    ``x.data_ptr<float>()[0]`` and ``*x.data_ptr<float>()`` do, unless ``x`` is set to something on the CPU.
    """
    on_cpu: set[str] = set()
    found: list[tuple[str, Hit]] = []
    words, names = set[str](), set[str]()  # of a statement
    for index, piece in enumerate(tokens):
        words.add(piece.text)
        if piece.text == ";":
            is_made_there = not words.isdisjoint(_FACTORIES) and words.isdisjoint(_PLACES)
            on_cpu |= names if is_made_there or not words.isdisjoint(_ON_CPU) else set()
            words, names = set(), set()
        elif piece.kind is Kind.NAME and _text(tokens, index + 1) in ("=", "("):
            names.add(piece.text)
        elif piece.text in _POINTERS and _is_read(tokens, index):
            name = _text(tokens, index - 2)
            found.append((name, Hit(piece.line, "host-read", f"{name}.{piece.text}")))
    yield from (hit for name, hit in found if name not in on_cpu)


def _is_read(tokens: Sequence[MeaningfulToken], index: int) -> bool:
    """Tells whether what a member function of a name returns here is dereferenced or indexed."""
    if _text(tokens, index - 1) != "." or tokens[index - 2].kind is not Kind.NAME:
        return False
    after = index + 1
    if _text(tokens, after) == "<":
        after = 1 + next((at for at in range(after, after + 8) if _text(tokens, at) == ">"), after)
    is_indexed = [_text(tokens, after + more) for more in range(3)] == ["(", ")", "["]
    return is_indexed or _text(tokens, index - 3) == "*"


def _is_type(tokens: Sequence[MeaningfulToken], index: int) -> bool:
    """Tells whether ``half`` is the type and not a variable of that name."""
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if after is None or _text(tokens, index - 1) in (".", "->", "::"):
        return False
    return (
        after.kind is Kind.NAME
        or _text(tokens, index - 1) == "const"
        or (_text(tokens, index - 1) == "<" and after.text in (">", ","))
    )


def _is_assembly(tokens: Sequence[MeaningfulToken], index: int) -> bool:
    """Tells whether a string belongs to an ``asm`` statement that starts a few tokens before."""
    return any(tokens[one].text in _ASM for one in range(max(0, index - 40), index))


_ASM = ("asm", "__asm__", "__asm")
_POINTERS = ("data_ptr", "const_data_ptr", "mutable_data_ptr")
_ON_CPU = {"cpu", "is_cpu", "kCPU", "CPU", '"cpu"'}
_FACTORIES = {"empty", "zeros", "ones", "full", "tensor", "arange", "linspace", "rand", "randn", "from_blob"}
_PLACES = {"options", "device", "kCUDA", "CUDA"}
_ATTRIBUTES = ("__launch_bounds__", "__attribute__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__align__")
_LOW_PRECISION_HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_fp4.h", "cuda_fp6.h", "mma.h")

_NAMES_OF = {
    "inline-assembly": _ASM,
    "low-precision": ("__half", "__half2", "half2", "__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16", "nv_bfloat162",
                      "wmma", "__float_to_tf32"),
    "streams": ("getStreamFromPool", "getStreamFromExternal", "cudaStreamNonBlocking", "cudaStreamPerThread",
                "cuStreamCreate", "cuStreamCreateWithPriority"),
    "graphs": ("cudaStreamBeginCapture", "cudaGraphLaunch", "CUDAGraph"),
    "shared-device-memory": ("cudaMallocManaged", "cudaHostRegister", "cudaMallocHost", "cudaHostAlloc", "__managed__",
                             "cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cudaDeviceEnablePeerAccess",
                             "cuMemAllocManaged", "cuMemImportFromShareableHandle"),
    "device-clock": ("clock64", "globaltimer", "__globaltimer"),
    "device-sleep": ("__nanosleep",),
    "l2-persistence": ("accessPolicyWindow", "cudaLimitPersistingL2CacheSize", "cudaAccessPropertyPersisting"),
    "threads": ("pthread_create",),
    "host-files": ("ifstream", "ofstream", "fstream"),
}  # fmt: skip
_FAMILIES = {
    "cudaStreamCreate": "streams",
    "cudaIpc": "shared-device-memory",
    "cuIpc": "shared-device-memory",
    "__nv_fp8": "low-precision",
    "__nv_fp4": "low-precision",
}
_QUALIFIED = {
    **{f"std::{name}": "threads" for name in ("thread", "jthread", "async")},
    **{f"{space}::{name}": "low-precision" for space in ("at", "c10", "torch") for name in ("Half", "BFloat16")},
}
_CALLS_OF = {
    "processes": ("system", "popen", "fork", "vfork", "execl", "execle", "execlp", "execv", "execve", "execvp",
                  "execvpe", "posix_spawn", "posix_spawnp", "kill", "ptrace", "_exit"),
    "foreign-functions": ("dlopen", "dlsym", "dlmopen"),
    "host-files": ("open", "openat", "fopen", "freopen", "mmap", "shm_open", "memfd_create"),
    "introspection": ("process_vm_readv", "process_vm_writev"),
    "network": ("socket", "connect", "sendto"),
    "handlers": ("signal", "sigaction", "atexit"),
    "environment": ("setenv", "putenv", "unsetenv"),
    "device-clock": ("clock",),
}  # fmt: skip
_NAMES = {name: rule for rule, names in _NAMES_OF.items() for name in names}
_CALLS = {name: rule for rule, names in _CALLS_OF.items() for name in names}
_ASSEMBLY = (
    ("globaltimer", "device-clock"),
    ("%clock", "device-clock"),
    ("nanosleep", "device-sleep"),
    ("evict_last", "l2-persistence"),
    (".tf32", "low-precision"),
    (".bf16", "low-precision"),
    (".f16", "low-precision"),
)
