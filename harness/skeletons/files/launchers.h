#include <cstdint>

namespace OP_NAMESPACE {

{% include "$common/launch_status.h" %}

// Writes y: `count` floats, like x.
LaunchStatus launch_stage(const float* x, float* y, int64_t count, int device, void* stream);

// Writes dx and never accumulates: `count` floats, like x.
LaunchStatus launch_stage_gradient(const float* dy, const float* x, float* dx, int64_t count, int device, void* stream);

}  // namespace OP_NAMESPACE
