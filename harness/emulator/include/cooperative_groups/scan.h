// Prefix operations over tiles and coalesced groups.
#pragma once

#include "../cuemu/group_operators.h"

namespace cooperative_groups {

// Returns op over the values of the threads up to the calling one, including it.
template <typename Group, typename Value, typename Operator>
Value inclusive_scan(const Group& group, Value value, Operator&& op, int line = __builtin_LINE()) {
  const unsigned rank = group.thread_rank();
  for (unsigned offset = 1; offset < group.num_threads(); offset *= 2) {
    const Value other = group.shfl_up(value, offset, line);
    if (offset <= rank) value = op(other, value);
  }
  return value;
}
template <typename Group, typename Value>
Value inclusive_scan(const Group& group, Value value, int line = __builtin_LINE()) {
  return inclusive_scan(group, value, plus<Value>(), line);
}

// Returns op over the values of the threads before the calling one. The first thread gets the
// operator's identity, or zero.
template <typename Group, typename Value, typename Operator>
Value exclusive_scan(const Group& group, Value value, Operator&& op, int line = __builtin_LINE()) {
  const Value before = group.shfl_up(inclusive_scan(group, value, op, line), 1, line);
  if (group.thread_rank() != 0) return before;
  if constexpr (requires { op.identity(); }) return op.identity();
  else return Value();
}
template <typename Group, typename Value>
Value exclusive_scan(const Group& group, Value value, int line = __builtin_LINE()) {
  return exclusive_scan(group, value, plus<Value>(), line);
}

}  // namespace cooperative_groups
