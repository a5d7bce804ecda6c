"""Knows the installed package: its version and its folder."""

from __future__ import annotations

from pathlib import Path

VERSION = "0.1.0"
#: Folder of the package ``harness``.
FOLDER = Path(__file__).resolve().parent
