"""Runs CUDA source on the CPU: a rewriter, a runtime of fibers, header stand-ins, and a build."""
