"""Starts, limits and ends the processes that run untrusted code; the judge talks to them through a ``WorkerHandle``."""
