// Which block and which of its threads runs next.
#include "worker.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "device_heap.h"
#include "report.h"

extern "C" {
// The storage behind threadIdx, blockIdx, blockDim and gridDim.
__thread __attribute__((tls_model("initial-exec"))) uint3 cuemu_thread_index;
__thread __attribute__((tls_model("initial-exec"))) uint3 cuemu_block_index;
__thread __attribute__((tls_model("initial-exec"))) uint3 cuemu_block_size;
__thread __attribute__((tls_model("initial-exec"))) uint3 cuemu_grid_size;
}

namespace cuemu {
namespace {

constexpr unsigned kYieldRounds = 16;    // turns before a block that only yields makes room for another
constexpr std::size_t kKeptBlocks = 16;  // between launches

__thread __attribute__((tls_model("initial-exec"))) Worker* own_worker;

// Returns the block or cluster at a place of the launch's order. The random order walks in steps that share no
// factor with the count.
std::uint64_t item_at(const Launch& launch, std::uint64_t items, std::uint64_t place) {
  if (launch.order == Order::forward) return place;
  if (launch.order == Order::reverse) return items - 1 - place;
  std::uint64_t state = launch.seed;
  const std::uint64_t offset = next_random(state) % items;
  std::uint64_t step = next_random(state) % items;
  const auto divisor = [](std::uint64_t left, std::uint64_t right) {
    while (right != 0) {
      const std::uint64_t rest = left % right;
      left = right;
      right = rest;
    }
    return left;
  };
  while (divisor(step, items) != 1) ++step;
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(place) * step + offset) % items);
}

}  // namespace

Worker& kernel_worker() {
  if (own_worker == nullptr || !own_worker->in_kernel()) {
    std::fputs("CPU emulator: a device function that needs a running kernel was called from host code\n", stderr);
    std::abort();
  }
  return *own_worker;
}

Worker& this_worker() {
  if (own_worker == nullptr) own_worker = new Worker;
  return *own_worker;
}

std::pair<const char*, const char*> index_storage() {
  const uint3* const all[] = {&cuemu_thread_index, &cuemu_block_index, &cuemu_block_size, &cuemu_grid_size};
  const auto [first, last] = std::minmax_element(std::begin(all), std::end(all));
  return {reinterpret_cast<const char*>(*first), reinterpret_cast<const char*>(*last + 1)};
}

void Worker::run_blocks(Launch& launch) {
  begin_launch(launch);
  bool after_an_end = false;
  while (Block* const block = next_block(after_an_end)) {
    run(*block);
    after_an_end = settle(*block);
  }
  if (!at_grid_barrier_.empty() && !launch.abandoned.load(std::memory_order_relaxed)) {
    report_grid_stuck(launch, at_grid_barrier_, ended_, first_ended_);
    set_sticky_error(kLaunchFailure);
  }
  if (!launch.abandoned.load(std::memory_order_relaxed)) report_parked();
  drop_threads();
  stacks_.share();
  if (blocks_.size() > kKeptBlocks) blocks_.resize(kKeptBlocks);
  launch_ = nullptr;
}

void Worker::explore(Launch& launch) {
  using Left = Exploration::Left;
  const dim3& block = launch.config.block;
  const bool may_meet = launch.blocks <= launch.resident_limit &&
                        launch.blocks * block.x * block.y * block.z <= Exploration::kMostThreads;
  const Exploration::Time end = std::chrono::steady_clock::now() + Exploration::kMostTime;
  const std::size_t told = faults_seen();
  const Order order = std::exchange(launch.order, Order::forward);
  unsigned orders = 0;
  // Orders of blocks that do not meet need no combinations.
  Left left = launch.config.cooperative ? Left::meets_others : Left::none;
  for (std::uint64_t place = 0; place < launch.clusters && left == Left::none && faults_seen() == told; ++place) {
    Exploration exploration(launch.clusters > 1, end);
    left = run_orders(launch, exploration, place, place + 1);
    if (exploration.orders() > 1) orders = (orders > 1 ? orders : 0) + exploration.orders();
    else if (orders == 0) orders = exploration.orders();
    if (left == Left::none && place + 1 < launch.clusters && std::chrono::steady_clock::now() > end) left = Left::some;
  }
  if (left == Left::meets_others && may_meet) {
    Exploration exploration(false, end);
    left = run_orders(launch, exploration, 0, launch.clusters);
    orders = exploration.orders();
  }
  launch.exploration = nullptr;
  launch_ = nullptr;
  launch.order = order;
  launch.next_cluster = 0;
  launch.abandoned = false;
  if (faults_seen() == told) report_orders(launch, orders, left);
}

// Explores the clusters, or blocks, from one place of the launch's order to another.
Exploration::Left Worker::run_orders(Launch& launch, Exploration& exploration, std::uint64_t first, std::uint64_t last) {
  launch.exploration = &exploration;
  const std::size_t told = faults_seen();
  do {
    begin_checked_launch(launch.kernel, launch.config, reinterpret_cast<const void*>(launch.entry));
    begin_heap_of_launch(launch.resident_limit);
    launch.next_cluster = first;
    begin_launch(launch);
    std::vector<Block*> blocks;
    while (!fresh_.empty() || launch.next_cluster < last) {
      Block* block = nullptr;
      if (fresh_.empty()) {
        block = start_block();
      } else {
        block = fresh_.front();
        fresh_.pop_front();
      }
      blocks.push_back(block);
    }
    exploration.begin_order(blocks);
    if (const Exploration::Fiber* const fiber = exploration.next()) {
      enter(*fiber);
      switch_context(scheduler_, fiber->thread->context);
      current_ = nullptr;
    }
    end_order(blocks);
    end_checked_launch(!exploration.is_over());
  } while (faults_seen() == told && exploration.next_order());
  exploration.restore();
  return exploration.left();
}

// Reports what an order of an exploration shows at its end, and drops the threads of one that does not end.
void Worker::end_order(const std::vector<Block*>& blocks) {
  std::vector<Block*> at_grid_barrier;
  const Block* stuck = nullptr;
  for (Block* const block : blocks) {
    if (block->live() == 0) {
      if (ended_++ == 0) first_ended_ = block->index();
      end_checked_block(*block);
      report_damage(*block);
      continue;
    }
    if (block->waits_for_grid()) at_grid_barrier.push_back(block);
    else if (stuck == nullptr) stuck = block;
  }
  if (!launch_->exploration->is_over() && !launch_->abandoned.load(std::memory_order_relaxed) && ended_ < blocks.size()) {
    if (stuck != nullptr) report_stuck(*stuck);
    else report_grid_stuck(*launch_, at_grid_barrier, ended_, first_ended_);
    set_sticky_error(kLaunchFailure);
  }
  drop_threads();
  end_wide_accesses();
}

void Worker::begin_launch(Launch& launch) {
  launch_ = &launch;
  const dim3& block = launch.config.block;
  for (unsigned i = 0; i < block.x * block.y * block.z; ++i) indices_[i] = index_in(i, block);
  cuemu_block_size = block;
  cuemu_grid_size = launch.config.grid;
  begun_ = 0;
  ended_ = 0;
  free_.clear();
  runnable_.clear();
  at_grid_barrier_.clear();
  fresh_.clear();
  free_clusters_.clear();
  for (const auto& cluster : clusters_) free_clusters_.push_back(cluster.get());
  idle_turns_ = 0;
}

// Starts the launch's next block. Returns null if none is left or no more may be alive.
Block* Worker::start_block() {
  if (launch_->clusters != launch_->blocks) return start_cluster();
  if (free_.empty() && begun_ >= launch_->resident_limit) return nullptr;
  const std::uint64_t place = launch_->next_cluster.fetch_add(1, std::memory_order_relaxed);
  if (place >= launch_->blocks) return nullptr;
  Block& block = take_block();
  block.begin(cluster_at(place));
  return &block;
}

std::uint64_t Worker::cluster_at(std::uint64_t place) const { return item_at(*launch_, launch_->clusters, place); }

// Takes a block that is free, or a new one. All blocks of a launch lay their shared variables out alike.
Block& Worker::take_block() {
  if (free_.empty()) {
    if (begun_ == blocks_.size()) blocks_.push_back(std::make_unique<Block>());
    free_.push_back(blocks_[begun_++].get());
    free_.back()->begin_launch(*launch_);
    if (launch_->clusters != launch_->blocks) free_.back()->arena().lay_out_as(blocks_[0]->arena());
  }
  Block& block = *free_.back();
  free_.pop_back();
  return block;
}

// Chooses the block to run. New blocks start if the live ones can only wait. When a block has
// ended, the last one that began to spin comes first, since it probably waits for that block.
Block* Worker::next_block(bool after_an_end) {
  if (launch_->abandoned.load(std::memory_order_relaxed)) return nullptr;
  if (!fresh_.empty()) {
    Block* const fresh = fresh_.front();
    fresh_.pop_front();
    return fresh;
  }
  // Blocks of a cluster go on before others begin, as long as one of them may get further.
  const bool may_get_further = launch_->clusters != launch_->blocks && idle_turns_ < 2 * runnable_.size();
  if ((!after_an_end && !may_get_further) || runnable_.empty()) {
    if (Block* const fresh = start_block()) return fresh;
  }
  if (runnable_.empty()) return nullptr;
  Block* next = runnable_.front();
  if (after_an_end && runnable_.back()->spinning) {
    next = runnable_.back();
    runnable_.pop_back();
  } else {
    runnable_.pop_front();
  }
  return next;
}

void Worker::run(Block& block) {
  block_ = &block;
  block.spinning = false;
  first_yielding_ = nullptr;
  spin_watch_.begin();
  cuemu_block_index = block.index();
  Thread* next = block.take_ready();
  if (next == nullptr) {
    next = block.start_next();
    prepare(*next);
  }
  make_current(*next);
  loops_over_threads_ = false;
  switch_context(scheduler_, next->context);
  current_ = nullptr;
}

// Decides what happens to a block in which nothing can run at present. Returns true if it has
// ended.
bool Worker::settle(Block& block) {
  if (launch_->abandoned.load(std::memory_order_relaxed)) return false;
  if (block.live() == 0) {
    if (ended_++ == 0) first_ended_ = block.index();
    if (is_checking()) end_checked_block(block);
    report_damage(block);
    free_block(block);
    idle_turns_ = 0;
    return true;
  }
  if (block.waits_for_grid()) {
    at_grid_barrier_.push_back(&block);
    if (at_grid_barrier_.size() < launch_->blocks) return false;
    for (Block* const waiting : at_grid_barrier_) {
      waiting->complete_barrier();
      runnable_.push_back(waiting);
    }
    at_grid_barrier_.clear();
    if (is_checking()) check_grid_barrier();
  } else if (block.has_ready()) {
    block.spinning = true;
    ++idle_turns_;
    runnable_.push_back(&block);
  } else if (block.waits_for_cluster()) {
    block.parked = true;
    idle_turns_ = 0;
  } else {
    report_stuck(block);
    set_sticky_error(kLaunchFailure);
    launch_->abandoned.store(true, std::memory_order_relaxed);
  }
  return false;
}

void Worker::report_damage(Block& block) {
  for (const SharedArena::Damage& damage : block.arena().damage()) {
    if (is_checking() && has_reported_bounds()) continue;  // already reported with its line
    add_report({"out-of-bounds", launch_->kernel, damage.line != 0 ? damage.line : launch_->line,
                std::string("kernel ") + launch_->kernel + ", block " + coordinates(block.index()) + ", wrote " +
                    damage.message,
                "Bound the index, or make the shared memory as large as the largest index needs.", {}});
  }
}

// Drops the unfinished threads of live blocks. It does not destroy the objects on their stacks.
void Worker::drop_threads() {
  for (std::size_t i = 0; i < begun_; ++i) {
    Block& block = *blocks_[i];
    if (block.live() == 0) continue;
    report_damage(block);
    block.for_each_begun([this](Thread& thread) {
      if (thread.stack != nullptr) stacks_.give_back(thread.stack);
      thread.stack = nullptr;
    });
  }
}

void Worker::prepare(Thread& thread) {
  thread.stack = stacks_.take();
  prepare_context(thread.context, thread.stack, fiber_main);
}

void Worker::make_current(Thread& thread) {
  current_ = &thread;
  cuemu_thread_index = indices_[thread.linear];
}

void Worker::fiber_main() { own_worker->live_on_this_stack(); }

void Worker::live_on_this_stack() {
  for (;;) {
    launch_->entry(launch_->bound);
    Thread& ended = *current_;
    char* const stack = ended.stack;
    first_yielding_ = nullptr;
    block_->end_thread(ended);
    if (launch_->exploration != nullptr) {
      Exploration::Fiber* const next = launch_->abandoned.load(std::memory_order_relaxed) ? nullptr : launch_->exploration->next();
      if (next != nullptr && next->thread->stack == nullptr) {
        next->thread->stack = stack;
        enter(*next);
        continue;
      }
      stacks_.give_back(stack);
      if (next != nullptr) enter(*next);
      switch_context(ended.context, next != nullptr ? next->thread->context : scheduler_);
    }
    if (!launch_->abandoned.load(std::memory_order_relaxed)) {
      if (Thread* const next = block_->take_ready()) {
        stacks_.give_back(stack);
        make_current(*next);
        switch_context(ended.context, next->context);
      }
      if (Thread* const next = block_->start_next()) {
        next->stack = stack;
        make_current(*next);
        continue;
      }
    }
    stacks_.give_back(stack);
    switch_context(ended.context, scheduler_);
  }
}

Threads Worker::take_threads() {
  Block& block = *block_;
  if (block.live() != block.size() || loops_over_threads_) refuse_in_loop();
  loops_over_threads_ = true;
  return {launch_->order == Order::forward, block.take_threads(*current_), indices_, block.size()};
}

// In a loop over threads the running thread is the one that the loop has published.
uint3 Worker::thread_index() const { return loops_over_threads_ ? cuemu_thread_index : indices_[current_->linear]; }

// The rewriter never gives a loop over threads to a kernel that calls a function which suspends a
// thread.
void Worker::refuse_in_loop() const {
  std::fprintf(stderr, "CPU emulator: kernel %s waits for other threads in a loop over threads\n", launch_->kernel);
  std::abort();
}

// Continues the block's next thread that can run. Returns when another thread continues this one.
void Worker::suspend() {
  Thread& self = *current_;
  if (loops_over_threads_) refuse_in_loop();
  if (launch_->exploration != nullptr) return go_on();
  if (launch_->abandoned.load(std::memory_order_relaxed)) leave_block();
  Thread* next = block_->take_ready();
  if (next == &self) return;
  if (next == nullptr) {
    next = block_->start_next();
    if (next == nullptr) return leave_block();
    prepare(*next);
  } else if (spin_watch_.sees(*next)) {
    block_->make_ready(*next);
    return leave_block();
  }
  make_current(*next);
  switch_context(self.context, next->context);
}

void Worker::go_on() {
  Thread& self = *current_;
  if (launch_->abandoned.load(std::memory_order_relaxed)) leave_block();
  const Exploration::Fiber* const next = launch_->exploration->next();
  if (next == nullptr) return leave_block();
  if (next->thread == &self) return;
  enter(*next);
  switch_context(self.context, next->thread->context);
}

void Worker::enter(const Exploration::Fiber& next) {
  block_ = next.block;
  cuemu_block_index = block_->index();
  if (next.thread->stack == nullptr) prepare(*next.thread);
  make_current(*next.thread);
}

void Worker::end_exploration(Exploration::Left why) {
  if (exploration() == nullptr) return;
  launch_->exploration->break_off(why);
  go_on();
}

void Worker::decide(const Operation& next) {
  if (exploration() == nullptr) return;
  launch_->exploration->announce(fiber(), next);
  go_on();
}

Exploration* Worker::exploration() const {
  Exploration* const all = launch_->exploration;
  return all == nullptr || all->is_adrift() ? nullptr : all;
}

// Lets the scheduler choose a block. Returns when this thread continues, which never happens after
// abandonment.
void Worker::leave_block() { switch_context(current_->context, scheduler_); }

void Worker::abandon() {
  launch_->abandoned.store(true, std::memory_order_relaxed);
  leave_block();
  __builtin_unreachable();
}

void Worker::yield() {
  if (loops_over_threads_) return;  // a loop over threads has nothing that could wait
  Thread& self = *current_;
  if (launch_->abandoned.load(std::memory_order_relaxed)) leave_block();
  if (launch_->exploration != nullptr) {
    launch_->exploration->park(fiber());
    return go_on();
  }
  block_->let_wait(self);
  if (Thread* const next = block_->start_next()) {
    prepare(*next);
    make_current(*next);
    switch_context(self.context, next->context);
    return;
  }
  if (first_yielding_ == nullptr) {
    first_yielding_ = &self;
    yield_rounds_ = 0;
  } else if (first_yielding_ == &self && ++yield_rounds_ == kYieldRounds) {
    first_yielding_ = nullptr;
    if (!block_->answer_active_lanes()) return leave_block();
  }
  suspend();
}

// Lets another warp go on that comes first now.
void Worker::has_arrived() {
  if (launch_->order != Order::random) return;
  block_->make_ready(*current_);
  suspend();
}

// An exploration sees by itself what waits for a change.
void Worker::tried_in_vain() {
  if (exploration() == nullptr) yield();
}

void Worker::changed_nothing() {
  constexpr unsigned kPatience = 64;
  if (exploration() != nullptr || ++unchanged_ < kPatience) return;
  unchanged_ = 0;
  yield();
}

void fence(bool of_device) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (!in_kernel()) return;
  if (is_checking()) own_worker->block().clock().fence(of_device);
  own_worker->changed_nothing();
}

void yield() {
  if (in_kernel()) own_worker->yield();
}

void tried_in_vain() {
  if (in_kernel()) own_worker->tried_in_vain();
}

void changed_nothing() {
  if (in_kernel()) own_worker->changed_nothing();
}

void discards(unsigned kind) {
  if (in_kernel()) own_worker->discards(kind);
}

bool in_kernel() { return own_worker != nullptr && own_worker->in_kernel(); }

}  // namespace cuemu
