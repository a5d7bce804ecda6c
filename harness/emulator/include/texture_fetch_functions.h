#error cuemu-unsupported: textures: read global memory
