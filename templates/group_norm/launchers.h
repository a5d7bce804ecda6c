#include <cstdint>

namespace OP_NAMESPACE {

{% include "common/launch_status.h" %}

// x is (samples, channels, spatial), contiguous; a group is `channels / groups` neighbouring channels of one sample.
struct Shape {
  int64_t samples;
  int64_t channels;
  int64_t groups;
  int64_t spatial;
};

// Floats of scratch memory that the launchers below want.
int64_t forward_scratch(const Shape& shape);
int64_t backward_scratch(const Shape& shape);

// Writes y like x, and mean and rstd, each (samples, groups).
LaunchStatus launch_forward(const float* x, const float* weight, const float* bias, const Shape& shape, float eps,
                            float* y, float* mean, float* rstd, float* scratch, int device, void* stream);

// Writes (never accumulates) those of dx like x, dweight and dbias (channels) that are not null.
LaunchStatus launch_backward(const float* dy, const float* x, const float* weight, const float* mean,
                             const float* rstd, const Shape& shape, float* dx, float* dweight, float* dbias,
                             float* scratch, int device, void* stream);

}  // namespace OP_NAMESPACE
