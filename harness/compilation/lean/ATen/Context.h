// An operator's header includes this and uses nothing of it: the original comes for whoever else asks.
#ifndef LEAN_TORCH_OPERATORS
#include_next <ATen/Context.h>
#endif
