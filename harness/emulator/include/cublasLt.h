// Nothing: what a solution uses of cuBLASLt is refused by its name.
#pragma once

#include "cublas_v2.h"
