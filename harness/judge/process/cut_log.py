"""Keeps a bounded part of what a candidate prints."""

from __future__ import annotations

from dataclasses import dataclass, field

LOG_HEAD_BYTES = 8 << 10
LOG_TAIL_BYTES = 8 << 10


@dataclass
class CutLog:
    """Keeps the head and the tail of what a candidate prints, and counts the bytes between."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, data: bytes) -> None:
        """Add printed bytes."""
        room = LOG_HEAD_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room < len(data) else b""
        surplus = len(self.tail) - LOG_TAIL_BYTES
        if surplus > 0:
            self.dropped += surplus
            del self.tail[:surplus]

    def text(self) -> str:
        """Return the kept text, with a line that says how much was cut."""
        cut = f"\n[... {self.dropped} bytes cut ...]\n" if self.dropped else ""
        return bytes(self.head).decode(errors="replace") + cut + bytes(self.tail).decode(errors="replace")
