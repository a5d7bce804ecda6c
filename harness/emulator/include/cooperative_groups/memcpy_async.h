// Copies by all threads of a group. A thread's own copies are done when the call returns. The
// copies of other threads are visible only after wait().
#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {

template <typename Group, typename Element>
CUEMU_INLINE void memcpy_async(const Group& group, Element* to, std::size_t to_count, const Element* from,
                               std::size_t from_count) {
  const std::size_t count = to_count < from_count ? to_count : from_count;
  for (std::size_t i = group.thread_rank(); i < count; i += group.num_threads()) to[i] = from[i];
}

template <typename Group, typename Element>
CUEMU_INLINE void memcpy_async(const Group& group, Element* to, const Element* from, std::size_t bytes) {
  const std::size_t whole = bytes / sizeof(Element);
  memcpy_async(group, to, whole, from, whole);
  const std::size_t done = whole * sizeof(Element);
  memcpy_async(group, reinterpret_cast<char*>(to) + done, bytes - done, reinterpret_cast<const char*>(from) + done,
               bytes - done);
}

template <typename Group>
void wait(const Group& group, int line = __builtin_LINE()) {
  group.sync(line);
}
template <unsigned Stages, typename Group>
void wait_prior(const Group& group, int line = __builtin_LINE()) {
  group.sync(line);
}

}  // namespace cooperative_groups
