// One OS thread's emulation of blocks. It keeps several blocks alive and runs one CUDA thread at a
// time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block.h"
#include "cluster.h"
#include "exploration.h"
#include "spin_watch.h"

namespace cuemu {

class Worker {
 public:
  // Runs the launch's blocks until none is left or the launch is abandoned.
  void run_blocks(Launch& launch);
  // Runs the launch in all orders of its synchronising operations, up to a bound, and reports how many there were. Ends
  // with the first order that has a fault. Memory is as before in the end.
  void explore(Launch& launch);
  // Gives up the exploration in which the running thread is, if there is one. The thread never continues.
  void end_exploration(Exploration::Left why);
  // In an exploration, lets other threads go first. Returns when it is the turn of what the thread does next.
  void decide(const Operation& next);
  // The kind of the thread's next atomic operation if nobody uses its result, else 0 (cuemu/atomics.h).
  void discards(unsigned kind) { discarded_ = {current_, kind}; }
  unsigned take_discarded() {
    return discarded_.first == current_ ? std::exchange(discarded_, {nullptr, 0}).second : 0;
  }
  // Null outside an exploration, and where its threads run without a plan.
  Exploration* exploration() const;
  Exploration::Fiber& fiber() const { return launch_->exploration->fiber(*block_, *current_); }

  bool in_kernel() const { return current_ != nullptr; }
  // The following functions are for the running CUDA thread.
  Block& block() { return *block_; }
  const Thread& thread() const { return *current_; }
  // Whether an address lies in a local variable of the running thread.
  bool is_local(const char* address) const { return current_->holds_local(address); }
  // Calls `visit(block, thread)` for every thread of the launch that has begun.
  template <typename Visit>
  void for_each_begun(Visit visit) {
    for (std::size_t i = 0; i < begun_; ++i) {
      Block& block = *blocks_[i];
      if (block.live() != 0) block.for_each_begun([&](const Thread& thread) { visit(block, thread); });
    }
  }
  Threads take_threads();
  int wait_at_barrier(Barrier kind, int predicate, int line);
  void wait_at_grid_barrier(int line);
  void meet_at_named_barrier(unsigned number, unsigned threads, bool waits, int line);
  std::uint64_t warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width,
                               int line);
  unsigned active_lanes(int line);
  void matrix_operation(WarpOp operation, const void* operand, unsigned alignment, int stride_bytes, int line);
  void yield();
  void tried_in_vain();
  void changed_nothing();
  void has_arrived();
  void arrive_at_cluster_barrier(bool releases, int line);
  void wait_at_cluster_barrier(bool acquires, int line);
  char* shared_of_rank(char* address, unsigned rank, int line);
  ClusterPlace cluster_place() const;
  // Lets a block run again that waited for its cluster, if it can.
  void unpark(Block& block);
  void* shared_bytes(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line);
  bool is_cooperative() const { return launch_->config.cooperative; }
  // Reports a fault and ends the whole launch. The calling CUDA thread never continues.
  [[noreturn]] void fail(const char* kind, int line, const std::string& message, const char* remedy, int error);
  // The same for a line that is known only by its code. `{0}` in the message stands for the line.
  [[noreturn]] void fail_at(const char* kind, const void* code, const std::string& message, const char* what,
                            const char* remedy);
  std::string position() const;
  uint3 thread_index() const;

 private:
  static void fiber_main();
  [[noreturn]] void live_on_this_stack();
  void begin_launch(Launch& launch);
  Block* start_block();
  Block* start_cluster();
  Block& take_block();
  void free_block(Block& block);
  std::uint64_t cluster_at(std::uint64_t place) const;
  Cluster& make_cluster();
  Cluster& own_cluster();
  void report_parked();
  Block* next_block(bool after_an_end);
  void run(Block& block);
  bool settle(Block& block);
  void report_damage(Block& block);
  void drop_threads();
  void prepare(Thread& thread);
  void make_current(Thread& thread);
  void suspend();
  void go_on();
  void enter(const Exploration::Fiber& next);
  Exploration::Left run_orders(Launch& launch, Exploration& exploration, std::uint64_t first, std::uint64_t last);
  void end_order(const std::vector<Block*>& blocks);
  void refuse_in_loop() const;
  void leave_block();
  [[noreturn]] void abandon();

  Launch* launch_ = nullptr;
  Block* block_ = nullptr;
  Thread* current_ = nullptr;
  bool loops_over_threads_ = false;  // the running thread does the work of its whole block and may not be suspended
  // The thread that began, and the number of its turns since, while the block's threads only yield.
  const Thread* first_yielding_ = nullptr;
  unsigned yield_rounds_ = 0;
  SpinWatch spin_watch_;
  unsigned unchanged_ = 0;  // operations without effect since the last yield that they caused
  std::pair<const Thread*, unsigned> discarded_{nullptr, 0};
  Context scheduler_;
  StackPool stacks_;
  uint3 indices_[kMostThreads];
  std::vector<std::unique_ptr<Block>> blocks_;
  std::size_t begun_ = 0;  // the number of blocks_, from the first on, that this launch has used
  std::vector<Block*> free_;
  std::deque<Block*> runnable_;  // live blocks except the running one
  std::vector<Block*> at_grid_barrier_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Cluster*> free_clusters_;
  std::deque<Block*> fresh_;  // blocks of clusters that have begun and not run yet
  std::size_t idle_turns_ = 0;  // of blocks that only yielded, since a cluster began, a block ended or waited
  std::uint64_t ended_ = 0;
  uint3 first_ended_ = {0, 0, 0};
};

// The OS thread's own worker.
Worker& this_worker();
// The same inside a kernel; elsewhere the process ends.
Worker& kernel_worker();

// Returns the range of bytes in which this OS thread keeps threadIdx, blockIdx, blockDim and
// gridDim.
std::pair<const char*, const char*> index_storage();

// The limits of the emulated architecture: those of compute capability 9.0 unless another one is
// set.
struct Limits {
  std::size_t shared_bytes;  // of a block
  int threads_per_multiprocessor;
  std::size_t shared_bytes_per_multiprocessor;
};
Limits& limits();

// Ends the use of the device: later calls and launches return `error`.
void set_sticky_error(int error);

// Reports that a thread has come to another barrier than the first waiting one.
void report_barrier_mismatch(const Block& block, const Thread& thread);

// Reports that no thread of the block can run although some have not ended.
void report_stuck(const Block& block);

// Reports that blocks wait at the grid's barrier and no other block is left to reach it.
void report_grid_stuck(const Launch& launch, const std::vector<Block*>& waiting, std::uint64_t ended,
                       uint3 first_ended);

// "__shfl_sync() with mask 0x0000ffff"
std::string waits_for(const Thread& thread);

}  // namespace cuemu
