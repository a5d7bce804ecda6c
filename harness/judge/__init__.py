"""Draws, references, comparison and verdict. Never imports a candidate or the worker."""
