// What is ordered before what in a launch: clocks of blocks and lanes, and what atomic operations pass on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "shadow.h"

namespace cuemu {

struct History;

// What a block knows through an atomic location: everything that was published there up to some entry.
struct Acquired {
  const History* of;
  std::size_t entries;
};

// What blocks published at an atomic location, in order: what they had done before a fence, and what they knew.
struct History {
  struct Entry {
    std::uint32_t block;
    std::uint32_t time;      // for other blocks
    std::uint32_t own_time;  // for the block itself, for which a fence of the block is enough
    // What it had done by then, with a fence or without: the thread by this time, the others by that one.
    std::uint32_t claimed;
    std::uint32_t claimed_by_others;
    unsigned thread;
    std::vector<Acquired> known;
  };
  std::vector<Entry> entries;
  std::unordered_map<std::uint32_t, std::vector<std::size_t>> of_block;  // numbers of its entries
};

// One block's clock, for as long as it runs.
class BlockClock {
 public:
  // `linear` counts blocks from 1: 0 is nobody.
  void begin(std::uint32_t linear, unsigned threads);

  std::uint32_t block() const { return block_; }
  std::uint32_t time() const { return time_; }
  unsigned lane_clock(unsigned thread) const { return seen_.empty() ? 0 : seen_[thread * kLanesOfWarp + thread % kLanesOfWarp]; }

  void barrier();
  void fence(bool of_device) {
    own_fence_time_ = tick();
    if (of_device) fence_time_ = own_fence_time_;
  }
  // A volatile store to global memory is made: what atomic operations claim is told apart from then on.
  void store_flag() {
    has_stored_flag_ = true;
    tick();
  }
  // Whether a fence of the block came before: what a volatile store to shared memory that follows one is, is a flag.
  bool has_fenced() const { return own_fence_time_ != 0; }
  // `lanes` of a warp have met in a __syncwarp().
  void sync_warp(unsigned warp, unsigned lanes);
  // An atomic operation on a location: what it takes over from earlier ones, and what it passes on.
  void acquire(const History& history);
  void release(History& history, unsigned thread) const;

  // Whether an access is ordered before everything that `thread` of this block does now; one of its own is.
  bool is_behind(const Cell& earlier, unsigned thread) const {
    if (earlier.block() == block_ && (earlier.thread() == thread || earlier.time() < barrier_time_)) return true;
    return is_behind_by_others(earlier, thread);
  }
  // Whether another block's access came before an atomic operation of its own that this block knows of, though
  // without a fence between; atomic operations on the accessed address itself say nothing.
  bool lacks_fence(const Cell& earlier, const History* own) const;

 private:
  static constexpr unsigned kLanesOfWarp = 32;
  // The same where neither the thread's own order nor a barrier of the block says so.
  bool is_behind_by_others(const Cell& earlier, unsigned thread) const;
  std::uint32_t tick() { return time_ < Cell::kMostTime ? ++time_ : time_; }

  std::uint32_t block_ = 0;
  unsigned threads_ = 0;
  std::uint32_t time_ = 1;
  std::uint32_t barrier_time_ = 0;
  std::uint32_t fence_time_ = 0;
  std::uint32_t own_fence_time_ = 0;
  bool has_stored_flag_ = false;
  std::vector<Acquired> acquired_;
  // By thread, for each lane of its warp: how many of that lane's __syncwarp() calls it is behind. Empty before any.
  std::vector<std::uint16_t> seen_;
};

}  // namespace cuemu
