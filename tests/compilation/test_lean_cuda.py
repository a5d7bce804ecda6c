"""Tests stand-ins for torch's headers in GPU builds: when they apply, and the fallback when they fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from harness.compilation.cuda import CudaLoader
from harness.compilation.errors import BuildFailed
from harness.compilation.torch_headers import LEAN, selection

CPP = "torch::Tensor twice(torch::Tensor x);"
CUDA = """
#include <torch/extension.h>
__global__ void twice_kernel(const float* x, float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x];
}
torch::Tensor twice(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on a GPU");
  auto y = torch::empty_like(x);
  twice_kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
NOT_BUILT = RuntimeError("Error building extension 'm': cuda.cu(3): error: expected a ';'")

Build = Callable[..., tuple[list[dict[str, Any]], CudaLoader]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds with a ``load_inline`` that compiles nothing; what it was called with, and the loader."""
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    for name in ("CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "LIBRARY_PATH"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    monkeypatch.setenv("CXX", "true")  # knows no macros at all
    calls: list[dict[str, Any]] = []

    def run(*outcomes: Exception | None, **changed: Any) -> tuple[list[dict[str, Any]], CudaLoader]:
        left = list(outcomes or [None])

        def load_inline(
            name: str,
            cpp_sources: list[str],
            cuda_sources: list[str],
            functions: list[str] | None,
            extra_cuda_cflags: list[str] | None = None,
            extra_include_paths: list[str] | None = None,
            build_directory: str = "",
            extra_ldflags: list[str] | None = None,
            verbose: bool = False,
            no_implicit_headers: bool = False,
        ) -> str:
            calls.append({"cpp_sources": list(cpp_sources), "extra_include_paths": extra_include_paths or []})
            cpp_sources.insert(0, "#include <torch/extension.h>")  # as torch does with a list
            versions = cpp_extension.JIT_EXTENSION_VERSIONER
            version = versions.bump_version_if_changed(
                name, [], [[str(len(calls))]], str(tmp_path), True, True, True, False
            )
            calls[-1]["version"] = version
            outcome = left.pop(0)
            if outcome is not None:
                raise outcome
            return "loaded"

        monkeypatch.setattr(cpp_extension, "load_inline", load_inline)
        monkeypatch.setattr(cpp_extension, "JIT_EXTENSION_VERSIONER", cpp_extension.ExtensionVersioner())
        solution = tmp_path / "solution.py"
        solution.write_text("")
        loader = CudaLoader(solution, {}, tmp_path / "out", lambda *_: None, capability=(9, 0))
        arguments = {"name": "m", "cpp_sources": [CPP], "cuda_sources": [CUDA], "functions": ["twice"], **changed}
        assert loader.load_inline(**arguments) == "loaded"
        return calls, loader

    return run


def test_torchs_headers_are_stood_in_for(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX")
    (call,), loader = build()
    own, stand_ins = map(Path, call["extra_include_paths"])
    assert stand_ins == LEAN
    assert list(loader.plain.values()) == [""]
    chosen = (own / "for_cuda" / "lean_torch_selection.h").read_text()
    assert "ATen/ops/empty_like.h" in chosen
    assert "PYTHON" not in chosen  # torch/types.h has none
    assert "PYTHON" in (own / "for_cpp" / "lean_torch_selection.h").read_text()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"cuda_sources": ["using namespace torch;" + CUDA]}, id="names of theirs"),
        pytest.param({"cuda_sources": [CUDA + "template <class T> void f() requires true {}"]}, id="a question"),
        pytest.param({"cuda_sources": ['#include "./own.h"' + CUDA]}, id="a file of its own"),
        pytest.param(
            {"cuda_sources": [CUDA + "auto o = torch::dtype(torch::kFloat).requires_grad(true);"]}, id="gradient"
        ),
        pytest.param({"cuda_sources": [CUDA + "torch::nn::Linear layer(1, 1);"]}, id="modules"),
        pytest.param({"extra_include_paths": ["/usr/include"]}, id="a folder of its own"),
        pytest.param({"extra_cuda_cflags": ["-O3", "-include own.h"]}, id="a flag"),
        pytest.param(
            {"no_implicit_headers": True, "functions": None, "cuda_sources": ["__global__ void k() {}"]},
            id="no headers",
        ),
    ],
)
def test_what_could_tell_them_apart_is_built_plainly(build: Build, changed: dict[str, Any]) -> None:
    (call,), loader = build(**changed)
    assert str(LEAN) not in call["extra_include_paths"]
    assert all(loader.plain.values())


def test_a_text_with_a_macro_that_the_stand_ins_lack_is_built_plainly(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX")
    _, loader = build(cuda_sources=[CUDA + "#if TORCH_VERSION_MAJOR > 1\n#endif"])
    assert [why.split(":")[0] for why in loader.plain.values()] == ["TORCH_VERSION_MAJOR"]


@pytest.mark.parametrize("error", [NOT_BUILT, ImportError("m.so: undefined symbol: _ZN2at4oursEv")])
def test_where_they_do_not_do_the_plain_build_is_as_if_alone(build: Build, error: Exception) -> None:
    (first, second), loader = build(error, None)
    assert str(LEAN) in first["extra_include_paths"]
    assert not second["extra_include_paths"]
    assert second["cpp_sources"] == [CPP]
    assert second["version"] == first["version"] == 0
    assert all(loader.plain.values())


def test_a_function_of_its_own_that_is_missing_is_not_looked_for_in_torchs_headers(build: Build) -> None:
    with pytest.raises(ImportError, match="_Z3runN2at6TensorE"):
        build(ImportError("m.so: undefined symbol: _Z3runN2at6TensorE"), None)


def test_the_plain_builds_errors_are_told(build: Build) -> None:
    with pytest.raises(BuildFailed, match="of the plain one"):
        build(NOT_BUILT, RuntimeError("cuda.cu(4): error: of the plain one"))


def test_a_library_whose_code_ran_is_not_built_again(build: Build) -> None:
    with pytest.raises(ImportError, match="no PyInit"):
        build(ImportError("dynamic module does not define module export function: no PyInit"), None)


def test_only_operators_that_mean_the_same_are_selected(tmp_path: Path) -> None:
    folder = tmp_path / "include" / "ATen" / "ops"
    folder.mkdir(parents=True)
    for name in ("tensor", "zeros", "relu", "sum"):
        (folder / f"{name}.h").touch()
    chosen = selection(frozenset({"tensor", "zeros", "relu_", "sum_out", "globalContext"}), tmp_path)
    assert chosen.splitlines() == [
        "#define LEAN_TORCH_OPERATORS",
        *(f"#include <ATen/ops/{name}.h>" for name in ("relu", "sum", "zeros")),
        "#undef LEAN_TORCH_OPERATORS",
        "#include <ATen/Context.h>",
    ]
