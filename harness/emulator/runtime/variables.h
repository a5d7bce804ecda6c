// The variables of the library that holds the running kernel.
#pragma once

#include "guard.h"

namespace cuemu {

// Returns the variable in or behind which an address lies; empty if there is none, or if the library does not tell.
Extent variable_at(const char* address);

}  // namespace cuemu
