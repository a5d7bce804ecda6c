#include "order.h"

#include <algorithm>

namespace cuemu {
namespace {

// Whether one of these locations published what a block did at a time, or the publisher knew of it.
bool is_published(const std::vector<Acquired>& acquired, std::uint32_t block, std::uint32_t time, bool is_own,
                  std::vector<Acquired>& visited) {
  for (const Acquired& one : acquired) {
    const bool known = std::any_of(visited.begin(), visited.end(), [&](const Acquired& other) {
      return other.of == one.of && other.entries >= one.entries;
    });
    if (known) continue;
    visited.push_back(one);
    const auto found = one.of->of_block.find(block);
    if (found != one.of->of_block.end()) {
      for (const std::size_t number : found->second) {
        const History::Entry& entry = one.of->entries[number];
        if (number < one.entries && (is_own ? entry.own_time : entry.time) > time) return true;
      }
    }
    for (std::size_t number = 0; number < one.entries; ++number) {
      const std::vector<Acquired>& behind = one.of->entries[number].known;
      if (!behind.empty() && is_published(behind, block, time, is_own, visited)) return true;
    }
  }
  return false;
}

}  // namespace

void BlockClock::begin(std::uint32_t linear, unsigned threads, ClusterClock* cluster, unsigned rank) {
  block_ = linear;
  threads_ = threads;
  time_ = 1;
  barrier_time_ = fence_time_ = own_fence_time_ = 0;
  has_stored_flag_ = false;
  acquired_.clear();
  seen_.clear();
  most_calls_ = 0;
  cluster_ = cluster;
  order_ = cluster == nullptr ? &own_order_ : &cluster->order;
  first_ = rank * threads;
  if (cluster == nullptr) own_order_.begin(threads);
}

void BlockClock::barrier() {
  barrier_time_ = tick();
  order_->meet_block(first_, threads_);
  seen_.clear();  // all lanes are now ordered after these
}

void BlockClock::sync_warp(unsigned warp, unsigned lanes) {
  if (order_->is_used()) return order_->meet(place_of(warp * kLanesOfWarp), lanes);
  if (seen_.empty()) seen_.resize(std::size_t{(threads_ + kLanesOfWarp - 1) / kLanesOfWarp} * kLanesOfWarp * kLanesOfWarp);
  std::uint32_t* const rows = seen_.data() + std::size_t{warp} * kLanesOfWarp * kLanesOfWarp;
  std::uint32_t joined[kLanesOfWarp] = {};
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(left));
    std::uint32_t* const row = rows + lane * kLanesOfWarp;
    if (row[lane] < Cell::kMostLaneClock) ++row[lane];
    else tell_full_clock();
    most_calls_ = std::max(most_calls_, row[lane]);
    for (unsigned i = 0; i < kLanesOfWarp; ++i) joined[i] = std::max(joined[i], row[i]);
  }
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    std::copy(joined, joined + kLanesOfWarp, rows + static_cast<unsigned>(__builtin_ctz(left)) * kLanesOfWarp);
  }
}

void BlockClock::acquire(const History& history) {
  const auto same = std::find_if(acquired_.begin(), acquired_.end(), [&](const Acquired& one) { return one.of == &history; });
  if (same != acquired_.end()) same->entries = history.entries.size();
  else if (!history.entries.empty()) acquired_.push_back({&history, history.entries.size()});
}

void BlockClock::release(History& history, unsigned thread) const {
  if (own_fence_time_ == 0 && acquired_.empty() && !has_stored_flag_) return;
  std::vector<std::size_t>& own = history.of_block[block_];
  std::vector<Acquired> known;
  for (const Acquired& one : acquired_) {
    if (one.of != &history) known.push_back(one);  // its entries are there already
  }
  if (!own.empty()) {
    const History::Entry& last = history.entries[own.back()];
    const auto same = [](const Acquired& left, const Acquired& right) {
      return left.of == right.of && left.entries == right.entries;
    };
    const bool claims_more = has_stored_flag_ && (last.claimed != time_ || last.thread != thread);
    if (!claims_more && last.own_time == own_fence_time_ &&
        std::equal(last.known.begin(), last.known.end(), known.begin(), known.end(), same)) {
      return;
    }
  }
  own.push_back(history.entries.size());
  history.entries.push_back({block_, fence_time_, own_fence_time_, time_, barrier_time_, thread, std::move(known)});
}

bool BlockClock::lacks_fence(const Cell& earlier, const History* own) const {
  if (earlier.block() == block_) return false;
  for (const Acquired& one : acquired_) {
    if (one.of == own) continue;
    const auto found = one.of->of_block.find(earlier.block());
    if (found == one.of->of_block.end()) continue;
    for (const std::size_t number : found->second) {
      const History::Entry& entry = one.of->entries[number];
      const bool is_claimed = entry.thread == earlier.thread() ? entry.claimed >= earlier.time()
                                                               : entry.claimed_by_others > earlier.time();
      if (number < one.entries && is_claimed) return true;
    }
  }
  return false;
}

bool BlockClock::is_behind(const Cell& earlier, const CopyView& copy) const {
  const std::int64_t place = place_of(earlier);
  if (place < 0) return is_behind(earlier, copy.thread);
  if (earlier.block() == block_ && earlier.time() < copy.barrier_time) return true;
  return ThreadOrder::reaches(copy.knowledge.known[static_cast<std::size_t>(place)], earlier.lane_clock());
}

bool BlockClock::lacks_proxy_fence(const Cell& earlier, const CopyView& copy) const {
  if (!copy.is_in_async_proxy) return false;
  const std::int64_t place = earlier.is_empty() || earlier.is_by_copy() ? -1 : place_of(earlier);
  return place >= 0 && !ThreadOrder::reaches(copy.knowledge.visible[static_cast<std::size_t>(place)], earlier.lane_clock());
}

int BlockClock::rank_in_cluster(std::uint32_t block) const {
  const auto found = std::find(cluster_->blocks.begin(), cluster_->blocks.end(), block);
  return found == cluster_->blocks.end() ? -1 : static_cast<int>(found - cluster_->blocks.begin());
}

std::int64_t BlockClock::place_of(const Cell& earlier) const {
  if (earlier.block() == block_) return place_of(earlier.thread());
  const int rank = cluster_ == nullptr ? -1 : rank_in_cluster(earlier.block());
  return rank < 0 ? -1 : std::int64_t{rank} * threads_ + earlier.thread();
}

bool BlockClock::knows_of(std::uint32_t block, unsigned thread) const {
  const int rank = rank_in_cluster(block);
  if (rank < 0) return false;
  const unsigned first = static_cast<unsigned>(rank) * threads_;
  for (unsigned other = first; other < first + threads_; ++other) {
    if (order_->knows(place_of(thread), other, 0)) return true;
  }
  return false;
}

bool BlockClock::is_behind_by_others(const Cell& earlier, unsigned thread) const {
  if (time_ == Cell::kMostTime) return true;  // the clock has reached its end, as the run says
  const std::int64_t place = place_of(earlier);
  if (place >= 0) {
    if (order_->is_used()) {
      if (order_->knows(place_of(thread), static_cast<unsigned>(place), earlier.lane_clock())) return true;
    } else if (earlier.thread() / kLanesOfWarp == thread / kLanesOfWarp && !seen_.empty()) {
      const std::uint32_t calls = seen_[thread * kLanesOfWarp + earlier.thread() % kLanesOfWarp];
      if (calls > earlier.lane_clock() || calls == Cell::kMostLaneClock) return true;
    }
  }
  if (acquired_.empty()) return false;
  std::vector<Acquired> visited;
  return is_published(acquired_, earlier.block(), earlier.time(), earlier.block() == block_, visited);
}

}  // namespace cuemu
