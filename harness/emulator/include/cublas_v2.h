#error cuemu-unsupported: cuBLAS: write the product as a kernel, or call torch's own from Python
#include "cuemu-stop"
