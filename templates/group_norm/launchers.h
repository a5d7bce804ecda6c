#include <cstdint>

#if HALVES
struct __half;
struct __nv_bfloat16;
#endif

namespace OP_NAMESPACE {

// What x, y and their gradients hold; what weight, bias and their gradients do. All else is float.
using Element = ELEMENT;
using Weight = WEIGHT;

{% include "common/launch_status.h" %}

{% include "common/group_norm/launchers.h" %}

{% include "common/group_norm/forward_launcher.h" %}

}  // namespace OP_NAMESPACE
