#error cuemu-unsupported: graphics interoperation: use cudaMalloc
