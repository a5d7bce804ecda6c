"""``load_inline(functions=...)``: the same mistakes are refused in the same words by both loaders; nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from harness.build.cuda import CudaLoader
from harness.build.errors import BuildFailed
from harness.build.functions import check_functions, undeclared_functions
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
        (["scale"], "", "// __global__ void scale(int n) {}\nvoid scale(int n) {}"),
        (["scale"], "", 'const char* text = "__global__ void scale(int n) {}";\nvoid scale(int n) {}'),
        (["scale"], "", "void other() { scale<<<1, 2>>>(3); }"),
        (["at::relu"], "", CUDA),
        (None, None, None),
        (3, b"", 4.5),
        (["scale"], "", KERNEL + "auto scale(torch::Tensor x) -> torch::Tensor { return x; }"),
        (["", " ", "*"], "((((", "scale(((("),
    ],
)
def test_what_might_build_is_left_to_the_compiler(functions: Any, cpp: Any, cuda: Any) -> None:
    check_functions("m", functions, cpp, cuda)


@pytest.mark.parametrize(
    ("functions", "cpp", "words"),
    [
        (["twice"], "", "in cuda_sources there: torch::Tensor twice(torch::Tensor x, int64_t n = (1 + 2));"),
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
        CudaLoader(solution, {}, tmp_path, lambda *_: None, (9, 0)),
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
    loader = CudaLoader(solution, {}, tmp_path / "out", lambda *_: None, (9, 0))
    with pytest.raises(BuildFailed, match="'twice', which cpp_sources does not declare") as caught:
        loader.load_inline(name="m", cpp_sources=[""], cuda_sources=[CUDA], functions=["twice"])
    assert caught.value.message.splitlines()[1] == "m does not build:"
