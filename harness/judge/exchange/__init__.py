"""Shares memory between judge and worker: places tensors, and checks that the worker obeys."""
