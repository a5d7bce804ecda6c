"""Access to the server: clients with bearer tokens, or anyone on this machine if it listens there only."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import UsageError

#: The client without a name: that of the environment's token, or any program of this machine.
DEFAULT_CLIENT = "default"
VARIABLE = "HARNESS_SERVE_TOKEN"
_SHORTEST_TOKEN = 16
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True)
class Access:
    """The clients of a server.

    Attributes:
        clients: Names of the clients by the digest of their token; empty if no token is needed.
    """

    clients: dict[bytes, str] = field(repr=False)

    def client(self, authorization: str | None) -> str | None:
        """Returns the client's name for an ``Authorization`` header; None if it may not ask."""
        if not self.clients:
            return DEFAULT_CLIENT
        scheme, _, token = (authorization or "").partition(" ")
        digest = _digest(token.strip())
        names = [name for known, name in self.clients.items() if hmac.compare_digest(known, digest)]
        return names[0] if names and scheme.lower() == "bearer" else None

    def takes_host(self, host: str | None) -> bool:
        """Returns whether a ``Host`` header is acceptable.

        Without tokens only this machine's own names are: a web page could otherwise reach the
        server through a name of its own that leads to the loopback address.
        """
        return bool(self.clients) or re.sub(r":\d+$", "", host or "").lower() in _LOCAL_HOSTS


def read_access(file: Path | None) -> Access:
    """Reads the tokens from a file and from the environment, and removes them from the environment.

    Each line of the file has a client's name and its token. ``HARNESS_SERVE_TOKEN`` is the token of
    the client ``default``.

    Raises:
        UsageError: The file cannot be read, others may read it, or a line is invalid.
    """
    found: dict[bytes, str] = {}
    own = os.environ.pop(VARIABLE, None)  # no process of a candidate inherits it
    if own is not None:
        found[_checked(own, VARIABLE)] = DEFAULT_CLIENT
    for number, line in enumerate(_lines(file), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or re.fullmatch(r"[\w.-]{1,64}", words[0], re.ASCII) is None:
            raise UsageError(f"{file}: line {number} must have a client's name and its token")
        digest = _checked(words[1], f"{file}: line {number}")
        if digest in found:
            raise UsageError(f"{file}: line {number} repeats a token: each client needs its own")
        found[digest] = words[0]
    return Access(found)


def check_exposure(host: str, access: Access, *, is_confined: bool, accepts_problems: bool) -> None:
    """Refuses to listen where strangers could run code.

    Raises:
        UsageError: The address is not this machine's own and tokens or confinement are missing, or
            clients may send problems without a token.
    """
    if accepts_problems and not access.clients:
        raise UsageError(
            "--accept-problems: a problem's code runs unconfined, so clients need a token: "
            f"give --token-file or {VARIABLE}"
        )
    if _is_loopback(host):
        return
    if not access.clients:
        raise UsageError(
            f"--host {host}: others could reach the server: give --token-file or {VARIABLE}, or listen on 127.0.0.1"
        )
    if not is_confined:
        raise UsageError(
            f"--host {host}: give --require-confinement, so that no candidate runs unconfined, or listen on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise UsageError(f"--token-file {file}: others may read it; run: chmod 600 {file}")
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--token-file {file}: {why}") from None
    if not any(line.strip() for line in lines):
        raise UsageError(f"--token-file {file}: it holds no token")
    return lines


def _checked(token: str, where: str) -> bytes:
    if len(token) < _SHORTEST_TOKEN or re.fullmatch(r"[\x21-\x7e]+", token) is None:
        raise UsageError(f"{where}: a token must have at least {_SHORTEST_TOKEN} printable ASCII characters, no blanks")
    return _digest(token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
