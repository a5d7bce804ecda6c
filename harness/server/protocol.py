"""The HTTP protocol of ``serve``."""

from __future__ import annotations

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Protocol(H11Protocol):
    """HTTP/1.1, also with clients that break it in the middle of a request.

    uvicorn's own raises in both cases, and logs a traceback: a second answer is refused where the application's is on
    its way, and the application's answer after the refusal.
    """

    def send_400_response(self, msg: str) -> None:
        """Refuses a request, if no answer has begun, and closes the connection."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
