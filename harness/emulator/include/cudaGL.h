#error cuemu-unsupported: graphics interoperation: use cudaMalloc
#include "cuemu-stop"
