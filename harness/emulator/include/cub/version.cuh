// Stands in for CUB's header of this name.
#pragma once

#include "config.cuh"
