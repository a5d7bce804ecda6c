#include "thread_order.h"

#include <algorithm>

namespace cuemu {
namespace {

// Vectorised, since every meeting of a warp joins the views of its lanes.
__attribute__((optimize("O3"))) void join(std::uint32_t* __restrict into, const std::uint32_t* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = std::max(into[i], from[i]);
}

void join(std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& from) {
  if (into.empty()) into = from;
  else join(into.data(), from.data(), from.size());
}

void join(Knowledge& into, const Knowledge& from) {
  join(into.known, from.known);
  join(into.visible, from.visible);
}

}  // namespace

void ThreadOrder::use(unsigned clock, const std::vector<std::uint32_t>& seen) {
  constexpr unsigned kLanes = 32;
  if (is_used()) return;
  const std::vector<std::uint32_t> none(threads_, 0);
  views_.assign(threads_, Knowledge{none, none});
  for (unsigned thread = 0; thread < threads_; ++thread) {
    std::vector<std::uint32_t>& known = views_[thread].known;
    const unsigned first = thread / kLanes * kLanes;
    for (unsigned lane = 0; !seen.empty() && lane < kLanes && first + lane < threads_; ++lane) {
      known[first + lane] = seen[thread * kLanes + lane];
    }
    known[thread] = clock;
  }
}

void ThreadOrder::tick(unsigned thread) {
  std::uint32_t& own = views_[thread].known[thread];
  if (own < kMost) ++own;
  else tell_full_clock();
}

void ThreadOrder::meet_block(unsigned first, unsigned threads) {
  if (!is_used()) return;
  Knowledge all;
  for (unsigned thread = first; thread < first + threads; ++thread) {
    tick(thread);
    join(all, views_[thread]);
  }
  std::fill_n(views_.begin() + first, threads, all);
  if (threads != threads_) return;
  passed_.clear();  // everybody knows it
  in_phase_.clear();
}

void ThreadOrder::meet(unsigned first, unsigned lanes) {
  if (!is_used()) return;
  Knowledge all;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const unsigned thread = first + static_cast<unsigned>(__builtin_ctz(left));
    tick(thread);
    join(all, views_[thread]);
  }
  for (unsigned left = lanes; left != 0; left &= left - 1) views_[first + static_cast<unsigned>(__builtin_ctz(left))] = all;
}

void ThreadOrder::release(const void* place, unsigned thread) {
  tick(thread);
  join(passed_[place], views_[thread]);
}

void ThreadOrder::release(const void* place, const CopyView& copy) { join(passed_[place], copy.knowledge); }

void ThreadOrder::release_in_phase(const void* place, unsigned thread) {
  tick(thread);
  join(in_phase_[place], views_[thread]);
}

void ThreadOrder::release_in_phase(const void* place, const CopyView& copy) { join(in_phase_[place], copy.knowledge); }

void ThreadOrder::end_phase(const void* place) {
  const auto found = in_phase_.find(place);
  if (found == in_phase_.end()) return;
  join(passed_[place], found->second);
  in_phase_.erase(found);
}

void ThreadOrder::acquire(const void* place, unsigned thread) {
  const auto found = passed_.find(place);
  if (found != passed_.end()) join(views_[thread], found->second);
}

void ThreadOrder::fence_proxy(unsigned thread) {
  if (!is_used()) return;
  tick(thread);
  join(views_[thread].visible, views_[thread].known);
}

CopyView ThreadOrder::begin_copy(unsigned thread, std::uint32_t barrier_time) {
  const unsigned clock = this->clock(thread);
  tick(thread);
  return {thread, clock, barrier_time, views_[thread]};
}

}  // namespace cuemu
