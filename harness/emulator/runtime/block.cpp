#include "block.h"

#include <cstdio>
#include <cstdlib>

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

__thread __attribute__((tls_model("initial-exec"))) Worker* own_worker;

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
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

// The place-th block in the launch's order; for random order a walk of a step without common factor.
std::uint64_t block_at(const Launch& launch, std::uint64_t place) {
  if (launch.order == Order::forward) return place;
  if (launch.order == Order::reverse) return launch.blocks - 1 - place;
  std::uint64_t state = launch.seed;
  const std::uint64_t offset = next_random(state) % launch.blocks;
  std::uint64_t step = next_random(state) % launch.blocks;
  const auto divisor = [](std::uint64_t left, std::uint64_t right) {
    while (right != 0) {
      const std::uint64_t rest = left % right;
      left = right;
      right = rest;
    }
    return left;
  };
  while (divisor(step, launch.blocks) != 1) ++step;
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(place) * step + offset) % launch.blocks);
}

const char* barrier_name(Barrier kind) {
  switch (kind) {
    case Barrier::count: return "__syncthreads_count()";
    case Barrier::conjunction: return "__syncthreads_and()";
    case Barrier::disjunction: return "__syncthreads_or()";
    case Barrier::plain: break;
  }
  return "__syncthreads()";
}

std::string waits_for(const Thread& thread) {
  if (thread.state == State::at_barrier) return barrier_name(static_cast<Barrier>(thread.operation));
  char mask[16];
  std::snprintf(mask, sizeof mask, "0x%08x", thread.mask);
  return std::string(warp_operation_name(static_cast<WarpOp>(thread.operation))) + " with mask " + mask;
}

bool waits_alike(const Thread& left, const Thread& right) {
  return left.state == right.state && left.operation == right.operation && left.line == right.line &&
         (left.state == State::at_barrier || left.mask == right.mask);
}

Worker& kernel_worker() {
  if (own_worker == nullptr || !own_worker->in_kernel()) {
    std::fputs("CPU emulator: a device function that needs a running kernel was called from host code\n", stderr);
    std::abort();
  }
  return *own_worker;
}

}  // namespace

Worker& this_worker() {
  if (own_worker == nullptr) own_worker = new Worker;
  return *own_worker;
}

Worker::Worker() : threads_(kMostThreads) {}

void Worker::run_blocks(Launch& launch) {
  begin_launch(launch);
  while (!launch.abandoned.load(std::memory_order_relaxed)) {
    const std::uint64_t place = launch.next_block.fetch_add(1, std::memory_order_relaxed);
    if (place >= launch.blocks) break;
    run_block(block_at(launch, place));
  }
  launch_ = nullptr;
}

void Worker::begin_launch(Launch& launch) {
  launch_ = &launch;
  const dim3& block = launch.config.block;
  block_threads_ = block.x * block.y * block.z;
  for (unsigned i = 0; i < block_threads_; ++i) {
    indices_[i] = index_in(i, block);
    start_order_[i] = static_cast<std::uint16_t>(launch.order == Order::reverse ? block_threads_ - 1 - i : i);
  }
  cuemu_block_size = block;
  cuemu_grid_size = launch.config.grid;
  arena_.begin_launch(launch.config.shared_bytes);
}

void Worker::order_threads(std::uint64_t block) {
  if (launch_->order != Order::random) return;
  random_ = launch_->seed ^ (block * 0xD6E8FEB86659FD93u);
  for (unsigned i = block_threads_ - 1; i > 0; --i) {
    std::swap(start_order_[i], start_order_[next_random(random_) % (i + 1)]);
  }
}

void Worker::run_block(std::uint64_t block) {
  order_threads(block);
  live_ = block_threads_;
  next_start_ = at_barrier_ = 0;
  barrier_sum_ = 0;
  first_ready_ = last_ready_ = nullptr;
  for (unsigned first = 0; first < block_threads_; first += kLanes) {
    const unsigned lanes = block_threads_ - first;
    warps_[first / kLanes] = {lanes >= kLanes ? ~0u : (1u << lanes) - 1, 0, 0};
  }
  if (checking.load(std::memory_order_relaxed)) {
    clock_.begin(static_cast<std::uint32_t>(block % Cell::kMostBlocks) + 1, block_threads_);
    spins_.assign(block_threads_, Spin{});
  }
  arena_.begin_block();
  cuemu_block_index = index_in(block, launch_->config.grid);

  Thread& first = begin_thread(start_order_[next_start_++]);
  first.stack = stacks_.take();
  prepare_context(first.context, first.stack, fiber_main);
  make_current(first);
  switch_context(scheduler_, first.context);
  current_ = nullptr;

  if (live_ > 0) {
    if (!launch_->abandoned.load(std::memory_order_relaxed)) report_stuck();
    drop_threads();
  }
  for (const SharedArena::Damage& damage : arena_.damage()) {
    if (checking.load(std::memory_order_relaxed) && has_reported_bounds()) continue;  // with its line
    add_report({"out-of-bounds", launch_->kernel, damage.line != 0 ? damage.line : launch_->line,
                std::string("kernel ") + launch_->kernel + ", block " + coordinates(cuemu_block_index) + ", wrote " +
                    damage.message,
                "Bound the index, or make the shared memory as large as the largest index needs.", {}});
  }
}

Thread& Worker::begin_thread(unsigned linear) {
  Thread& thread = threads_[linear];
  thread.linear = linear;
  thread.state = State::ready;
  thread.next_ready = nullptr;
  return thread;
}

void Worker::make_current(Thread& thread) {
  current_ = &thread;
  cuemu_thread_index = indices_[thread.linear];
}

void Worker::push_ready(Thread& thread) {
  thread.state = State::ready;
  thread.next_ready = nullptr;
  if (last_ready_ != nullptr) last_ready_->next_ready = &thread;
  else first_ready_ = &thread;
  last_ready_ = &thread;
}

Thread* Worker::pop_ready() {
  Thread* const first = first_ready_;
  if (first == nullptr) return nullptr;
  first_ready_ = first->next_ready;
  if (first_ready_ == nullptr) last_ready_ = nullptr;
  return first;
}

void Worker::fiber_main() { own_worker->live_on_this_stack(); }

void Worker::live_on_this_stack() {
  for (;;) {
    launch_->entry(launch_->bound);
    Thread& ended = *current_;
    char* const stack = ended.stack;
    end_thread(ended);
    if (!launch_->abandoned.load(std::memory_order_relaxed)) {
      if (Thread* next = pop_ready()) {
        stacks_.give_back(stack);
        make_current(*next);
        switch_context(ended.context, next->context);
      }
      if (next_start_ < block_threads_) {
        Thread& next = begin_thread(start_order_[next_start_++]);
        next.stack = stack;
        make_current(next);
        continue;
      }
    }
    stacks_.give_back(stack);
    switch_context(ended.context, scheduler_);
  }
}

void Worker::end_thread(Thread& thread) {
  thread.state = State::ended;
  thread.stack = nullptr;
  --live_;
  const unsigned warp = thread.linear / kLanes;
  warps_[warp].live &= ~(1u << thread.linear % kLanes);
  if (at_barrier_ > 0 && at_barrier_ == live_) complete_barrier();
  if (warps_[warp].arrived != 0) complete_any_warp_operation(warp);
}

// Continues the next thread that can run; returns when this one is continued.
void Worker::suspend() {
  Thread& self = *current_;
  if (launch_->abandoned.load(std::memory_order_relaxed)) switch_context(self.context, scheduler_);
  Thread* next = pop_ready();
  if (next == &self) return;
  if (next == nullptr) {
    if (next_start_ == block_threads_) {
      switch_context(self.context, scheduler_);
      return;
    }
    next = &begin_thread(start_order_[next_start_++]);
    next->stack = stacks_.take();
    prepare_context(next->context, next->stack, fiber_main);
  }
  make_current(*next);
  switch_context(self.context, next->context);
}

void Worker::yield() {
  Thread& self = *current_;
  push_ready(self);
  if (next_start_ < block_threads_ && !launch_->abandoned.load(std::memory_order_relaxed)) {
    Thread& next = begin_thread(start_order_[next_start_++]);
    next.stack = stacks_.take();
    prepare_context(next.context, next.stack, fiber_main);
    make_current(next);
    switch_context(self.context, next.context);
    return;
  }
  suspend();
}

int Worker::wait_at_barrier(Barrier kind, int predicate, int line) {
  Thread& self = *current_;
  self.state = State::at_barrier;
  self.operation = static_cast<int>(kind);
  self.line = line;
  if (at_barrier_ == 0) {
    first_at_barrier_ = &self;
  } else if (!waits_alike(*first_at_barrier_, self)) {
    report_barrier_mismatch(self);
  }
  barrier_sum_ += predicate != 0 ? 1 : 0;
  warps_[self.linear / kLanes].at_barrier |= 1u << self.linear % kLanes;
  if (++at_barrier_ == live_) complete_barrier();
  suspend();
  return barrier_result_;
}

void Worker::complete_barrier() {
  const Barrier kind = static_cast<Barrier>(first_at_barrier_->operation);
  barrier_result_ = kind == Barrier::conjunction   ? barrier_sum_ == static_cast<int>(at_barrier_)
                    : kind == Barrier::disjunction ? barrier_sum_ > 0
                                                   : barrier_sum_;
  barrier_sum_ = 0;
  at_barrier_ = 0;
  if (checking.load(std::memory_order_relaxed)) clock_.barrier();
  for (unsigned i = 0; i < block_threads_; i += kLanes) warps_[i / kLanes].at_barrier = 0;
  for (unsigned i = 0; i < next_start_; ++i) {
    Thread& thread = threads_[start_order_[i]];
    if (thread.state == State::at_barrier) push_ready(thread);
  }
}

std::uint64_t Worker::warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width,
                                     int line) {
  Thread& self = *current_;
  const unsigned lane = self.linear % kLanes;
  const unsigned warp = self.linear / kLanes;
  self.operation = static_cast<int>(operation);
  self.mask = mask;
  self.line = line;
  self.state = State::at_warp_operation;
  if ((mask >> lane & 1) == 0) {
    fail("mask", line, waits_for(self) + ": lane " + std::to_string(lane) + ", " + position() +
         ", takes part, but the mask does not name it", "Give a mask with exactly the lanes that reach the call.",
         kLaunchFailure);
  }
  self.value = value;
  self.parameter = parameter;
  self.width = width;
  warps_[warp].arrived |= 1u << lane;
  complete_warp_operation(warp, lane);
  suspend();
  return self.result;
}

// Completes what a lane waits in if all live lanes of its mask wait in the same.
bool Worker::complete_warp_operation(unsigned warp, unsigned lane) {
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
  if (checking.load(std::memory_order_relaxed)) {
    if (asking.operation == static_cast<int>(WarpOp::sync)) clock_.sync_warp(warp, lanes);
    else notice_absent_lanes(lanes, waiting);
  }
  state.arrived &= ~lanes;
  bool descending = launch_->order == Order::reverse;
  unsigned turn = 0;
  if (launch_->order == Order::random) {
    const std::uint64_t bits = next_random(random_);
    descending = bits & 1;
    turn = bits >> 1 & (kLanes - 1);
  }
  for (unsigned i = 0; i < kLanes; ++i) {
    const unsigned other = ((descending ? kLanes - 1 - i : i) + turn) % kLanes;
    if (lanes >> other & 1) push_ready(*waiting[other]);
  }
  return true;
}

void Worker::complete_any_warp_operation(unsigned warp) {
  for (unsigned left = warps_[warp].arrived; left != 0; left &= left - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(left));
    if ((warps_[warp].arrived >> lane & 1) != 0) complete_warp_operation(warp, lane);
  }
}

unsigned Worker::active_lanes() const {
  const Warp& warp = warps_[current_->linear / kLanes];
  return warp.live & ~warp.at_barrier;
}

void* Worker::shared_bytes(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line) {
  const std::size_t before = arena_.static_bytes();
  void* const address = arena_.slot(key, bytes, alignment, name, line);
  const std::size_t used = arena_.static_bytes();
  if (address == nullptr || (used != before && used > kDefaultSharedLimit)) {
    fail("launch", line, std::string("the __shared__ variables of kernel ") + launch_->kernel + " up to " + name +
         " take " + std::to_string(address == nullptr ? used + bytes : used) + " bytes; a kernel may declare " +
         std::to_string(kDefaultSharedLimit), "Use less, or dynamic shared memory with cudaFuncSetAttribute.",
         kInvalidValue);
  }
  if (used != before && used + launch_->config.shared_bytes > launch_->shared_limit) {
    fail("launch", launch_->line, std::string("invalid argument: kernel ") + launch_->kernel + " declares " +
         std::to_string(used) + " bytes of shared memory and the launch adds " +
         std::to_string(launch_->config.shared_bytes) + "; together they may take " +
         std::to_string(launch_->shared_limit),
         "Use less, or raise the limit with cudaFuncSetAttribute(kernel, "
         "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes).",
         kInvalidValue);
  }
  return address;
}

uint3 Worker::block_index() { return cuemu_block_index; }

std::string Worker::position() const {
  return "thread " + coordinates(index_of(*current_)) + " of block " + coordinates(cuemu_block_index);
}

void Worker::fail(const char* kind, int line, const std::string& message, const char* remedy, int error) {
  add_report({kind, launch_->kernel, line, message, remedy,
              {{index_of(*current_), cuemu_block_index, line, message}}});
  if (error != 0) set_sticky_error(error);
  launch_->abandoned.store(true, std::memory_order_relaxed);
  switch_context(current_->context, scheduler_);
  __builtin_unreachable();
}

void Worker::fail_at(const char* kind, const void* code, const std::string& message, const char* what,
                     const char* remedy) {
  add_report({kind, launch_->kernel, 0, message, remedy,
              {{index_of(*current_), cuemu_block_index, 0, what, code}}});
  set_sticky_error(kLaunchFailure);
  launch_->abandoned.store(true, std::memory_order_relaxed);
  switch_context(current_->context, scheduler_);
  __builtin_unreachable();
}

// Lanes that a shuffle reads from, and that do not take part in it.
void Worker::notice_absent_lanes(unsigned lanes, Thread* const (&waiting)[kLanes]) {
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const Thread& thread = *waiting[__builtin_ctz(left)];
    unsigned source = 0;
    if (!shuffle_source(thread, source) || (lanes >> source & 1) != 0) continue;
    check_absent_lane({&clock_, &arena_, thread.linear, index_of(thread), cuemu_block_index, thread.stack},
                      warp_operation_name(static_cast<WarpOp>(thread.operation)), source, thread.line);
  }
}

void Worker::report_barrier_mismatch(const Thread& thread) {
  const Thread& other = *first_at_barrier_;
  const std::string message = "threads of block " + coordinates(cuemu_block_index) + " wait at different barriers: " +
                              coordinates(index_of(other)) + " at " + waits_for(other) + " in line " +
                              std::to_string(other.line) + ", " + coordinates(index_of(thread)) + " at " +
                              waits_for(thread) + " in line " + std::to_string(thread.line);
  add_report({"divergence", launch_->kernel, thread.line, message,
              "Let every thread of the block reach the same barrier: move it out of the branch.",
              {{index_of(other), cuemu_block_index, other.line, "waits at " + waits_for(other)},
               {index_of(thread), cuemu_block_index, thread.line, "waits at " + waits_for(thread)}}});
  set_sticky_error(kLaunchFailure);
  launch_->abandoned.store(true, std::memory_order_relaxed);
  switch_context(current_->context, scheduler_);
  __builtin_unreachable();
}

// No thread can run although some have not ended.
void Worker::report_stuck() {
  constexpr std::size_t kMostShown = 4;
  struct Group {
    const Thread* example;
    unsigned count;
  };
  std::vector<Group> groups;
  bool warps_disagree = false;
  for (unsigned i = 0; i < block_threads_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::ended) continue;
    bool known = false;
    for (Group& group : groups) {
      if (!waits_alike(*group.example, thread)) continue;
      ++group.count;
      known = true;
    }
    if (!known) groups.push_back({&thread, 1});
    for (unsigned j = i / kLanes * kLanes; j < i; ++j) {
      const Thread& other = threads_[j];
      if (thread.state != State::at_warp_operation || other.state != State::at_warp_operation) continue;
      const bool name_each_other = (thread.mask >> j % kLanes & 1) != 0 && (other.mask >> i % kLanes & 1) != 0;
      if (name_each_other && !(thread.operation == other.operation && thread.mask == other.mask)) warps_disagree = true;
    }
  }
  std::string message = "block " + coordinates(cuemu_block_index) + " cannot go on: ";
  std::vector<Access> accesses;
  for (const Group& group : groups) {
    if (accesses.size() == kMostShown) break;
    const Thread& thread = *group.example;
    if (!accesses.empty()) message += "; ";
    message += std::to_string(group.count) + (group.count == 1 ? " thread, " : " threads, the first ") +
               coordinates(index_of(thread)) + (group.count == 1 ? ", waits at " : ", wait at ") + waits_for(thread) +
               " in line " + std::to_string(thread.line);
    accesses.push_back({index_of(thread), cuemu_block_index, thread.line, "waits at " + waits_for(thread)});
  }
  add_report({warps_disagree ? "divergence" : "deadlock", launch_->kernel, groups.front().example->line, message,
              "Let all threads of the block reach every barrier, and all lanes of a mask the same warp operation; "
              "move these calls out of branches that only some threads take.",
              std::move(accesses)});
  set_sticky_error(kLaunchFailure);
  launch_->abandoned.store(true, std::memory_order_relaxed);
}

// Forgets the block's unfinished threads; objects on their stacks are not destroyed.
void Worker::drop_threads() {
  for (unsigned i = 0; i < next_start_; ++i) {
    Thread& thread = threads_[start_order_[i]];
    if (thread.stack != nullptr) stacks_.give_back(thread.stack);
    thread.stack = nullptr;
  }
}

void* shared_bytes(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line) {
  return kernel_worker().shared_bytes(key, bytes, alignment, name, line);
}

void* dynamic_shared_bytes(std::size_t) { return kernel_worker().dynamic_shared_bytes(); }

int wait_at_barrier(Barrier kind, int predicate, int line) {
  return kernel_worker().wait_at_barrier(kind, predicate, line);
}

std::uint64_t warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width,
                             int line) {
  return kernel_worker().warp_operation(operation, mask, value, parameter, width, line);
}

unsigned active_lanes() { return kernel_worker().active_lanes(); }

void fence(bool of_device) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (of_device && checking.load(std::memory_order_relaxed) && in_kernel()) own_worker->fence();
}

void yield() {
  if (in_kernel()) own_worker->yield();
}

bool in_kernel() { return own_worker != nullptr && own_worker->in_kernel(); }

void trap(int line) {
  Worker& worker = kernel_worker();
  worker.fail("trap", line, worker.position() + " executed __trap()",
              "The kernel's own check stopped it; see the condition that leads to __trap().", kLaunchFailure);
}

void assertion_failed(const char* expression, const char* file, int line, const char* function) {
  constexpr int kAssert = 710;  // cudaErrorAssert
  Worker& worker = kernel_worker();
  const std::string place = worker.position();
  std::fprintf(stderr, "%s:%d: %s: %s: Assertion `%s` failed.\n", file, line, function, place.c_str(), expression);
  worker.fail("assert", line, "assertion `" + std::string(expression) + "` failed in " + place,
              "The kernel's own assertion does not hold for this input.", kAssert);
}

}  // namespace cuemu
