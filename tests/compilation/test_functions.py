"""Tests ``load_inline(functions=...)``: both loaders refuse the same mistakes with the same message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from harness.compilation.cuda import CudaLoader
from harness.compilation.errors import BuildFailed
from harness.compilation.functions import check_functions, undeclared_functions
from harness.emulator.inline import InlineLoader

KERNEL = "__global__ void scale(const float* x, int n) { if (n > 0) { } }\n"
HOST = "torch::Tensor twice(torch::Tensor x, int64_t n = (1 + 2)) {\n    scale<<<1, 32>>>(nullptr, 1); return x;\n}\n"
CUDA = KERNEL + HOST


@pytest.mark.parametrize(
    ("functions", "cpp", "cuda", "words"),
    [
        (
            ["void scale(const float*, int)"],
            "",
            CUDA,
            "'void scale(const float*, int)' is a signature and names a",
        ),
        ("torch::Tensor twice(torch::Tensor x)", "", CUDA, "give the name 'twice' here"),
        ({"__global__ void any(int)": "a kernel"}, "", "", "is a signature and names a kernel"),
        (["scale"], "", CUDA, "'scale' names a kernel. Python cannot launch a kernel"),
        (["scale"], "void scale(const float* x, int n);", [KERNEL, HOST], "launches scale<<<grid, block>>>(...)"),
        (["t"], "", "template <typename T, int N>\n__global__ void __launch_bounds__(N)\nt(T* x) {}", "names a kernel"),
        (["void f(" + "float* a, " * 99 + ")"], "", "", "…' is a signature"),
    ],
)
def test_signatures_and_kernels_are_refused(functions: Any, cpp: Any, cuda: Any, words: str) -> None:
    with pytest.raises(BuildFailed) as caught:
        check_functions("m", functions, cpp, cuda)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("functions", "cpp", "cuda"),
    [
        (["twice"], "torch::Tensor twice(torch::Tensor x, int64_t n);", CUDA),
        (["scale"], "torch::Tensor scale(torch::Tensor x);", KERNEL + HOST.replace("twice", "scale")),  # an overload
        (["scale"], HOST.replace("twice", "scale"), KERNEL),
        (["scale"], "void scale(int n);", "// __global__ void scale(int n) {}\nvoid scale(int n) {}"),
        (
            ["scale"],
            "void scale(int n);",
            'const char* text = "__global__ void scale(int n) {}";\nvoid scale(int n) {}',
        ),
        (["scale"], "void scale(int n);", "void other() { scale<<<1, 2>>>(3); }"),
        (["at::relu"], "", CUDA),
        (None, None, None),
        (3, b"", 4.5),
        (
            ["scale"],
            "torch::Tensor scale(torch::Tensor x);",
            KERNEL + "auto scale(torch::Tensor x) -> torch::Tensor { return x; }",
        ),
        (["", " ", "*"], "((((", "scale(((("),
        # Long texts, which must not take long: every search is bounded.
        (["scale"], "scale;", "scale(" * 20_000),
        (["scale"], "scale;" + 'R"x(' * 20_000, "scale"),
    ],
)
def test_what_might_build_is_left_to_the_compiler(functions: Any, cpp: Any, cuda: Any) -> None:
    check_functions("m", functions, cpp, cuda)


PASTING = "#define PASTED(a, b) a##b\n"
BOUND = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }\n'
DECLARED = "torch::Tensor twice(torch::Tensor x);\n"


@pytest.mark.parametrize(
    ("functions", "cpp", "cuda", "words"),
    [
        (
            ["twice"],
            "",
            CUDA,
            "which cpp_sources does not declare: add the declaration of the function in cuda_sources",
        ),
        (["twice"], "// twice is in the other source\n#include <vector>\n", CUDA, "does not declare"),
        (["twice"], "int q = '\"'; /* twice */ const char* t = \"twice\", c = 't';", CUDA, "does not declare"),
        (["thrice"], DECLARED, CUDA, "'thrice', which cpp_sources does not declare: no source defines it"),
        (["twice"], "", "", "no source defines it"),
        (["twice"], DECLARED, "", "'twice', which cpp_sources declares and no source defines: add its body"),
        (["twice"], "at::Tensor twice(int64_t n,\n    const at::Tensor& x);", KERNEL, "no source defines: add its"),
        (["twice"], DECLARED + BOUND, CUDA, "both define the Python module"),
        (["twice"], DECLARED, CUDA + BOUND, "Remove PYBIND11_MODULE from the source, or leave functions out."),
        ([], DECLARED + BOUND.replace("TORCH_EXTENSION_NAME", "m"), CUDA, "is defined twice"),
        ("twice", "#ifdef A\n#define B\n#endif\n" + DECLARED + BOUND, CUDA, "is defined twice"),
    ],
)
def test_what_cannot_build_is_refused_from_the_text(functions: Any, cpp: Any, cuda: Any, words: str) -> None:
    flags = (["-O3", "-std=c++17"], "--use_fast_math -gencode arch=compute_90,code=sm_90", None)
    with pytest.raises(BuildFailed) as caught:
        check_functions("m", functions, cpp, cuda, flags=flags)
    assert words in caught.value.message
    assert "load_inline('m')" in caught.value.message


@pytest.mark.parametrize(
    ("functions", "cpp", "cuda"),
    [
        # Declared in some way or other.
        (["twice"], 'extern "C" {\ntorch::Tensor\ntwice\n(torch::Tensor x)\n;}', CUDA),
        (["twice"], '[[nodiscard]] __attribute__((visibility("default"))) ' + DECLARED, CUDA),
        (["twice"], "torch::Tensor tw\\\nice(torch::Tensor x);", CUDA),
        (["twice"], "namespace n { static torch::Tensor twice(torch::Tensor x) { return x; } } using n::twice;", ""),
        (["twice"], "template <class T> T twice(T x) { return x; } template torch::Tensor twice(torch::Tensor);", ""),
        (["twice"], "#define DECLARE(name) torch::Tensor name(torch::Tensor x)\nDECLARE(twice);", CUDA),
        (["twice_f"], "#define F(name) torch::Tensor name##_f(torch::Tensor x) { return x; }\nF(twice)", ""),
        (["twice_f"], "#define F(name) torch::Tensor name%:%:_f(torch::Tensor x) { return x; }\nF(twice)", ""),
        (["twice"], "char a = '\"'; torch::Tensor twice(torch::Tensor x); char b = '\"';", CUDA),
        (["twice"], "long n = 1'000; torch::Tensor twice(torch::Tensor x); long k = 2'000;", CUDA),
        (["twice"], 'auto s = u8R"(" // )"; torch::Tensor twice(torch::Tensor x);', CUDA),
        (["twice"], 'auto s = "//"; torch::Tensor twice(torch::Tensor x);', CUDA),
        (["twice"], "auto twice = [](torch::Tensor x) { return x; };", ""),
        (["twice"], "#if 0\n" + DECLARED + "#endif", CUDA),
        # It may come from elsewhere.
        (["twice"], '#include "twice.h"', ""),
        (["twice"], "#include </opt/twice.h>", ""),
        (["twice"], "#define H <twice.h>\n#  include H", ""),
        (["getpid"], "#include <unistd.h>", ""),
        # Declared, and defined in a way that is not looked into.
        (["twice"], "std::function<torch::Tensor(torch::Tensor)> twice(impl);", ""),
        (["twice"], DECLARED + "torch::Tensor (twice)(torch::Tensor x) { return x; }", ""),
        (["twice"], DECLARED, "#define NAME twice\ntorch::Tensor NAME(torch::Tensor x) { return x; }"),
        (["twice"], DECLARED, '#include "twice.cuh"'),
        (["twice"], DECLARED, "#define F(a) torch::Tensor tw##a(torch::Tensor x) { return x; }\nF(ice)"),
        # One module.
        (None, DECLARED + BOUND, CUDA),
        (["twice"], DECLARED + "// " + BOUND, CUDA),
        (["twice"], DECLARED + "#ifdef STANDALONE\n" + BOUND + "#endif", CUDA),
        (["twice"], DECLARED + BOUND.replace("TORCH_EXTENSION_NAME", "another"), CUDA),
        (["twice"], "#define TORCH_EXTENSION_NAME another\n" + DECLARED + BOUND, CUDA),
        (["twice"], DECLARED + "#define BIND " + BOUND, CUDA),
        (["twice"], DECLARED + 'const char* help = R"(\n' + BOUND + ')";', CUDA),
    ],
)
def test_a_source_that_may_build_is_compiled(functions: Any, cpp: Any, cuda: Any) -> None:
    check_functions("m", functions, cpp, cuda)


@pytest.mark.parametrize(
    "flags", [["-Dtwice=other"], "-I/opt/own", ["-include", "own.h"], ["@flags"], (None, [Path("/opt/own")]), "own.o"]
)
def test_a_flag_may_bring_what_the_text_lacks(flags: Any) -> None:
    check_functions("m", ["twice"], "", "", flags=flags)


def test_a_library_may_define_what_the_text_declares() -> None:
    check_functions("m", ["twice"], DECLARED, "", flags=(), linked=["-lown"])
    with pytest.raises(BuildFailed, match="no source defines"):
        check_functions("m", ["twice"], DECLARED, "", flags=(), linked=[])


def test_no_compiler_runs_for_what_is_known_from_the_text(tmp_path: Path) -> None:
    solution = tmp_path / "solution.py"
    solution.write_text("")
    began: list[str] = []
    for loader in (
        InlineLoader(solution, "", {}, tmp_path, lambda *told: began.extend(told)),
        CudaLoader(solution, {}, tmp_path, lambda *told: began.extend(told), capability=(9, 0)),
    ):
        with pytest.raises(BuildFailed, match="does not declare"):
            loader.load_inline(name="m", cpp_sources="", cuda_sources=CUDA, functions=["twice"])
    assert began == []


@pytest.mark.parametrize(
    ("functions", "cpp", "words"),
    [
        (["twice"], "", "in cuda_sources: torch::Tensor twice(torch::Tensor x, int64_t n = (1 + 2));"),
        (["twice"], "// twice is below\n", "functions names 'twice', which cpp_sources does not declare"),
        (
            ["tvice", "twice"],
            "torch::Tensor twice(torch::Tensor x);",
            "'tvice', which cpp_sources does not declare",
        ),
        (["twice"], ["torch::Tensor twice(torch::Tensor x);"], ""),
        (["twice"], '#include "twice.h"\n', ""),
        (["twice"], "#include <vector>\n", "does not declare"),
        (["at::relu"], "", ""),
        (None, "", ""),
    ],
)
def test_a_name_that_is_not_declared_is_told(functions: Any, cpp: Any, words: str) -> None:
    told = undeclared_functions(functions, cpp, CUDA)
    assert words in told
    assert bool(words) == bool(told)


def test_both_loaders_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solution = tmp_path / "solution.py"
    solution.write_text("")
    arguments = {"name": "m", "cpp_sources": "", "cuda_sources": CUDA, "functions": ["void scale(const float*, int)"]}
    messages = []
    for loader in (
        InlineLoader(solution, "", {}, tmp_path, lambda *_: None),
        CudaLoader(solution, {}, tmp_path, lambda *_: None, capability=(9, 0)),
    ):
        with pytest.raises(BuildFailed) as caught:
            loader.load_inline(**arguments)
        messages.append(caught.value.message)
    assert messages[0] == messages[1]
    assert "names a kernel" in messages[0]


def test_a_failed_build_for_a_gpu_says_what_is_not_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_inline(name: str, cpp_sources: Any, cuda_sources: Any = None, functions: Any = None, **_: Any) -> None:
        cpp_sources.append('m.def("twice", torch::wrap_pybind_function(twice), "");')  # as torch does with a list
        raise RuntimeError("Error building extension 'm'")

    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    for name in ("CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "PATH", "LIBRARY_PATH"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    monkeypatch.setattr(cpp_extension, "load_inline", load_inline)
    solution = tmp_path / "solution.py"
    solution.write_text("")
    loader = CudaLoader(solution, {}, tmp_path / "out", lambda *_: None, capability=(9, 0))
    with pytest.raises(BuildFailed, match="'twice', which cpp_sources does not declare") as caught:
        loader.load_inline(name="m", cpp_sources=[""], cuda_sources=[PASTING + CUDA], functions=["twice"])
    assert caught.value.message.splitlines()[1] == "m does not build:"
