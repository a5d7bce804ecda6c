// The binding for Python, for a translation unit that uses a name of it.
#pragma once
#include <lean_torch.h>

#ifdef LEAN_TORCH_WITH_PYTHON
#include <lean_torch_binding.h>
#endif
