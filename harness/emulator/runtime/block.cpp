#include "block.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cluster.h"
#include "exploration.h"

namespace cuemu {

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

uint3 index_in(std::uint64_t linear, const dim3& sizes) {
  const std::uint64_t row = linear / sizes.x;
  return {static_cast<unsigned>(linear % sizes.x), static_cast<unsigned>(row % sizes.y),
          static_cast<unsigned>(row / sizes.y)};
}

void Block::begin_launch(const Launch& launch) {
  launch_ = &launch;
  const dim3& sizes = launch.config.block;
  size_ = sizes.x * sizes.y * sizes.z;
  threads_.resize(size_);
  start_order_.resize(size_);
  for (unsigned i = 0; i < size_; ++i) {
    start_order_[i] = static_cast<std::uint16_t>(launch.order == Order::reverse ? size_ - 1 - i : i);
  }
  arena_.begin_launch(launch.config.shared_bytes);
}

void Block::order_threads() {
  random_ = launch_->seed ^ (number_ * 0xD6E8FEB86659FD93u);
  for (unsigned i = 0; i < size_; ++i) start_order_[i] = static_cast<std::uint16_t>(i);
  for (unsigned i = size_ - 1; i > 0; --i) std::swap(start_order_[i], start_order_[next_random(random_) % (i + 1)]);
}

// As in probabilistic concurrency testing (Burckhardt and others, ASPLOS 2010): the warp that goes first runs as far as
// it can, and now and then one falls behind all others. So a warp may be late by any distance, often or hardly ever.
void Block::order_warps() {
  constexpr std::uint64_t kDelayMasks[] = {63, 1023, 16383, ~std::uint64_t{0}};
  const unsigned warps = (size_ + kLanes - 1) / kLanes;
  for (unsigned i = 0; i < warps; ++i) ranks_[i] = static_cast<std::uint8_t>(i);
  for (unsigned i = warps - 1; i > 0; --i) std::swap(ranks_[i], ranks_[next_random(random_) % (i + 1)]);
  delay_mask_ = kDelayMasks[next_random(random_) % std::size(kDelayMasks)];
}

unsigned Block::first_place() const {
  unsigned place = 0;
  while ((ready_warps_ >> ranks_[place] & 1) == 0) ++place;
  return place;
}

void Block::put_last(unsigned place) {
  std::rotate(ranks_ + place, ranks_ + place + 1, ranks_ + (size_ + kLanes - 1) / kLanes);
}

Thread* Block::take_by_rank() {
  if ((next_random(random_) & delay_mask_) == 0) put_last(first_place());
  const unsigned warp = ranks_[first_place()];
  Thread* const taken = ready_of_[warp].pop();
  if (ready_of_[warp].first == nullptr) ready_warps_ &= ~(1u << warp);
  return taken;
}

// A warp that waits in a loop mostly lets all others go first.
void Block::let_wait(Thread& thread) {
  make_ready(thread);
  if (launch_->order != Order::random || (next_random(random_) & 3) == 0) return;
  const std::uint8_t warp = static_cast<std::uint8_t>(thread.linear / kLanes);
  put_last(static_cast<unsigned>(std::find(ranks_, std::end(ranks_), warp) - ranks_));
}

void Block::begin(std::uint64_t number, ClusterClock* clock, unsigned rank) {
  number_ = number;
  index_ = index_in(number, launch_->config.grid);
  if (launch_->order == Order::random) order_threads();
  live_ = size_;
  next_start_ = at_barrier_ = 0;
  barrier_sum_ = 0;
  for (NamedBarrier& one : named_) one = {0, 0};
  waits_for_grid_ = spinning = parked = false;
  at_cluster_barrier_ = 0;
  join(nullptr, rank);
  ready_ = {};
  ready_warps_ = 0;
  for (Queue& queue : ready_of_) queue = {};
  if (launch_->order == Order::random) order_warps();
  for (unsigned first = 0; first < live_; first += kLanes) {
    const unsigned lanes = live_ - first;
    warps_[first / kLanes] = {lanes >= kLanes ? ~0u : (1u << lanes) - 1, 0, 0, 0};
  }
  if (is_checking()) {
    clock_.begin(static_cast<std::uint32_t>(number % Cell::kMostBlocks) + 1, size_, clock, rank);
    conduct_.assign(size_, Conduct{});
  }
  copies_.begin(size_);
  if (is_checking()) products_.begin();
  arena_.begin_block();
}

const std::uint16_t* Block::take_threads(const Thread& first) {
  for (unsigned i = 0; i < size_; i += kLanes) warps_[i / kLanes].live = 0;
  warps_[first.linear / kLanes].live = 1u << first.linear % kLanes;
  live_ = 1;
  next_start_ = size_;
  return start_order_.data();
}

void Block::end_thread(Thread& thread) {
  thread.state = State::ended;
  thread.stack = nullptr;
  --live_;
  const unsigned number = thread.linear / kLanes;
  Warp& warp = warps_[number];
  warp.live &= ~(1u << thread.linear % kLanes);
  if (at_barrier_ > 0 && at_barrier_ == live_) complete_barrier();
  if (warp.arrived != 0) {
    for (unsigned left = warp.arrived; left != 0; left &= left - 1) {
      const unsigned lane = static_cast<unsigned>(__builtin_ctz(left));
      if ((warp.arrived >> lane & 1) != 0) complete_warp_operation(number, lane);
    }
  }
  if (warp.converging != 0) lane_stopped(number);
  if (cluster_ != nullptr) cluster_->forget(thread);
}

void Block::complete_barrier() {
  const Barrier kind = static_cast<Barrier>(first_at_barrier_->operation);
  if (kind == Barrier::grid && !waits_for_grid_) {
    waits_for_grid_ = true;
    return;
  }
  waits_for_grid_ = false;
  barrier_result_ = kind == Barrier::conjunction   ? barrier_sum_ == static_cast<int>(at_barrier_)
                    : kind == Barrier::disjunction ? barrier_sum_ > 0
                                                   : barrier_sum_;
  barrier_sum_ = 0;
  at_barrier_ = 0;
  if (is_checking()) clock_.barrier();
  if (launch_->exploration != nullptr) meet_in_exploration();
  for (unsigned i = 0; i < next_start_; ++i) {
    Thread& thread = threads_[start_order_[i]];
    if (thread.state == State::at_barrier) leave_barrier(thread);
  }
}

void Block::become_ready_in_exploration(Thread& thread) {
  Exploration& exploration = *launch_->exploration;
  exploration.become_ready(exploration.fiber(*this, thread));
}

// A thread that has ended is among them: without its end the others would still wait.
void Block::meet_in_exploration(unsigned first, unsigned lanes) {
  std::vector<Exploration::Fiber*> met;
  for (unsigned i = first; i < std::min(first + kLanes, size_); ++i) {
    if (lanes >> (i - first) & 1) met.push_back(&launch_->exploration->fiber(*this, threads_[i]));
  }
  launch_->exploration->meet(met, false);
}

void Block::meet_in_exploration() {
  std::vector<Exploration::Fiber*> met;
  for (const Thread& thread : threads_) {
    if (thread.state == State::at_barrier || thread.state == State::ended) met.push_back(&launch_->exploration->fiber(*this, thread));
  }
  launch_->exploration->meet(met, true);
}

void Block::leave_barrier(Thread& thread) {
  warps_[thread.linear / kLanes].at_barrier &= ~(1u << thread.linear % kLanes);
  make_ready(thread);
}

void Block::wait_for_cluster(Thread& thread) {
  const unsigned warp = thread.linear / kLanes;
  thread.state = State::at_cluster_barrier;
  ++at_cluster_barrier_;
  warps_[warp].at_barrier |= 1u << thread.linear % kLanes;
  if (warps_[warp].converging != 0) lane_stopped(warp);
}

void Block::leave_cluster_barrier() {
  for (unsigned i = 0; i < next_start_ && at_cluster_barrier_ != 0; ++i) {
    Thread& thread = threads_[start_order_[i]];
    if (thread.state != State::at_cluster_barrier) continue;
    --at_cluster_barrier_;
    leave_barrier(thread);
  }
}

unsigned Block::arrive_at_named_barrier(Thread& thread, unsigned number, unsigned threads, bool waits) {
  NamedBarrier& barrier = named_[number];
  if (barrier.arrived != 0 && barrier.threads != threads) return barrier.threads;
  barrier.threads = threads;
  if (is_checking()) {
    clock_.use_thread_order();
    clock_.threads().release(&barrier, clock_.place_of(thread.linear));
  }
  const unsigned warp = thread.linear / kLanes;
  if (waits) {
    thread.state = State::at_named_barrier;
    thread.operation = static_cast<int>(number);
    warps_[warp].at_barrier |= 1u << thread.linear % kLanes;
  }
  Exploration* const exploration = launch_->exploration;
  if (exploration != nullptr) exploration->arrived(exploration->fiber(*this, thread), &barrier, barrier.arrived + 1 == threads, 0, 1);
  if (++barrier.arrived < threads) {
    if (waits && warps_[warp].converging != 0) lane_stopped(warp);
    return threads;
  }
  barrier.arrived = 0;
  for (unsigned i = 0; i < next_start_; ++i) {
    Thread& other = threads_[start_order_[i]];
    if (other.state != State::at_named_barrier || other.operation != static_cast<int>(number)) continue;
    if (is_checking()) clock_.threads().acquire(&barrier, clock_.place_of(other.linear));
    if (exploration != nullptr) exploration->acquire(exploration->fiber(*this, other), &barrier);
    leave_barrier(other);
  }
  if (is_checking()) clock_.threads().forget(&barrier);
  return threads;
}

void Block::arrive_at_warp_operation(Thread& thread) {
  const unsigned lane = thread.linear % kLanes;
  const unsigned warp = thread.linear / kLanes;
  thread.state = State::at_warp_operation;
  warps_[warp].arrived |= 1u << lane;
  if (!complete_warp_operation(warp, lane) && warps_[warp].converging != 0) lane_stopped(warp);
}

// Completes a lane's warp operation if all live lanes of its mask wait in the same one.
bool Block::complete_warp_operation(unsigned warp, unsigned lane) {
  Warp& state = warps_[warp];
  const unsigned first = warp * kLanes;
  const Thread& asking = threads_[first + lane];
  const unsigned lanes = asking.mask & state.live;
  if ((lanes & ~state.arrived) != 0) return false;
  Thread* waiting[kLanes];
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const unsigned other = static_cast<unsigned>(__builtin_ctz(left));
    Thread& thread = threads_[first + other];
    if (thread.operation != asking.operation || thread.mask != asking.mask) return false;
    waiting[other] = &thread;
  }
  compute_warp_operation(static_cast<WarpOp>(asking.operation), lanes, waiting);
  if (is_checking()) check_warp_operation(warp, lanes, waiting);
  if (launch_->exploration != nullptr) meet_in_exploration(first, asking.mask);
  state.arrived &= ~lanes;
  make_lanes_ready(warp, lanes);
  return true;
}

void Block::check_warp_operation(unsigned warp, unsigned lanes, Thread* const (&waiting)[kLanes]) {
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const Thread& thread = *waiting[__builtin_ctz(left)];
    if (thread.operation == static_cast<int>(WarpOp::warpgroup_multiply)) {
      if (thread.result == static_cast<std::uint64_t>(MatrixOutcome::done)) {
        products_.add(*this, thread, *reinterpret_cast<const WarpgroupProduct*>(thread.value));
      }
      return;
    }
    if (thread.operation == static_cast<int>(WarpOp::warpgroup_wait)) {
      products_.wait(*this, thread, static_cast<std::uint32_t>(thread.value));
      return clock_.sync_warp(warp, lanes);
    }
    if (thread.operation == static_cast<int>(WarpOp::sync)) return clock_.sync_warp(warp, lanes);
    unsigned source = 0;
    if (!shuffle_source(thread, source) || (lanes >> source & 1) != 0) continue;
    check_absent_lane(index_in(thread.linear, launch_->config.block), index_,
                      warp_operation_name(static_cast<WarpOp>(thread.operation)), source, thread.line);
  }
}

void Block::make_lanes_ready(unsigned warp, unsigned lanes) {
  Thread* const threads = &threads_[warp * kLanes];
  bool descending = launch_->order == Order::reverse;
  unsigned turn = 0;
  if (launch_->order == Order::random) {
    const std::uint64_t bits = next_random(random_);
    descending = bits & 1;
    turn = bits >> 1 & (kLanes - 1);
  }
  for (unsigned i = 0; i < kLanes; ++i) {
    const unsigned lane = ((descending ? kLanes - 1 - i : i) + turn) % kLanes;
    if (lanes >> lane & 1) make_ready(threads[lane]);
  }
}

void Block::ask_active_lanes(Thread& thread) {
  thread.state = State::at_warp_operation;
  const unsigned warp = thread.linear / kLanes;
  warps_[warp].converging |= 1u << thread.linear % kLanes;
  lane_stopped(warp);
}

// Once no lane of the warp can run on, all lanes on the same path have reached their question.
void Block::lane_stopped(unsigned warp) {
  const Warp& state = warps_[warp];
  if ((state.arrived | state.at_barrier | state.converging) == state.live) answer_lanes(warp);
}

bool Block::answer_active_lanes() {
  bool any = false;
  for (unsigned i = 0; i < size_; i += kLanes) {
    if (warps_[i / kLanes].converging == 0) continue;
    answer_lanes(i / kLanes);
    any = true;
  }
  return any;
}

void Block::answer_lanes(unsigned warp) {
  Thread* const threads = &threads_[warp * kLanes];
  for (unsigned left = warps_[warp].converging; left != 0;) {
    const int line = threads[__builtin_ctz(left)].line;
    unsigned together = 0;
    for (unsigned rest = left; rest != 0; rest &= rest - 1) {
      const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
      if (threads[lane].line == line) together |= 1u << lane;
    }
    for (unsigned rest = together; rest != 0; rest &= rest - 1) threads[__builtin_ctz(rest)].result = together;
    make_lanes_ready(warp, together);
    left &= ~together;
  }
  warps_[warp].converging = 0;
}

}  // namespace cuemu
