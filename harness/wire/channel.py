"""Framed messages over a socket pair: four bytes of length, then JSON.

A file descriptor can travel with a frame.
"""

from __future__ import annotations

import socket
import struct
import time

MAX_MESSAGE_BYTES = 4 << 20
_HEADER = struct.Struct("!I")


class ChannelClosed(ConnectionError):
    """The error for a channel whose other end is closed."""


class FrameError(ValueError):
    """The error for a frame that is larger than any honest message."""


def send(channel: socket.socket, data: bytes, descriptor: int | None = None, limit_s: float | None = None) -> None:
    """Sends one frame, and a file descriptor if there is one.

    Args:
        channel: The socket.
        data: The frame's content.
        descriptor: A file descriptor to send with the frame.
        limit_s: The time limit for sending, in seconds, in case the other side reads slowly; None
            for no limit.

    Raises:
        FrameError: The data is larger than ``MAX_MESSAGE_BYTES``.
        ChannelClosed: The other side has closed its end.
        BlockingIOError: The time is up. A part of the frame may have been sent.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise FrameError(f"{len(data)} bytes, more than {MAX_MESSAGE_BYTES}")
    header = _HEADER.pack(len(data))
    try:
        if descriptor is None:
            left = header + data  # one call, so that the other side wakes once
        else:
            socket.send_fds(channel, [header], [descriptor])
            left = data
        if limit_s is None:
            channel.sendall(left)
        else:
            _sent_in_time(channel, memoryview(left), time.monotonic() + limit_s)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosed(str(error)) from None


def _sent_in_time(channel: socket.socket, left: memoryview, end: float) -> None:
    while left:
        left = left[channel.send(left) :]
        if left and time.monotonic() > end:
            raise BlockingIOError("the other side reads too slowly")


def receive(channel: socket.socket) -> tuple[bytes, int | None]:
    """Waits for one frame (blocking).

    Returns:
        The frame's content, and the descriptor that came with it, or None.

    Raises:
        FrameError: The announced length is too large.
        ChannelClosed: The other side has closed its end.
    """
    first, descriptors, _flags, _address = socket.recv_fds(channel, _HEADER.size, 1)
    header = first + _exactly(channel, _HEADER.size - len(first)) if first else b""
    if not header:
        raise ChannelClosed("end of stream")
    (length,) = _HEADER.unpack(header)
    if length > MAX_MESSAGE_BYTES:
        raise FrameError(f"{length} bytes announced, more than {MAX_MESSAGE_BYTES}")
    return _exactly(channel, length), descriptors[0] if descriptors else None


class FrameReader:
    """Collects frames without blocking, so that a half-sent frame cannot block the judge."""

    def __init__(self, channel: socket.socket):
        self._channel = channel
        self._buffer = bytearray()

    def feed(self) -> None:
        """Reads the bytes that have arrived.

        Raises:
            ChannelClosed: The other side has closed its end.
        """
        try:
            data = self._channel.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionResetError as error:
            raise ChannelClosed(str(error)) from None
        if not data:
            raise ChannelClosed("end of stream")
        self._buffer += data

    def take(self) -> bytes | None:
        """Removes and returns the next complete frame, or None if there is none yet.

        Raises:
            FrameError: The announced length is too large.
        """
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        if length > MAX_MESSAGE_BYTES:
            raise FrameError(f"{length} bytes announced, more than {MAX_MESSAGE_BYTES}")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return frame


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        data = channel.recv(count - len(parts))
        if not data:
            raise ChannelClosed("end of stream inside a frame")
        parts += data
    return bytes(parts)
