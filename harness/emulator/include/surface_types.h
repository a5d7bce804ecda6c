#error cuemu-unsupported: surfaces: read and write global memory
