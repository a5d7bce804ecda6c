"""Candidates whose verdict is known: rewrites of each problem in plain PyTorch, honest, rounded, or subtly wrong."""
