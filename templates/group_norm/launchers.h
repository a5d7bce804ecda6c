#include <cstdint>

namespace OP_NAMESPACE {

{% include "common/launch_status.h" %}

// What is added to x before it is normalised: nothing.
struct Shift {};

{% include "common/group_norm/launchers.h" %}

{% include "common/group_norm/forward_launcher.h" %}

}  // namespace OP_NAMESPACE
