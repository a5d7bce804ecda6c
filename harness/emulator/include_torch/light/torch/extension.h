// Stands in for torch/extension.h; the build falls back to the original where this does not do.
#pragma once
#include <cuemu_torch.h>
