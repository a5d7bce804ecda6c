#error cuemu-unsupported: cuDNN: write the operation as a kernel, or call torch's own from Python
#include "cuemu-stop"
