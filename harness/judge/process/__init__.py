"""Starts, limits and ends processes of untrusted code; the judge uses ``WorkerHandle``."""
