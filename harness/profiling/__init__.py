"""What a GPU's own counters say of a solution's kernels, by Nsight Compute."""
