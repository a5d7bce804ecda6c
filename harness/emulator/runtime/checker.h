// The checking mode. The callbacks of a checked build (sanitizer.cpp) report each access of a
// kernel, and the checker reports faults.
//
// Two accesses to one byte by two threads of a launch are a race, except in these cases: both read;
// both are atomic; both store the same value (programs set flags that way); or one is ordered
// before the other. The order comes from a barrier of the block or the grid, from a __syncwarp() of
// both lanes, or from this chain: the first access, a fence, an atomic operation, a later atomic
// operation on the same address, and the second access.
//
// Volatile accesses to global memory count as atomic, since programs use them for flags. But if a
// counter announces a volatile store and no fence came between, that is a race. In shared memory,
// volatile loads count as atomic, and volatile stores do so after a fence.
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

// The effect of an instrumented access. An atomic update reads and writes.
struct Touch {
  const char* address;
  std::size_t bytes;
  bool reads;
  bool writes;
  bool is_atomic;
  bool is_volatile;
  const void* code;  // the return address of the callback
  bool compares = false;  // an atomic update that looks at the old value, such as a compare-and-swap
  bool is_of_block = false;  // an atomic operation of the block's scope
  bool begins_update = false;   // the load with which a loop begins that updates atomically
  bool belongs_to_it = false;   // the compare-and-swap of this loop
  unsigned reduction = 0;       // of an update whose result nobody uses: its kind (cuemu/atomics.h)
};

// A plain read of a value that others update atomically. It is no fault if an atomic update follows
// that compares, because that update notices an old value. Other reads of the same line that needed
// no update are no fault either.
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

// The checker's data about each thread.
struct Conduct {
  Spin spin;
  Doubt doubt;
  // In an exploration, the last plain read, which other threads may follow before the thread goes on.
  const char* read_address;
  const void* read_code;
  bool has_fenced_registers;  // by wgmma.fence
  bool has_fenced_cluster;  // so that its relaxed arrivals at the cluster's barrier publish
};

// Whether launches are checked. One OS thread then runs all blocks of a launch.
extern std::atomic<bool> checking;
inline bool is_checking() { return checking.load(std::memory_order_relaxed); }

void begin_checked_launch(const char* kernel, const Config& config, const void* code);
void check_access(Touch touch);
// An access outside kernels. Reports one to memory that is the device's alone.
void check_host_access(const Touch& touch);
// A product of a warpgroup begins that will read these bytes of shared memory; at its end it has read them.
void check_product_begin(Block& block, const CopyView& view, const WarpgroupProduct& product, const char* address, std::size_t bytes);
void check_product_read(Block& block, const CopyView& view, const WarpgroupProduct& product, const char* address, std::size_t bytes);
// Reports a product whose registers no wgmma.fence has handed over.
void check_product_fence(const WarpgroupProduct& product);
// The block, or the launch, has ended.
void end_checked_block(Block& block);
// Doubts of a launch that was broken off come to nothing.
void end_checked_launch(bool is_whole = true);
// The number of faults so far, also of those that were reported before.
std::size_t faults_seen();
// Orders everything before the grid's barrier before everything after it, in all blocks.
void check_grid_barrier();
// Reports that a thread has read from a lane that does not take part.
void check_absent_lane(uint3 thread, uint3 block, const char* operation, unsigned lane, int line);
// Reports an integer operation that left its range.
void tell_overflow(const void* code, const char* operation, const char* type);
// Whether an out-of-bounds access was reported at its line since the launch began.
bool has_reported_bounds();

}  // namespace cuemu
