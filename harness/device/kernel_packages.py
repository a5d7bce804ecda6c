"""The packages that bring a language of kernels beside CUDA C++; importing none of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util

#: What installs each package, by the name that a solution imports.
INSTALL = {
    "triton": "pip install triton",
    "cupy": "pip install cupy-cuda12x",
    "cutlass": "pip install nvidia-cutlass-dsl",
    "numba": "pip install numba-cuda",
    "tilelang": "pip install tilelang",
}


def may_use(text: str) -> bool:
    """Tells whether a solution's text names any of the packages."""
    return any(name in text for name in INSTALL)


def is_installed(package: str) -> bool:
    """Tells whether Python finds a package, without importing it.

    A folder of that name, such as a checkout in the current folder, is no package.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def describe_packages() -> str:
    """Returns the installed packages, such as ``triton 3.9.0``, since verdicts depend on them."""
    return ", ".join(f"{name} {_version(name)}".rstrip() for name in (*INSTALL, "numpy") if is_installed(name))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # a distribution of another name
        return ""
