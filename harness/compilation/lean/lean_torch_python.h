// The binding for Python, for a translation unit that uses a name of it.
#pragma once
#include <lean_torch.h>

#ifdef LEAN_TORCH_WITH_PYTHON
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
