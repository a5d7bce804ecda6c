#error cuemu-unsupported: textures: read global memory
#include "cuemu-stop"
