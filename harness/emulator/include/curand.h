// Stands in for cuRAND's host interface, whose generators the emulator lacks, for sources that only include it.
#pragma once

#include "cuda_runtime.h"
