// Stands in for CUB's header of this name.
#pragma once

#include "../util_type.cuh"
