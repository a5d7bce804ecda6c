#error cuemu-unsupported: the library of cufft.h: write the operation as a kernel, or call torch's own from Python
#include "cuemu-stop"
