"""Judges generated GPU kernels: which are correct, in outputs and gradients, and which are faster."""

__version__ = "0.1.0"
