#error cuemu-unsupported: asynchronous copies (cuda_pipeline.h): copy with ordinary assignments and __syncthreads
#include "cuemu-stop"
