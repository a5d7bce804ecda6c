#error cuemu-unsupported: cuRAND: pass random numbers in as a tensor
#include "cuemu-stop"
