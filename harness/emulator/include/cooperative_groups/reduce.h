// Reductions over tiles and coalesced groups.
#pragma once

#include "../cuemu/group_operators.h"

namespace cooperative_groups {

// Returns op over the values of all threads of the group, to each of them.
template <typename Group, typename Value, typename Operator>
Value reduce(const Group& group, Value value, Operator&& op, int line = __builtin_LINE()) {
  const unsigned rank = group.thread_rank(), size = group.num_threads();
  for (unsigned offset = 1; offset < size; offset *= 2) {
    const Value other = group.shfl_down(value, offset, line);
    if (offset < size - rank) value = op(value, other);
  }
  return group.shfl(value, 0, line);
}

}  // namespace cooperative_groups
