// Stands in for torch/extension.h; the build falls back to the original where this does not do.
#pragma once
#include <lean_torch_python.h>
