"""The rules about Python: what a program imports, reaches outside its call, and replaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from harness.scanning.program import Program, arguments, literal

Seen = Iterator[tuple[ast.AST, str]]


class Detector(NamedTuple):
    """A rule's check for nodes of some types.

    Attributes:
        rule: The rule's name.
        types: The types of nodes to check.
        look: Yields the nodes that match the rule, each with a description.
    """

    rule: str
    types: tuple[type[ast.AST], ...]
    look: Callable[[Program, Any], Seen]


def _computed_code(program: Program, node: ast.Call) -> Seen:
    if (name := program.builtin(node.func)) in ("exec", "eval", "compile"):
        yield node, f"{name}(...)"


def _computed_names(program: Program, node: ast.Call) -> Seen:
    name = program.builtin(node.func) or program.dotted(node.func)
    if name in ("__import__", "importlib.import_module") and node.args and literal(node.args[0]) is None:
        yield node, f"{name}(...)"
    elif name.startswith(("importlib.util.", "importlib.machinery.", "runpy.")):
        yield node, name
    elif name == "getattr" and len(node.args) > 1 and literal(node.args[1]) is None:
        owner = program.dotted(node.args[0])
        if owner and not owner.startswith("torch.ops"):
            yield node, f"getattr({owner}, ...)"


_MODULES = {
    "encoded-data": ("base64", "binascii", "zlib", "gzip", "bz2", "lzma", "marshal", "pickle", "cloudpickle", "dill",
                     "codecs", "quopri", "uu", "shelve"),
    "foreign-functions": ("ctypes", "cffi", "_ctypes"),
    "processes": ("subprocess", "pty", "pexpect"),
    "network": ("socket", "ssl", "urllib", "urllib3", "http", "requests", "httpx", "aiohttp", "ftplib", "smtplib",
                "xmlrpc", "socketserver", "telnetlib", "huggingface_hub"),
    "threads": ("threading", "_thread", "multiprocessing", "concurrent", "torch.multiprocessing"),
    "handlers": ("signal", "atexit", "faulthandler"),
    "packages": ("pip", "ensurepip"),
}  # fmt: skip
_RULE_OF_MODULE = {module: rule for rule, modules in _MODULES.items() for module in modules}


def _import_detector(rule: str) -> Detector:
    def look(program: Program, node: ast.Import | ast.ImportFrom | ast.Call) -> Seen:
        for module in _imported(program, node):
            if any(_RULE_OF_MODULE.get(name) == rule for name in (module.partition(".")[0], module)):
                yield node, f"import {module}"

    return Detector(rule, (ast.Import, ast.ImportFrom, ast.Call), look)


def _imported(program: Program, node: ast.Import | ast.ImportFrom | ast.Call) -> list[str]:
    """Returns the modules that a statement, or a call with a literal name, imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return [f"torch.{alias.name}" for alias in node.names] if module == "torch" else [module]
    name = program.builtin(node.func) or program.dotted(node.func)
    named = literal(node.args[0]) if node.args and name in ("__import__", "importlib.import_module") else None
    return [named] if named else []


_PROCESS_CALLS = re.compile(
    r"os\.(?:system|popen|startfile|abort|_exit|kill|killpg|fork|forkpty|setsid|ptrace|(?:exec|spawn|posix_spawn)\w*)"
)


def _processes(program: Program, node: ast.Call) -> Seen:
    if _PROCESS_CALLS.fullmatch(name := program.dotted(node.func)):
        yield node, f"{name}(...)"


def _network(program: Program, node: ast.Call) -> Seen:
    if (name := program.dotted(node.func)).startswith(("torch.hub.", "torch.distributed.")):
        yield node, f"{name}(...)"


def _packages(program: Program, node: ast.Call) -> Seen:
    words: list[ast.expr] = []
    for argument in arguments(node):
        words += argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
    texts = [text for word in words if (text := literal(word)) is not None and len(text) < 1000]
    if "pip" in texts or any(re.search(r"\b(?:pip3?|conda|apt(?:-get)?) install\b", text) for text in texts):
        yield node, "a command that installs"


def _handlers(program: Program, node: ast.Call | ast.FunctionDef) -> Seen:
    if isinstance(node, ast.FunctionDef):
        if node.name == "__del__":
            yield node, "__del__"
    elif (name := program.dotted(node.func)) in ("weakref.finalize", "sys.settrace", "sys.setprofile"):
        yield node, f"{name}(...)"


_CHANGES = ("update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__")


def _environment(program: Program, node: ast.AST) -> Seen:
    if isinstance(node, ast.Subscript):
        if isinstance(node.ctx, ast.Store | ast.Del) and program.dotted(node.value) == "os.environ":
            yield node, f"os.environ[{literal(node.slice) or '...'}]"
    elif isinstance(node, ast.Call):
        name = program.dotted(node.func)
        if name in ("os.putenv", "os.unsetenv") or (
            name.startswith("os.environ.") and name.rpartition(".")[2] in _CHANGES
        ):
            yield node, f"{name}(...)"


_OUTSIDE = re.compile(r"(?:/(?:proc|sys|dev|etc|tmp|home|root|usr|var|opt|mnt|run|srv|bin|lib|lib64)(?:/\S*)?|~/\S*)")
_TOOLKIT = re.compile(r"/(?:usr/local|opt|usr/lib|usr/include)/(?:cuda|nvidia)\S*|/dev/null|/usr/bin/nvcc")


def _outside_paths(program: Program, node: ast.Constant) -> Seen:
    text = literal(node)
    if text is None or len(text) > 1000 or isinstance(program.parents.get(node), ast.Expr):
        return
    if _OUTSIDE.fullmatch(text.strip()) and not _TOOLKIT.fullmatch(text.strip()):
        yield node, text.strip()


_FINDER_NAMES = """
    sys.modules sys._getframe sys._current_frames gc.get_objects gc.get_referrers gc.get_referents gc.garbage
    inspect.stack inspect.currentframe inspect.trace inspect.getouterframes inspect.getinnerframes inspect.getmembers
    sys._current_exceptions os.getppid
"""
_FINDERS = frozenset(_FINDER_NAMES.split())
_FRAME_ATTRIBUTES = ("f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "__subclasses__", "__globals__",
                     "__closure__", "cell_contents")  # fmt: skip


def _introspection(program: Program, node: ast.Attribute | ast.Name) -> Seen:
    if isinstance(node.ctx, ast.Load):
        if (name := program.dotted(node)) in _FINDERS:
            yield node, name
        elif isinstance(node, ast.Attribute) and node.attr in _FRAME_ATTRIBUTES:
            yield node, node.attr


def is_setting(name: str) -> bool:
    """Tells whether a name is one of torch's own switches."""
    return name.startswith("torch.backends.")


def _patching(program: Program, node: ast.AST) -> Seen:
    if isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Store | ast.Del):
            name = program.dotted(node)
            if name and not is_setting(name):
                yield node, name
    elif isinstance(node, ast.Subscript):
        if isinstance(node.ctx, ast.Store | ast.Del) and (name := _members_of(program, node.value)):
            yield node, name
    elif isinstance(node, ast.Call):
        called = program.builtin(node.func)
        if called in ("setattr", "delattr") and node.args and (name := program.dotted(node.args[0])):
            yield node, f"{called}({name}, ...)"
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            name = _members_of(program, node.func.value)
            yield from [(node, name)] if name else []


def _members_of(program: Program, node: ast.AST) -> str:
    """Returns the owner of a dictionary of members, a module or a class.

    Empty for anything else.
    """
    if isinstance(node, ast.Name) and node.id == "__builtins__":
        return "__builtins__"
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return program.dotted(node.value)
    if isinstance(node, ast.Call) and program.builtin(node.func) == "vars" and node.args:
        return program.dotted(node.args[0])
    return "sys.modules" if program.dotted(node) == "sys.modules" else ""


DETECTORS = (
    Detector("computed-code", (ast.Call,), _computed_code),
    Detector("computed-names", (ast.Call,), _computed_names),
    *(_import_detector(rule) for rule in dict.fromkeys(_RULE_OF_MODULE.values())),
    Detector("processes", (ast.Call,), _processes),
    Detector("network", (ast.Call,), _network),
    Detector("packages", (ast.Call,), _packages),
    Detector("handlers", (ast.Call, ast.FunctionDef), _handlers),
    Detector("environment", (ast.Subscript, ast.Call), _environment),
    Detector("outside-paths", (ast.Constant,), _outside_paths),
    Detector("introspection", (ast.Attribute, ast.Name), _introspection),
    Detector("patching", (ast.Attribute, ast.Subscript, ast.Call), _patching),
)
