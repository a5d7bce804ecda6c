#error cuemu-unsupported: CuTe: write the tile loop in plain CUDA
#include "cuemu-stop"
