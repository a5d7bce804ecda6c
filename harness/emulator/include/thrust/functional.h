#error cuemu-unsupported: Thrust: write the loop as a kernel
#include "cuemu-stop"
