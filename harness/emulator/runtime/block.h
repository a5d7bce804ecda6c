// One OS thread's emulation of one block at a time: its CUDA threads, barriers, warps and shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "checker.h"
#include "cuemu/runtime.h"
#include "fiber.h"
#include "shared_arena.h"

namespace cuemu {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kLanes = 32;
// cudaErrorLaunchFailure and cudaErrorInvalidValue, without the host API's header.
constexpr int kLaunchFailure = 719;
constexpr int kInvalidValue = 1;

enum class Order : int { forward = 0, reverse = 1, random = 2 };

// What all blocks of a launch have in common.
struct Launch {
  const char* kernel;
  int line;
  Config config;
  Entry entry;
  const void* bound;
  Order order;
  std::uint64_t seed;
  std::uint64_t blocks;
  std::size_t shared_limit;
  std::atomic<std::uint64_t> next_block{0};
  std::atomic<bool> abandoned{false};
};

enum class State : std::uint8_t { ready, at_barrier, at_warp_operation, ended };

struct Thread {
  Context context;
  char* stack;  // null once ended
  Thread* next_ready;
  unsigned linear;
  State state;
  // What it waits for, valid in the two waiting states.
  int line;
  int operation;
  unsigned mask;
  int parameter;
  int width;
  std::uint64_t value;
  std::uint64_t result;
};

struct Warp {
  unsigned live;     // lanes that exist and have not ended
  unsigned arrived;  // lanes that wait in a warp operation
  unsigned at_barrier;
};

class Worker {
 public:
  Worker();
  // Runs the launch's blocks until none is left or the launch was abandoned.
  void run_blocks(Launch& launch);

  bool in_kernel() const { return current_ != nullptr; }
  int wait_at_barrier(Barrier kind, int predicate, int line);
  std::uint64_t warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width,
                               int line);
  unsigned active_lanes() const;
  void yield();
  void* shared_bytes(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line);
  void* dynamic_shared_bytes() { return arena_.dynamic(); }
  // Reports and ends the whole launch; the calling CUDA thread never continues.
  [[noreturn]] void fail(const char* kind, int line, const std::string& message, const char* remedy, int error);
  // The same where a line is known by its code alone; `{0}` in the message stands for it.
  [[noreturn]] void fail_at(const char* kind, const void* code, const std::string& message, const char* what,
                            const char* remedy);
  std::string position() const;

  // For the checking mode.
  Running running() {
    return {&clock_, &arena_, current_->linear, indices_[current_->linear], block_index(), current_->stack};
  }
  void fence() { clock_.fence(); }
  Spin& spin() { return spins_[current_->linear]; }
  const dim3& block_size() const { return launch_->config.block; }
  const dim3& grid_size() const { return launch_->config.grid; }

 private:
  static void fiber_main();
  [[noreturn]] void live_on_this_stack();
  void begin_launch(Launch& launch);
  void order_threads(std::uint64_t block);
  void run_block(std::uint64_t block);
  Thread& begin_thread(unsigned linear);
  void make_current(Thread& thread);
  void push_ready(Thread& thread);
  Thread* pop_ready();
  void suspend();
  void end_thread(Thread& thread);
  void complete_barrier();
  bool complete_warp_operation(unsigned warp, unsigned lane);
  void complete_any_warp_operation(unsigned warp);
  void drop_threads();
  void report_stuck();
  void report_barrier_mismatch(const Thread& thread);
  uint3 index_of(const Thread& thread) const { return indices_[thread.linear]; }
  static uint3 block_index();
  void notice_absent_lanes(unsigned lanes, Thread* const (&waiting)[kLanes]);

  Launch* launch_ = nullptr;
  Thread* current_ = nullptr;
  Thread* first_ready_ = nullptr;
  Thread* last_ready_ = nullptr;
  unsigned block_threads_ = 0;
  unsigned next_start_ = 0;
  unsigned live_ = 0;
  unsigned at_barrier_ = 0;
  Thread* first_at_barrier_ = nullptr;
  int barrier_sum_ = 0;
  int barrier_result_ = 0;
  std::uint64_t random_ = 0;
  BlockClock clock_;
  std::vector<Spin> spins_;
  Context scheduler_;
  StackPool stacks_;
  SharedArena arena_;
  Warp warps_[kMostThreads / kLanes];
  std::uint16_t start_order_[kMostThreads];
  uint3 indices_[kMostThreads];
  std::vector<Thread> threads_;
};

// The OS thread's own worker.
Worker& this_worker();

const char* warp_operation_name(WarpOp operation);

// The lane that a waiting thread's shuffle reads from; false where it is no shuffle.
bool shuffle_source(const Thread& thread, unsigned& source);

// Results of a warp operation for the lanes of `lanes`, which all wait in it.
void compute_warp_operation(WarpOp operation, unsigned lanes, Thread* const (&lane_threads)[kLanes]);

// Ends the use of the device: later calls and launches return `error`.
void set_sticky_error(int error);

}  // namespace cuemu
