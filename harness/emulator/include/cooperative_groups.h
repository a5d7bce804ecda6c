#error cuemu-unsupported: cooperative groups: use __syncthreads, __syncwarp and the shuffles
