// The order of accesses in a launch: clocks of blocks and lanes, and the knowledge that atomic
// operations pass on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "shadow.h"
#include "thread_order.h"

namespace cuemu {

struct History;

// A block's knowledge through an atomic location: everything published there up to some entry.
struct Acquired {
  const History* of;
  std::size_t entries;
};

// The publications of blocks at an atomic location, in order: what they had done before a fence,
// and what they knew.
struct History {
  struct Entry {
    std::uint32_t block;
    std::uint32_t time;      // for other blocks
    std::uint32_t own_time;  // for the block itself, which only needs a fence of the block
    // The time of what the block had done by then, with or without a fence: `claimed` for the thread,
    // `claimed_by_others` for the other threads of its block.
    std::uint32_t claimed;
    std::uint32_t claimed_by_others;
    unsigned thread;
    std::vector<Acquired> known;
  };
  std::vector<Entry> entries;
  std::unordered_map<std::uint32_t, std::vector<std::size_t>> of_block;  // the indices of the block's entries
};

// The order between the threads of a cluster's blocks.
struct ClusterClock {
  ThreadOrder order;
  std::vector<std::uint32_t> blocks;  // by rank, counted from 1
};

// One block's clock, while the block runs.
class BlockClock {
 public:
  // `linear` counts blocks from 1; 0 means no block.
  void begin(std::uint32_t linear, unsigned threads, ClusterClock* cluster, unsigned rank);

  std::uint32_t block() const { return block_; }
  std::uint32_t time() const { return time_; }
  unsigned lane_clock(unsigned thread) const {
    if (order_->is_used()) return order_->clock(place_of(thread));
    return seen_.empty() ? 0 : seen_[thread * kLanesOfWarp + thread % kLanesOfWarp];
  }
  ThreadOrder& threads() { return *order_; }
  // The number by which that order knows a thread of the block.
  unsigned place_of(unsigned thread) const { return first_ + thread; }
  // Tells the block's threads apart from now on, as mbarriers and named barriers need.
  void use_thread_order() { order_->use(most_calls_, seen_); }
  // Whether a block is this one or another one of the cluster.
  bool is_near(std::uint32_t block) const { return block == block_ || (cluster_ != nullptr && rank_in_cluster(block) >= 0); }
  // Whether what a thread does is ordered behind anything that a block of the cluster has done.
  bool knows_of(std::uint32_t block, unsigned thread) const;
  CopyView begin_copy(unsigned thread) {
    CopyView view = order_->begin_copy(place_of(thread), barrier_time_);
    view.thread = thread;
    return view;
  }

  void barrier();
  void fence(bool of_device) {
    own_fence_time_ = tick();
    if (of_device) fence_time_ = own_fence_time_;
  }
  // Notes a volatile store to global memory. From then on the clock tells apart what atomic
  // operations claim.
  void store_flag() {
    has_stored_flag_ = true;
    tick();
  }
  // Whether the block has passed a fence of its own. A volatile store to shared memory after a
  // fence is a flag.
  bool has_fenced() const { return own_fence_time_ != 0; }
  // Notes that `lanes` of a warp have met in a __syncwarp().
  void sync_warp(unsigned warp, unsigned lanes);
  // Notes an atomic operation on a location: it takes over earlier knowledge and passes on its own.
  void acquire(const History& history);
  void release(History& history, unsigned thread) const;

  // Whether an access is ordered before everything that `thread` of this block does now. Its own
  // accesses are.
  bool is_behind(const Cell& earlier, unsigned thread) const {
    if (earlier.block() == block_ && (earlier.thread() == thread || earlier.time() < barrier_time_)) return true;
    return is_behind_by_others(earlier, thread);
  }
  // Whether another block's access precedes an atomic operation of that block which this block
  // knows of, without a fence in between. Atomic operations on the accessed address itself do not
  // count.
  bool lacks_fence(const Cell& earlier, const History* own) const;
  // The same as is_behind for what an asynchronous copy does.
  bool is_behind(const Cell& earlier, const CopyView& copy) const;
  // Whether a thread's access precedes the copy, but the asynchronous proxy need not see it.
  bool lacks_proxy_fence(const Cell& earlier, const CopyView& copy) const;

 private:
  static constexpr unsigned kLanesOfWarp = 32;
  // The same as is_behind, without the thread's own order and the block's barriers.
  bool is_behind_by_others(const Cell& earlier, unsigned thread) const;
  std::uint32_t tick() {
    if (time_ < Cell::kMostTime) return ++time_;
    tell_full_clock();
    return time_;
  }

  std::uint32_t block_ = 0;
  unsigned threads_ = 0;
  std::uint32_t time_ = 1;
  std::uint32_t barrier_time_ = 0;
  std::uint32_t fence_time_ = 0;
  std::uint32_t own_fence_time_ = 0;
  bool has_stored_flag_ = false;
  std::vector<Acquired> acquired_;
  // For each thread and each lane of its warp, the number of that lane's __syncwarp() calls that
  // are ordered before the thread. Empty before the first call.
  std::vector<std::uint32_t> seen_;
  std::uint32_t most_calls_ = 0;  // of a lane, since the block began
  int rank_in_cluster(std::uint32_t block) const;
  // The number by which the order knows the thread of an access; negative for threads of blocks elsewhere.
  std::int64_t place_of(const Cell& earlier) const;
  ThreadOrder own_order_;
  ThreadOrder* order_ = &own_order_;  // the cluster's if there is one
  const ClusterClock* cluster_ = nullptr;
  unsigned first_ = 0;  // the place of the block's first thread
};

}  // namespace cuemu
