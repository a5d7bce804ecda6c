#error cuemu-unsupported: CUB: write the reduction or scan with shuffles and shared memory
#include "cuemu-stop"
