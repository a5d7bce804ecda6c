#error cuemu-unsupported: 4-bit floats (cuda_fp4.h): use half, bfloat16 or float
#include "cuemu-stop"
