#error cuemu-unsupported: asynchronous barriers: use __syncthreads
#include "cuemu-stop"
