// The order of accesses between the threads of one block, or of one cluster of blocks, for kernels with mbarriers or named barriers. Each thread
// counts its own releases. What a thread knows of another is the number of that thread's releases that are ordered
// before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "shadow.h"

namespace cuemu {

// Says that a count of the launch has reached its end, so that the order of later accesses is not known.
void tell_full_clock();

// By thread: the releases that are known, and those whose accesses the asynchronous proxy sees (fence.proxy.async).
struct Knowledge {
  std::vector<std::uint32_t> known, visible;
};

// The view of an asynchronous copy: that of its thread at the copy's begin, or when an mbarrier began to count the copy.
struct CopyView {
  unsigned thread;  // of its block
  unsigned clock;
  std::uint32_t barrier_time;  // of the block's last barrier before the copy began
  Knowledge knowledge;
  bool is_in_async_proxy = true;
};

class ThreadOrder {
 public:
  void begin(unsigned threads) {
    threads_ = threads;
    views_.clear();
    passed_.clear();
    in_phase_.clear();
  }
  // Tells threads apart from now on. `clock` is the largest of a lane so far, and `seen` what lanes of a warp know.
  void use(unsigned clock, const std::vector<std::uint32_t>& seen);
  bool is_used() const { return !views_.empty(); }
  unsigned clock(unsigned thread) const { return views_[thread].known[thread]; }

  // An access of `other` at its clock is ordered before what `thread` does now.
  bool knows(unsigned thread, unsigned other, unsigned clock) const { return reaches(views_[thread].known[other], clock); }
  static bool reaches(unsigned releases, unsigned clock) { return releases > clock || releases == kMost; }

  // Threads from `first` on have met in a barrier of their block, or those of a mask.
  void meet_block(unsigned first, unsigned threads);
  void meet(unsigned first, unsigned lanes);
  // Passes on what a thread, or a copy, knows to whoever waits at a place; takes it over from there.
  void release(const void* place, unsigned thread);
  void release(const void* place, const CopyView& copy);
  void acquire(const void* place, unsigned thread);
  // The same at a barrier with phases, from which others take over what was passed on in phases that are over.
  void release_in_phase(const void* place, unsigned thread);
  void release_in_phase(const void* place, const CopyView& copy);
  void end_phase(const void* place);
  void forget(const void* place) {
    passed_.erase(place);
    in_phase_.erase(place);
  }
  // Lets the asynchronous proxy see everything that is ordered before the thread's fence.
  void fence_proxy(unsigned thread);
  CopyView begin_copy(unsigned thread, std::uint32_t barrier_time);

 private:
  static constexpr unsigned kMost = Cell::kMostLaneClock;
  void tick(unsigned thread);

  unsigned threads_ = 0;
  std::vector<Knowledge> views_;  // by thread
  std::unordered_map<const void*, Knowledge> passed_, in_phase_;
};

}  // namespace cuemu
