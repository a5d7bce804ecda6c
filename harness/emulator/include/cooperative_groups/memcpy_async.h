// Asynchronous copies by all threads of a group. Each thread waits for its own part, and the group's barrier follows.
#pragma once

#include "../cooperative_groups.h"
#include "../cuemu/group_copies.h"

namespace cooperative_groups {

// Copies the bytes up to the first multiple of 4 and behind the last one at once, as CUDA does.
template <typename Group, typename To, typename From, typename Size>
CUEMU_INLINE void memcpy_async(const Group& group, To* to, const From* from, const Size& size, CUEMU_LINE) {
  constexpr std::size_t of_type = ::cuemu::alignment_of_copy<To, From>(), of_size = ::cuemu::alignment_of_size<Size>();
  constexpr std::size_t alignment = of_type > of_size ? of_type : of_size;
  char* there = reinterpret_cast<char*>(to);
  const char* here = reinterpret_cast<const char*>(from);
  std::size_t bytes = static_cast<std::size_t>(size);
  if constexpr (alignment >= 4) {
    ::cuemu::copy_in_group(group, there, here, bytes, alignment, line);
  } else if ((reinterpret_cast<std::uintptr_t>(there) - reinterpret_cast<std::uintptr_t>(here)) % 4 != 0) {
    ::cuemu::copy_plain<char>(group, there, here, bytes);
  } else {
    std::size_t first = -reinterpret_cast<std::uintptr_t>(there) % 4;
    if (first > bytes) first = bytes;
    const std::size_t middle = (bytes - first) / 4 * 4, last = first + middle;
    ::cuemu::copy_plain<char>(group, there, here, first);
    ::cuemu::copy_in_group(group, there + first, here + first, middle, 4, line);
    ::cuemu::copy_plain<char>(group, there + last, here + last, bytes - last);
  }
  ::cuemu::commit_async_copies(false);
}
template <typename Group, typename Element, typename ToCount, typename FromCount>
CUEMU_INLINE void memcpy_async(const Group& group, Element* to, const ToCount& to_count, const Element* from,
                               const FromCount& from_count, CUEMU_LINE) {
  const std::size_t count = to_count < from_count ? to_count : from_count;
  memcpy_async(group, to, from, count * sizeof(Element), line);
}

template <unsigned stages, typename Group>
CUEMU_INLINE void wait_prior(const Group& group, CUEMU_LINE) {
  ::cuemu::ptx::wait_for_copies(false, stages);
  group.sync(line.number);
}
template <typename Group>
CUEMU_INLINE void wait(const Group& group, CUEMU_LINE) {
  wait_prior<0>(group, line);
}

}  // namespace cooperative_groups
