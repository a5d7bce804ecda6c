"""Puts the problems, templates and solutions that come with the harness into its wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("problems", "templates", "solutions")


class BundleHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the folders as ``harness/bundled``, where ``harness.project.paths.bundled_root`` finds them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Choose the files; none for an editable install, which has the checkout.

        Args:
            version: ``standard`` or ``editable``.
            build_data: Receives the files.
        """
        if version == "editable":
            return
        root = Path(self.root)
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*")):
                inside = path.relative_to(root)
                # What tools leave behind (.mypy_cache, __pycache__) is no part of the project.
                if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in inside.parts):
                    build_data["force_include"][str(path)] = f"harness/bundled/{inside.as_posix()}"
