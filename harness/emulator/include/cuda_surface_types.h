#error cuemu-unsupported: surfaces: read and write global memory
#include "cuemu-stop"
