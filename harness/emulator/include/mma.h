#error cuemu-unsupported: tensor cores (wmma): accumulate in plain CUDA, or guard this with #ifdef __CUDA_ARCH__ and give a plain fallback
