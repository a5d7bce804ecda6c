// An operator's header includes this one and uses none of it. Other code gets the original.
#ifndef LEAN_TORCH_OPERATORS
#include_next <ATen/DeviceGuard.h>
#endif
