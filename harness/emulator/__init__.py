"""CUDA source on the CPU: rewriting, a runtime of fibers, header stand-ins, and the compiler that joins them."""
