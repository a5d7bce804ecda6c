"""Inline PTX: parses `asm` statements of device code and writes C++ with the same meaning."""
