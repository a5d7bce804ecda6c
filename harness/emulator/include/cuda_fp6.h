#error cuemu-unsupported: 6-bit floats (cuda_fp6.h): use half, bfloat16 or float
#include "cuemu-stop"
