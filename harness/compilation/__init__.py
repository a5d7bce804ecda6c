"""Building CUDA source for a GPU, and the cache of built libraries."""
