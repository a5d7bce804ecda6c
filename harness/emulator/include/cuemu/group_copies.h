// Copies that the threads of a group do together, as asynchronous ones where a GPU does so: from global to shared memory, in
// pieces of at least 4 bytes.
#pragma once

#include "line.h"
#include "ptx.h"

namespace cuemu {

// A size in bytes may promise an alignment, as cuda::aligned_size_t does.
template <typename Size>
constexpr std::size_t alignment_of_size() {
  if constexpr (requires { Size::align; }) return Size::align;
  else return 1;
}
template <typename To, typename From>
constexpr std::size_t alignment_of_copy() {
  if constexpr (std::is_same_v<To, From> && !std::is_void_v<To>) return alignof(To);
  else return 1;
}

struct SingleThread {
  static constexpr unsigned size() { return 1; }
  static constexpr unsigned thread_rank() { return 0; }
};

template <typename Piece, typename Group>
CUEMU_INLINE void copy_plain(const Group& group, char* to, const char* from, std::size_t bytes) {
  for (std::size_t at = group.thread_rank() * sizeof(Piece); at < bytes; at += group.size() * sizeof(Piece)) {
    *reinterpret_cast<Piece*>(to + at) = *reinterpret_cast<const Piece*>(from + at);
  }
}

// Begins a group's copy between places with a known alignment. The threads' parts are in no group of copies yet.
template <typename Group>
CUEMU_INLINE void copy_in_group(const Group& group, char* to, const char* from, std::size_t bytes, std::size_t alignment,
                                Line line) {
  if (alignment < 4) return copy_plain<char>(group, to, from, bytes);
  const std::uint32_t piece = alignment >= 16 ? 16 : alignment >= 8 ? 8 : 4;
  check_alignment(to, piece, "memcpy_async", line.number);
  check_alignment(from, piece, "memcpy_async", line.number);
  check_alignment(reinterpret_cast<const char*>(bytes), piece, "memcpy_async", line.number);
  if (!is_shared(to) || is_shared(from)) return copy_plain<std::uint32_t>(group, to, from, bytes);
  for (std::size_t at = group.thread_rank() * piece; at < bytes; at += group.size() * piece) {
    ptx::copy_async(to + at, from + at, piece, piece, line.number);
  }
}

}  // namespace cuemu
