"""Tests the emulator's own binding of functions for Python beside pybind11's: what one answers, so does the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.running import run_on_emulator
from tests.fork_server import ForkServers

CPP = r"""
#include <torch/extension.h>
#ifdef PYBIND11_VERSION_MAJOR
#define BINDER "theirs"
#else
#define BINDER "ours"
#endif
using Strings = std::tuple<std::string, std::string>;

std::string binder() { return BINDER; }
int64_t whole(int64_t number) { return number; }
int narrow(int number) { return number; }
unsigned char byte(unsigned char number) { return number; }
double real(double number) { return number; }
float single(float number) { return number; }
bool truth(bool given) { return given; }
std::string text(const std::string& given) { return given + "!"; }
void nothing() {}
Strings pair(std::string one, std::string two) { return {two, one}; }
at::ScalarType dtype(torch::Tensor x) { return x.scalar_type(); }
torch::Tensor as_dtype(torch::Tensor x, at::ScalarType type) { return x.to(type); }
torch::Tensor same(const torch::Tensor& x) { return x; }
using Mixed = std::tuple<torch::Tensor, int64_t, std::optional<torch::Tensor>>;
Mixed mixed(torch::Tensor& x, std::optional<torch::Tensor> y) { return {x + 1, x.numel(), y}; }
std::vector<torch::Tensor> turned(std::vector<torch::Tensor> all, std::vector<int64_t> order) {
  return {all.at(order.at(0)), all.at(order.at(order.size() - 1))};
}
std::optional<double> perhaps(std::optional<double> number) { return number; }
torch::Tensor undefined() { return {}; }
double scalar(at::Scalar number) { return number.toDouble(); }
void fails(int64_t how) {
  TORCH_CHECK(how != 0, "checked");
  TORCH_CHECK_VALUE(how != 1, "a value");
  TORCH_CHECK_INDEX(how != 2, "an index");
  if (how == 3) throw std::out_of_range("beyond");
  if (how == 4) throw 4;
  TORCH_WARN("only warned");
}
"""
#: The same functions declared, but the one whose type needs a header of torch's.
DECLARED = "#include <torch/extension.h>\n" + "".join(
    f"{head};  // as above\n" for head in re.findall(r"^(\w.*\)) \{", CPP, re.MULTILINE) if "at::Scalar " not in head
).replace("Strings ", "std::tuple<std::string, std::string> ").replace(
    "Mixed ", "std::tuple<torch::Tensor, int64_t, std::optional<torch::Tensor>> "
)
NAMES = [
    *("binder", "whole", "narrow", "byte", "real", "single", "truth", "text", "nothing", "pair", "dtype", "as_dtype"),
    *("same", "mixed", "turned", "perhaps", "undefined", "scalar", "fails"),
]
SOLUTION = f"""
import re, warnings, torch
from torch.utils.cpp_extension import load_inline

CPP = r'''{CPP}'''
NAMES = {NAMES}
WRAPPED = "".join(f'm.def("{{name}}", torch::wrap_pybind_function({{name}}), "about");' for name in NAMES)
BOUND = WRAPPED + "".join(f'm.def("plain_{{name}}", &{{name}});' for name in NAMES)
MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{" + BOUND + "}}"
PYBIND = "\\n#define py_is_named py\\n"  # a name of pybind11's, which the emulator's binding is not for
NAMES += ["plain_" + name for name in NAMES]
DECLARED = {DECLARED!r}
modules = [
    load_inline("m_ours", CPP + MODULE, no_implicit_headers=True),
    load_inline("m_declared", DECLARED + re.sub(r"m.def[^;]*scalar[^;]*;", "", MODULE), CPP, no_implicit_headers=True),
    load_inline("m_theirs", CPP + PYBIND + MODULE, no_implicit_headers=True),
]


class Index:
    def __index__(self):
        return 7


class Number:
    def __int__(self):
        return 8

    def __float__(self):
        return 0.5


class Broken:
    def __index__(self):
        raise LookupError("broken")

    __bool__ = __float__ = __index__


x = torch.arange(3.0)
given = [
    *(0, -1, 255, 256, 2**31, 2**63, -(2**63), 1.0, 1.5, True, None, "word", b"word", Index(), Number(), Broken(), 1j),
    *(x, torch.tensor(2), torch.tensor(2.5), torch.float16, [], [x], (x,), [None], [x, 1]),
]
calls = [(name, (one,), {{}}) for name in NAMES for one in given] + [
    *((name, (), {{}}) for name in NAMES),
    *((name, (how,), {{}}) for name in ("fails", "plain_fails") for how in range(6)),
    ("pair", ("a", "b"), {{}}), ("pair", ("a", "b", "c"), {{}}), ("pair", ("a",), {{"arg1": "b"}}),
    ("pair", (), {{"one": 1}}),
    ("as_dtype", (x, torch.float64), {{}}), ("as_dtype", (x, "float64"), {{}}), ("as_dtype", (torch.float64, x), {{}}),
    ("mixed", (x, None), {{}}), ("mixed", (x, x), {{}}), ("mixed", (None, x), {{}}),
    ("turned", ([x, -x], [1, 0]), {{}}), ("turned", ((x,), (0,)), {{}}), ("turned", ([x], [3]), {{}}),
    ("turned", ([x, 1], [0]), {{}}), ("turned", ([x], ["0"]), {{}}), ("turned", (x, [0]), {{}}),
]


def answer(module, name, positional, named):
    function = getattr(module, name)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = function(*positional, **named)
        except Exception as error:
            result = type(error).__name__, str(error).split("Exception raised from")[0].replace(module.__name__, "m")
    return f"{{name}}{{positional}} {{named}}: {{result!r}} {{[str(one.message).split(' (')[0] for one in warned]}}"


def told(module):
    names = [name for name in NAMES if hasattr(module, name)]
    answers = [answer(module, *call) for call in calls if call[0] in names]
    answers += [getattr(module, name).__doc__ for name in names]
    answers += [type(module.whole).__name__, module.whole.__name__, len(names) > 30]
    return [re.sub(r"0x[0-9a-f]+", "", str(one)) for one in answers if "binder" not in str(one)]


def same_object(module):
    return module.same(x) is x, type(module.turned([x], [0])).__name__, type(module.pair("a", "b")).__name__


result = {{
    "binders": [module.binder() for module in modules],
    "by name alone": [b"_ZN5cuemu6tensor4makeEPv" in open(module.__file__, "rb").read() for module in modules],
    "answers": [told(module) for module in modules],
    "objects": [same_object(module) for module in modules],
}}
"""


@pytest.fixture(scope="module")
def told(fork_servers: ForkServers, tmp_path_factory: pytest.TempPathFactory, shared_emulator: Path) -> dict[str, Any]:
    """What three modules of the same functions answer: the emulator's, one of declarations, pybind11's."""
    folder = tmp_path_factory.mktemp("binding")
    (folder / "solution.py").write_text(SOLUTION)
    answer = run_on_emulator(fork_servers, folder / "solution.py", folder / "built", shared_emulator)
    found: dict[str, Any] = answer.get("result") or answer
    return found


def test_each_binder_is_there(told: dict[str, Any]) -> None:
    assert told["binders"] == ["ours", "ours", "theirs"], told
    assert told["by name alone"] == [False, True, False]


def test_all_answers_errors_and_documentation_are_pybinds(told: dict[str, Any]) -> None:
    ours, declared, theirs = told["answers"]
    assert len(ours) > 1000
    assert ours == theirs
    assert declared == [one for one in theirs if "scalar" not in one]


def test_objects_are_pybinds(told: dict[str, Any]) -> None:
    assert told["objects"] == [[True, "list", "tuple"]] * 3
