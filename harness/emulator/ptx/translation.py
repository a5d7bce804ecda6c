"""Writes C++ for an ``asm`` statement.

Registers become unsigned integers of their width, and each instruction one C++ statement that calls functions of
``cuemu/ptx.h``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.emulator.ptx.instructions import ROWS, Row
from harness.emulator.ptx.macros import Refused
from harness.emulator.ptx.statement import Statement
from harness.emulator.ptx.text import (
    INTEGER,
    Address,
    Argument,
    Declaration,
    Instruction,
    Item,
    Label,
    Pair,
    Scope,
    TensorAddress,
    Vector,
    parse_text,
)

_C_TYPES = {
    **{
        f"{letter}{bits}": f"std::{'' if letter == 's' else 'u'}int{bits}_t"
        for letter in "sub"
        for bits in (8, 16, 32, 64)
    },
    **{"f32": "float", "f64": "double", "pred": "bool", "f16": "P::Half", "bf16": "P::Bfloat"},
    **{"f16x2": "P::Pair<P::Half>", "bf16x2": "P::Pair<P::Bfloat>"},
}
_BITS = {**{name: int(re.sub(r"\D", "", name)) for name in _C_TYPES if "x2" not in name and name != "pred"}, "pred": 1}
_BITS |= {"f16x2": 32, "bf16x2": 32}
#: An access whose state space stands in front of its order, which ptxas accepts, too.
_SPACE_FIRST = re.compile(
    r"^(ld|st|atom|red)(\.(?:global|shared(?:::\w+)?))"
    r"(\.(?:volatile|relaxed|acquire|release|acq_rel)(?:\.(?:cta|cluster|gpu|sys))?)(?!.*\.(?:global|shared))"
)
#: A matrix whose shape stands behind its count, which ptxas accepts, too.
_SHAPE_LAST = re.compile(r"^((?:ld|st)matrix\.sync\.aligned)(\.x[124](?:\.trans)?)(\.m8n8)")
#: The suffixes of CUDA's functions for PTX's roundings.
_DIRECTION = {"": "rn", "rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}

Groups = Mapping[str, str]
_LETTER_BITS = {"r": 32, "l": 64, "h": 16, "f": 32, "d": 64, "n": 64}
_POSITION = "::cuemu::position_in(::threadIdx, ::blockDim)"
_INDICES = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}
_SPECIAL = {
    **{f"%{name}.{axis}": f"::{_INDICES[name]}.{axis}" for name in _INDICES for axis in "xyz"},
    "%laneid": f"{_POSITION} % 32",
    "%warpid": f"{_POSITION} / 32",
    "%nwarpid": "(::cuemu::volume(::blockDim) + 31) / 32",
    "%lanemask_eq": f"1u << {_POSITION} % 32",
    "%lanemask_lt": f"(1u << {_POSITION} % 32) - 1",
    "%lanemask_le": f"~0u >> (31 - {_POSITION} % 32)",
    "%lanemask_ge": f"~0u << {_POSITION} % 32",
    "%lanemask_gt": f"~1u << {_POSITION} % 32",
    "%clock": "static_cast<unsigned>(::clock64())",
    "%clock64": "::clock64()",
    "%globaltimer": "::__globaltimer()",
    "WARP_SZ": "32",
    **{
        f"%{name}.{axis}": f"::cuemu::cluster_place().{member}.{axis}"
        for name, member in (
            ("cluster_ctaid", "index"),
            ("cluster_nctaid", "size"),
            ("clusterid", "id"),
            ("nclusterid", "count"),
        )
        for axis in "xyz"
    },
    "%cluster_ctarank": "::cuemu::cluster_place().rank",
    "%cluster_nctarank": "::cuemu::cluster_place().blocks",
    "%is_explicit_cluster": "::cuemu::is_explicit_cluster()",
}


@dataclass(frozen=True)
class _Register:
    """A register: its C++ name, and its width in bits; 1 for a predicate."""

    name: str
    bits: int


def translate(statement: Statement) -> str:
    """Writes C++ for a statement, on one line.

    Raises:
        Refused: It holds what the emulator does not run.
    """
    registers: dict[str, _Register] = {}
    before, after = [], []
    for number, operand in enumerate(statement.operands):
        register = _Register(f"cuemu_{number}", _LETTER_BITS[operand.letter])
        registers[f"%{number}"] = register
        value = {
            "f": f"P::bits(static_cast<float>({operand.text}))",
            "d": f"P::bits(static_cast<double>({operand.text}))",
        }
        read = value.get(operand.letter, f"P::given<std::uint{register.bits}_t>({operand.text})")
        before.append(f"std::uint{register.bits}_t {register.name}{f' = {read}' if operand.is_read else ''};")
        if operand.is_written:
            after.append(f"P::take({operand.text}, {register.name});")
    items = parse_text(statement.template.replace("%%", "%"))
    if not items:
        raise Refused("no instruction")
    if "wgmma.mma_async" in statement.template:
        before = ["CUEMU_HAND_OVER(true);", *before, "CUEMU_HAND_OVER(false);"]
        written = [f"CUEMU_IN_FLIGHT({one.text});" for one in statement.operands if one.is_written]
        after = ["CUEMU_HAND_OVER(true);", *after, "CUEMU_HAND_OVER(false);", *written]
    body = " ".join(_scope(items, registers))
    extra = "bool cuemu_flag = false; std::uint32_t cuemu_carry = 0; static_cast<void>(cuemu_flag + cuemu_carry);"
    return f"do {{ namespace P = ::cuemu::ptx; {' '.join(before)} {extra} {{ {body} }} {' '.join(after)} }} while (0)"


def _scope(items: tuple[Item, ...], outer: Mapping[str, _Register]) -> Iterator[str]:
    registers = dict(outer)
    yield from (f"__label__ {_c_name(item.name)};" for item in items if isinstance(item, Label))
    for item in items:
        if isinstance(item, Declaration):
            if _BITS.get(item.type) is None:
                raise Refused(f"a register of type .{item.type}")
            bits = _BITS[item.type]
            for name in item.names:
                registers[name] = _Register(_c_name(name), bits)
                yield f"{'bool' if bits == 1 else f'std::uint{max(bits, 8)}_t'} {_c_name(name)};"
    for item in items:
        if isinstance(item, Scope):
            yield f"{{ {' '.join(_scope(item.items, registers))} }}"
        elif isinstance(item, Label):
            yield f"{_c_name(item.name)}:;"
        elif isinstance(item, Instruction):
            yield _Writer(item, registers).written()


def _c_name(name: str) -> str:
    return "cuemu_v_" + re.sub(r"\W", "_", name.replace("%", "_p_").replace("$", "_d_"))


class _Writer:
    """Writes one instruction."""

    def __init__(self, instruction: Instruction, registers: Mapping[str, _Register]):
        self._instruction = instruction
        self._registers = registers

    def written(self) -> str:
        code = self._code()
        if not self._instruction.guard:
            return code
        guard = self._instruction.guard
        register = self._register(guard.removeprefix("!"))
        return f"if ({'!' if guard.startswith('!') else ''}{register.name}) {{ {code} }}"

    def _code(self) -> str:
        opcode, arguments = self._instruction.opcode, self._instruction.arguments
        if re.fullmatch(r"bra(\.uni)?", opcode) and len(arguments) == 1 and isinstance(arguments[0], str):
            return f"goto {_c_name(arguments[0])};"
        if re.fullmatch(r"mov\.b(32|64)", opcode) and any(isinstance(one, Vector) for one in arguments):
            return self._moved_vector(int(opcode[5:]))
        row, groups = self._row()
        results = int(self._has_result(row))
        types = [self._type(one, groups) for one in row.types if one != "-"]
        required = sum(not one.startswith("?") for one in types)
        if ".L2::cache_hint" in opcode and types[-1] == "?u64" and len(arguments) > required:
            # The policy comes last, behind operands that may be missing. It has no effect here.
            self._value(arguments[-1], types[-1])
            arguments, types = arguments[:-1], types[:-1]
        if not required <= len(arguments) <= len(types):
            raise self._refused(f"{len(arguments)} operands")
        operands = zip(arguments[results:], types[results:], strict=False)
        if row.types and row.types[0] == "+*":
            operands = zip(arguments, types, strict=False)
        given = [self._value(one, kind) for one, kind in operands]
        if groups.get("ftz"):
            kinds = types[results:]
            given = [f"P::flushed({one})" if kinds[at] == "f32" else one for at, one in enumerate(given)]
        expression = self._filled(row.code, groups, dict(zip("abcdefgh", given, strict=False)))
        if results and types[0] == "f32":
            expression = f"P::flushed({expression})" if groups.get("ftz") else expression
            expression = f"::__saturatef({expression})" if groups.get("sat") else expression
        return self._assigned(arguments[0], types[0], expression, groups) if results else f"{expression};"

    def _row(self) -> tuple[Row, Groups]:
        opcode = _SPACE_FIRST.sub(r"\1\3\2", self._instruction.opcode)
        opcode = _SHAPE_LAST.sub(r"\1\3\2", opcode)
        for row in ROWS:
            if match := row.pattern.fullmatch(opcode):
                groups = {name: text or "" for name, text in match.groupdict().items()}
                return row, {**groups, "direction": _DIRECTION.get(groups.get("round", ""), "")}
        raise self._refused("")

    @staticmethod
    def _has_result(row: Row) -> bool:
        return bool(row.types) and row.types[0] not in ("-", "@", "#")

    @staticmethod
    def _type(kind: str, groups: Groups) -> str:
        mark = kind[0] if kind[0] in "?>+" else ""
        name, is_pair = kind.removeprefix(mark).removesuffix("|"), kind.endswith("|")
        if name == "w":
            name = f"{groups['t'][0]}{2 * int(groups['t'][1:])}"
        return mark + groups.get(name, name) + ("|" if is_pair else "")

    def _filled(self, code: str, groups: Groups, values: Mapping[str, str]) -> str:
        def part(match: re.Match[str]) -> str:
            name, mark, text = match["name"], match["mark"], match["text"] or ""
            if name is None:
                return match[0][0]
            if name == "T":
                return _C_TYPES[groups["t"]]
            if len(name) == 1:
                return values.get(name, "P::kNone")
            if mark == "?":
                return (text if groups[name] else "") if text else str(bool(groups[name])).lower()
            return str(groups[name] or text)

        return re.sub(r"\{\{|\}\}|\{(?P<name>\w+)(?:(?P<mark>[?|])(?P<text>[\w:]*))?\}", part, code)

    def _assigned(self, argument: Argument, kind: str, expression: str, groups: Groups) -> str:
        if kind[0] in ">+":
            names = argument.items if isinstance(argument, Vector) else (argument,)
            targets = [
                self._register(name).name if name != "_" else "P::Sink()" for name in names if isinstance(name, str)
            ]
            return f"P::spread({', '.join([expression, *targets])});"
        first, second = argument, ""
        if isinstance(argument, Pair):
            if not kind.endswith("|") or groups.get("combined"):
                raise self._refused("two results")
            first, second = argument.first, argument.second
        if not isinstance(first, str):
            raise self._refused("its result")
        code = (
            f"{expression};"
            if first == "_"
            else f"P::out({self._checked(first, kind.removesuffix('|')).name}, {expression});"
        )
        if second:
            flag = f"!{self._register(str(first)).name}" if kind.startswith("pred") else "cuemu_flag"
            code += f" P::out({self._register(second).name}, {flag});"
        return code

    def _value(self, argument: Argument, kind: str) -> str:
        kind = kind.lstrip("?+")
        if kind == "@":
            if not isinstance(argument, Address):
                raise self._refused("an operand that is no address")
            return f"P::address({self._register(argument.base).name}, {argument.offset})"
        if kind == "#":
            if not isinstance(argument, TensorAddress):
                raise self._refused("an operand that is no place in a tensor")
            places = ", ".join(map(self._raw, argument.coordinates))
            return f"P::box_place(P::address({self._register(argument.base).name}, 0), P::gather({places}))"
        if kind == "*":
            items = argument.items if isinstance(argument, Vector) else (argument,)
            return f"P::gather({', '.join(self._raw(one) for one in items if isinstance(one, str))})"
        if not isinstance(argument, str):
            raise self._refused("an operand in brackets")
        negated = argument.startswith("!") and kind == "pred"
        name = argument.removeprefix("!") if negated else argument
        if name in _SPECIAL:
            return f"P::in<{_C_TYPES[kind]}>({_SPECIAL[name]})"
        if name in self._registers:
            return f"{'!' if negated else ''}P::in<{_C_TYPES[kind]}>({self._checked(name, kind).name})"
        return self._number(name, kind)

    def _number(self, text: str, kind: str) -> str:
        if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
            return f"P::in<{_C_TYPES[kind]}>(std::uint32_t(0x{match[1]}u))"
        if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
            return f"P::in<{_C_TYPES[kind]}>(std::uint64_t(0x{match[1]}ull))"
        if re.fullmatch(rf"{INTEGER}U?", text):
            value = int(text.removesuffix("U"), 0)
            if -(1 << 63) < value < 1 << 64:
                return f"static_cast<{_C_TYPES[kind]}>({value}{'ull' if value > 0 else 'll'})"
        if kind in ("f32", "f64") and re.fullmatch(r"-?\d+\.\d*(e[-+]?\d+)?", text):
            return f"static_cast<{_C_TYPES[kind]}>({text})"
        raise self._refused(text)

    def _raw(self, name: str) -> str:
        if name in self._registers:
            return self._register(name).name
        return self._number(name, "u64" if "f" not in name[:2] else "u32")

    def _moved_vector(self, bits: int) -> str:
        arguments = self._instruction.arguments
        if len(arguments) != 2:
            raise self._refused("its operands")
        to, source = arguments
        if isinstance(to, Vector) and isinstance(source, str):
            names = [self._register(one).name if one != "_" else "P::Sink()" for one in to.items]
            return f"P::unpack<{bits // len(names)}>({', '.join([self._raw(source), *names])});"
        if isinstance(source, Vector) and isinstance(to, str):
            names = [self._raw(one) for one in source.items]
            return f"P::out({self._register(to).name}, P::joined<{bits // len(names)}>({', '.join(names)}));"
        raise self._refused("its operands")

    def _register(self, name: str) -> _Register:
        if name not in self._registers:
            raise self._refused(name)
        return self._registers[name]

    def _checked(self, name: str, kind: str) -> _Register:
        register = self._register(name)
        if register.bits < _BITS[kind] or (register.bits == 1) != (kind == "pred"):
            raise self._refused(f"{name}, a register of {register.bits} bits")
        return register

    def _refused(self, what: str) -> Refused:
        return Refused(f"{self._instruction.opcode}{f' with {what}' if what else ''}")
