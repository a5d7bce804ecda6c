#error cuemu-unsupported: CUTLASS: write the tile loop in plain CUDA
#include "cuemu-stop"
