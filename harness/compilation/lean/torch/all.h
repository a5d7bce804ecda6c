// Stands in for torch/all.h; the build falls back to the original where this does not do.
#pragma once
#include <lean_torch.h>
