// A cluster: blocks that run at the same time on one worker, reach each other's shared memory, and have a barrier.
#pragma once

#include <vector>

#include "block.h"

namespace cuemu {

class Cluster {
 public:
  // Forgets the cluster before. Blocks join in the order of their ranks.
  void begin();
  void add(Block& block);

  const std::vector<Block*>& blocks() const { return blocks_; }
  unsigned size() const { return static_cast<unsigned>(blocks_.size()); }
  // For the checking mode, in clusters of several blocks.
  ClusterClock& clock() { return clock_; }
  // The block whose shared memory holds an address; null if there is none.
  Block* owner_of(const char* address) const;

  // Notes a thread's arrival at the barrier's current phase. Returns false if the thread has not waited for its last one.
  bool arrive(Thread& thread, bool releases);
  // Whether the phase at which a thread has arrived is over. If so, the thread comes behind all that released.
  bool has_passed(Thread& thread, bool acquires);
  // A thread of the cluster has ended: the barrier waits for it no longer.
  void forget(Thread& thread);
  // A block has ended. Returns whether all have.
  bool end_block() { return ++ended_ == size(); }

 private:
  void settle();
  const void* place_of(std::uint32_t phase) const { return &places_[phase & 1]; }

  std::vector<Block*> blocks_;
  ClusterClock clock_;
  std::uint32_t phase_ = 0;
  unsigned arrived_ = 0;
  unsigned ended_ = 0;
  char places_[2] = {};  // by phase, what arrivals publish
};

}  // namespace cuemu
