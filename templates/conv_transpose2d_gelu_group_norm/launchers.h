#include <cstdint>

namespace OP_NAMESPACE {

using Element = float;  // of x, y and their gradients
using Weight = float;   // of weight, bias and their gradients

{% include "common/launch_status.h" %}

// In what follows x is what the convolution wrote.

{% if shifted %}
// What is added to it before it is normalised: the convolution's bias (channels).
struct Shift {
  const float* values;
};

{% endif %}
{% include "common/group_norm/launchers.h" %}

{% if gathers %}
// Writes y like x, and mean and rstd of what is normalised, each (samples, groups), from the moments of every channel
// of a sample, so many parts each.
LaunchStatus launch_forward_gathered(const float* x, {% if shifted %}const Shift& shift, {% endif %}const float* moments, int64_t parts,
                                     const float* weight, const float* bias, const Shape& shape, float eps, float* y,
                                     float* mean, float* rstd, int device, void* stream);
{% endif %}
{% if passes %}
{% include "common/group_norm/forward_launcher.h" %}
{% endif %}
{% if convolution == "direct" %}

{% include "common/transposed_convolution/launchers.h" %}
{% endif %}
{% if convolution == "tensor" %}

{% include "common/transposed_convolution/tensor/launchers.h" %}
{% endif %}

}  // namespace OP_NAMESPACE
