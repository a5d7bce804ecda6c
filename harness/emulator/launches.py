"""Rewrites kernel launches and runtime calls that name a kernel."""

from __future__ import annotations

from harness.emulator.lexer import line_breaks, quoted
from harness.emulator.syntax import Code, Range, base_name, callee_start, names_in, without_casts

# The position of the kernel among the arguments of each call that names one.
_KERNEL_ARGUMENT = {
    "cudaFuncSetAttribute": ("func_set_attribute", 0),
    "cudaFuncGetAttributes": ("func_get_attributes", 1),
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": ("occupancy_max_active_blocks", 1),
    "cudaOccupancyMaxPotentialBlockSize": ("occupancy_max_potential_block_size", 2),
    "cudaOccupancyMaxActiveClusters": ("occupancy_max_active_clusters", 1),
    "cudaOccupancyMaxPotentialClusterSize": ("occupancy_max_potential_cluster_size", 1),
}

# The same for each call that launches one.
_LAUNCH_CALLS = {
    "cudaLaunchKernel": ("launch_kernel", 0),
    "cudaLaunchCooperativeKernel": ("launch_cooperative_kernel", 0),
    "cudaLaunchKernelEx": ("launch_kernel_ex", 1),
    "cudaLaunchKernelExC": ("launch_kernel_exc", 1),
}

_POINTER_CALLS = {False: _LAUNCH_CALLS.keys() | _KERNEL_ARGUMENT.keys(), True: _LAUNCH_CALLS.keys()}

# What may stand between ``__global__`` and a kernel's name, with parentheses of its own.
_ATTRIBUTES = frozenset(
    {
        *("__launch_bounds__", "__attribute__", "__cluster_dims__", "__block_size__", "__maxnreg__"),
        *("C10_LAUNCH_BOUNDS_1", "C10_LAUNCH_BOUNDS_2"),
    }
)

# Stands for the type of braces whose kernel is a template without written arguments.
_UNTYPED = (
    'decltype([] { static_assert(false, "cuemu-unsupported: braces as an argument of a kernel template: name their '
    'type, as in Sizes{a, b}"); return 0; }())'
)


def may_need_addresses(source: str, is_cuda: bool) -> bool:
    """Tells whether a source may launch or ask about a kernel whose address alone it knows.

    Args:
        source: The source's text.
        is_cuda: Whether it is a CUDA source, whose calls mostly name the kernel.
    """
    return any(call in source for call in _POINTER_CALLS[is_cuda])


class Kernels:
    """The kernels that a text defines, and the variables that stand for one.

    A launch limit set through one name must hold for a launch through the other, so both get the
    kernel's name.
    """

    def __init__(self, code: Code):
        self._defined, self._templates = _defined_kernels(code)
        self._counts = _default_counts(code)
        self._aliases: dict[str, set[str]] = {}
        for position in range(1, len(code) - 1):
            if code.text(position) == "=" and code.is_name(position - 1):
                self._note_alias(code, position)

    def _note_alias(self, code: Code, position: int) -> None:
        stop = position + 1
        while stop < len(code) and code.text(stop) not in (";", "{", "}"):
            stop += 1
        named = names_in(code.span(position + 1, stop)) & self._defined
        if named:
            self._aliases.setdefault(code.text(position - 1), set()).update(named)

    def is_deduced(self, code: Code, start: int, stop: int) -> bool:
        """Tells whether a launched expression is a kernel template without any template arguments."""
        return base_name(code, start, stop) in self._templates and code.text(stop - 1) != ">"

    def identity(self, code: Code, start: int, stop: int) -> str:
        """Returns a launched kernel as a C++ expression of type ``cuemu::Kernel``, or of a type derived from it.

        An instance stays unknown if the launch's arguments may decide about a parameter with a default.
        """
        kernel = code.one_line(start, stop)
        wanted = self._counts.get(base_name(code, start, stop) or "")
        opening = code.angle_open(stop - 1) if wanted is not None and code.text(stop - 1) == ">" else None
        if opening is not None and wanted is not None and len(code.arguments(opening + 1, stop - 1)) < wanted:
            kernel = "nullptr"
        return f"CUEMU_KERNEL({self.name_of(code, start, stop)}, {kernel})"

    def name_of(self, code: Code, start: int, stop: int) -> str:
        """Returns the kernel's name as a C++ expression of type ``const char*``.

        Args:
            code: The text.
            start: The first position of the expression that is launched or passed.
            stop: The position after it.

        Returns:
            A string literal, or ``#parameter`` if a macro's parameter stands for the kernel.
        """
        name = base_name(code, start, stop)
        if name in code.parameters or "##" in name:
            return quoted(name, code.parameters)
        if name not in self._defined:
            stands_for = self._aliases.get(name, set())
            if len(stands_for) == 1:
                name = next(iter(stands_for))
        return f'"{name or "kernel"}"'


def _defined_kernels(code: Code) -> tuple[set[str], set[str]]:
    """Returns every name that directly follows the type of a ``__global__`` declaration.

    The second set holds those whose declaration is a template.
    """
    names: set[str] = set()
    templates: set[str] = set()
    for position in range(len(code)):
        if code.text(position) != "__global__":
            continue
        index = position + 1
        while index < len(code) and code.text(index) not in (";", "{", "}"):
            if code.text(index) == "(":
                if code.is_name(index - 1) and code.text(index - 1) not in _ATTRIBUTES:
                    names.add(code.text(index - 1))
                    if _is_template(code, position):
                        templates.add(code.text(index - 1))
                    break
                closing = code.close_of(index)
                if closing is None:
                    break
                index = closing
            index += 1
    return names, templates


def _default_counts(code: Code) -> dict[str, int]:
    """Returns the most parameters of the kernel templates of each name, if one of them has a default."""
    counts: dict[str, int] = {}
    for position in range(len(code)):
        closing = code.angle_close(position + 1) if code.text(position) == "template" else None
        if closing is None or not any(code.text(index) == "=" for index in range(position, closing)):
            continue
        stop = closing + 1
        while stop < len(code) and code.text(stop) not in (";", "{", "}"):
            stop += 1
        if "__global__" not in names_in(code.span(closing, stop)):
            continue
        name = _kernel_behind(code, closing) or ""
        counts[name] = max(counts.get(name, 0), len(code.arguments(position + 2, closing)))
    return counts


def _is_template(code: Code, position: int) -> bool:
    """Tells whether the declaration around ``__global__`` begins with ``template <...>``."""
    index = position - 1
    while index >= 0 and code.text(index) not in (";", "}"):
        if code.text(index) == "{" or code.text(index) == "template":
            return code.text(index) == "template"
        index -= 1
    return False


def rewrite_clusters(code: Code) -> None:
    """Replaces the ``__cluster_dims__`` of a kernel by a variable whose initialiser notes the cluster.

    Sizes that depend on template parameters stay as they are, and the compiler refuses them.
    """
    for position in range(len(code)):
        closing = code.close_of(position + 1) if code.text(position) == "__cluster_dims__" else None
        start = _declaration_start(code, position)
        name = _kernel_behind(code, closing) if closing is not None else None
        if closing is None or name is None:
            continue
        sizes = code.one_line(position + 2, closing)
        if code.text(start) == "template":
            parameters = code.angle_close(start + 1)
            given = names_in(code.span(position + 2, closing))
            if parameters is None or names_in(code.span(start, parameters)) & given:
                continue
        code.replace(position, closing + 1, "")
        kernel = quoted(name, code.parameters)
        note = f"static const bool cuemu_cluster_{position} = ::cuemu::note_cluster({kernel}, dim3({sizes}));"
        code.token(start).written = f"[[maybe_unused]] {note} {code.token(start).written}"


def _declaration_start(code: Code, position: int) -> int:
    while position > 0 and code.text(position - 1) not in (";", "{", "}"):
        position -= 1
    return position


def _kernel_behind(code: Code, position: int) -> str | None:
    """Returns the name in front of the parameters of a declaration, from a position among its attributes on."""
    for index in range(position + 1, len(code)):
        if code.text(index) in (";", "{", "}"):
            return None
        if code.text(index) == "(" and code.is_name(index - 1) and code.text(index - 1) not in _ATTRIBUTES:
            return code.text(index - 1)
    return None


def rewrite_launches(code: Code, kernels: Kernels) -> None:
    """Rewrites every ``kernel<<<grid, block, shared, stream>>>(arguments)``.

    A malformed launch stays as it is.
    """
    for position in range(len(code)):
        if code.text(position) == "<<<" and code.text(position - 1) != "operator":
            _rewrite_launch(code, position, kernels)


def _rewrite_launch(code: Code, opening: int, kernels: Kernels) -> None:
    start = callee_start(code, opening)
    if start is None:
        return
    closing = _launch_close(code, opening)
    if closing is None:
        return
    arguments_open = closing + 3
    arguments_close = code.close_of(arguments_open)
    if arguments_close is None:
        return
    kernel = code.one_line(start, opening)
    identity = kernels.identity(code, start, opening)
    code.replace(start, opening, f"::cuemu::launch({identity}, __LINE__, ::cuemu::config(")
    code.token(opening).written = ""
    captures = "&"
    if _is_computed(code, start, opening):
        captures, kernel = f"cuemu_kernel = {kernel}", "cuemu_kernel"
    call = f"), [{captures}](auto const&... cuemu_a) {{ {kernel}(cuemu_a...); }})"
    code.replace(closing, closing + 3, call)
    is_deduced = kernels.is_deduced(code, start, opening)
    for first, stop in code.arguments(arguments_open + 1, arguments_close):
        # Where no parameter's type is known, NULL would be a number.
        if stop == first + 1 and code.text(first) == "NULL":
            code.token(first).written = "nullptr"
        # Braces have no type of their own.
        elif is_deduced and code.text(first) == "{" and code.close_of(first) == stop - 1:
            code.token(first).written = f"{_UNTYPED}{{"


def _is_computed(code: Code, start: int, stop: int) -> bool:
    """Tells whether a launched expression is more than a name: the host evaluates it, not each thread."""
    index = start
    while index < stop:
        if code.text(index) == "<":
            index = code.angle_close(index) or stop
        elif code.text(index) in ("[", ".", "->", "*") or (code.text(index) == "(" and index > start):
            return True
        index += 1
    return False


def _launch_close(code: Code, opening: int) -> int | None:
    """Returns the first of the three ``>`` that end a launch configuration.

    A ``(`` must follow them, and at least two arguments must precede them. So the end of nested
    template arguments in the configuration does not match.
    """
    index = opening + 1
    while index < len(code):
        text = code.text(index)
        if text in ("(", "[", "{"):
            after = code.close_of(index)
            if after is None:
                return None
            index = after
        elif text in (")", "]", "}", ";"):
            return None
        elif (
            text == ">"
            and _three_adjacent(code, index)
            and code.text(index + 3) == "("
            and _has_comma(code, opening + 1, index)
        ):
            return index
        index += 1
    return None


def _three_adjacent(code: Code, index: int) -> bool:
    return (
        code.text(index + 1) == ">"
        and code.text(index + 2) == ">"
        and code.adjacent(index)
        and code.adjacent(index + 1)
    )


def _has_comma(code: Code, start: int, stop: int) -> bool:
    """Tells whether a comma stands outside brackets. The function ignores template arguments."""
    index = start
    while index < stop:
        if code.text(index) == ",":
            return True
        if code.text(index) in ("(", "[", "{"):
            closing = code.close_of(index)
            index = stop if closing is None else closing
        index += 1
    return False


def rewrite_kernel_calls(code: Code, kernels: Kernels, in_macro: bool) -> None:
    """Rewrites the runtime calls that take a kernel so that they name it."""
    within = [not in_macro]  # for the text and each open brace, whether it is outside functions
    for position in range(len(code)):
        called = code.text(position)
        if called == "{":
            within.append(_begins_namespace(code, position))
        elif called == "}" and within:
            within.pop()
        if called not in _KERNEL_ARGUMENT and called not in _LAUNCH_CALLS:
            continue
        closing = code.close_of(position + 1) if code.text(position + 1) == "(" else None
        if closing is None:
            continue
        arguments = code.arguments(position + 2, closing)
        if called in _LAUNCH_CALLS:
            _rewrite_launch_call(code, position, arguments, kernels)
            continue
        function, index = _KERNEL_ARGUMENT[called]
        if index < len(arguments) and arguments[index][0] < arguments[index][1]:
            _qualify(code, position, f"::cuemu::{function}")
            name = kernels.name_of(code, *arguments[index])
            before = code.text(position - (2 if code.text(position - 1) == "::" else 1))
            is_global = all(within) and before in ("=", "(", "{", ",")
            macro = "CUEMU_GLOBAL_KERNEL" if is_global else "CUEMU_KERNEL"
            code.replace(*arguments[index], f"{macro}({name}, {code.one_line(*arguments[index])})")


def _begins_namespace(code: Code, position: int) -> bool:
    """Tells whether a brace opens a namespace or ``extern "C"``."""
    before = position - 1
    while before >= 0 and (code.is_name(before) or code.text(before) == "::") and code.text(before) != "namespace":
        before -= 1
    opens = code.text(before) if before >= 0 else ""
    return opens == "namespace" or (opens.startswith('"') and before > 0 and code.text(before - 1) == "extern")


def _rewrite_launch_call(code: Code, position: int, arguments: list[Range], kernels: Kernels) -> None:
    """Rewrites ``cudaLaunchKernel(k, …)``.

    The kernel stays an argument, since its type tells what ``void** parameters`` hold.
    """
    function, index = _LAUNCH_CALLS[code.text(position)]
    if len(arguments) <= index or arguments[index][0] >= arguments[index][1]:
        return
    inner = without_casts(code, *arguments[index])
    if inner[0] >= inner[1]:
        return
    name = kernels.name_of(code, *arguments[index])
    _qualify(code, position, f"::cuemu::{function}")
    code.replace(*arguments[index], f"{name}, __LINE__, {code.one_line(*inner)}")


def _qualify(code: Code, position: int, qualified: str) -> None:
    """Writes a qualified function name. It also replaces a leading ``::``."""
    code.token(position).written = qualified
    if code.text(position - 1) == "::" and not code.is_name(position - 2):
        code.token(position - 1).written = line_breaks(code.token(position - 1).text)
