#error cuemu-unsupported: 8-bit floats (cuda_fp8.h): use half, bfloat16 or float
#include "cuemu-stop"
