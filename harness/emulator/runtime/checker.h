// The checking mode: what kernels access, told by the callbacks of a checked build (sanitizer.cpp), and what is wrong
// with it.
//
// Two accesses to one byte by two threads of a launch are a race unless both read, both are atomic, both store the same
// value (flags are set that way), or one is ordered before the other: by a barrier of the block or the grid, by a
// __syncwarp() of both lanes, or by a fence behind the first, an atomic operation, and one on the same address that
// follows it, before the second. Volatile accesses to global memory count as atomic, since flags are made of them; but
// where a counter says that a volatile store is done, and no fence came between, that is a race. In shared memory they
// are atomic as loads, and as stores behind a fence.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuemu/runtime.h"
#include "order.h"
#include "shared_arena.h"

namespace cuemu {

class Block;
class Worker;

// What an instrumented access does; an atomic update reads and writes.
struct Touch {
  const char* address;
  std::size_t bytes;
  bool reads;
  bool writes;
  bool is_atomic;
  bool is_volatile;
  const void* code;  // the return address of the callback
  bool compares = false;  // an atomic update that looks at the old value, as a compare-and-swap does
};

// A plain read of what others update atomically; it is no fault where an atomic update follows that compares: it sees
// by itself whether the value was old. Nor are the same line's other reads, behind which the update was not needed.
struct Doubt {
  static constexpr unsigned kPatience = 8;  // accesses of the reader
  const char* address;                      // null for no doubt
  unsigned left;
  Touch touch;
  Cell earlier;
};

// A thread that reads the same values again and again waits for others.
struct Spin {
  static constexpr unsigned kPlaces = 4;
  const char* addresses[kPlaces];
  std::uint64_t values[kPlaces];
  unsigned places;
  unsigned reads;
  unsigned turns;
  std::uint64_t progress;
};

// What the checker keeps of each thread.
struct Conduct {
  Spin spin;
  Doubt doubt;
};

// Whether launches are checked: one OS thread then runs all blocks of a launch.
extern std::atomic<bool> checking;
inline bool is_checking() { return checking.load(std::memory_order_relaxed); }

void begin_checked_launch(const char* kernel, const Config& config);
void check_access(Touch touch);
// A block, the launch has come to its end.
void end_checked_block(Block& block);
void end_checked_launch();
// Everything before is ordered before everything behind, in all blocks.
void check_grid_barrier();
// A thread has read from a lane that does not take part.
void check_absent_lane(uint3 thread, uint3 block, const char* operation, unsigned lane, int line);
// An operation on integers that left their range.
void tell_overflow(int line, const char* operation, const char* type);
// Whether an out-of-bounds access was reported at its line since the launch began.
bool has_reported_bounds();

}  // namespace cuemu
