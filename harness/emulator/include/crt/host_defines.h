// Stands in for CUDA's header of this name: everything is in the prelude.
#pragma once

#include "cuemu_prelude.h"
