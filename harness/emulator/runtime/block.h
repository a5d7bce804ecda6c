// A block of a launch: its CUDA threads, their waits, and its shared memory. The worker runs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "async_copy.h"
#include "checker.h"
#include "cuemu/runtime.h"
#include "fiber.h"
#include "shared_arena.h"
#include "warpgroup.h"

namespace cuemu {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kLanes = 32;
// cudaErrorIllegalInstruction, cudaErrorLaunchFailure and cudaErrorInvalidValue, without the host API's header.
constexpr int kIllegalInstruction = 715;
constexpr int kLaunchFailure = 719;
constexpr int kInvalidValue = 1;

enum class Order : int { forward = 0, reverse = 1, random = 2 };

class Exploration;

// The data that all blocks of a launch share.
struct Launch {
  const char* kernel;
  int line;
  Config config;
  Entry entry;
  const void* bound;
  Order order;
  std::uint64_t seed;
  std::uint64_t blocks;
  std::uint64_t clusters;        // as many as blocks where each is one by itself
  std::uint64_t resident_limit;  // the most blocks that a worker may keep alive
  std::size_t shared_limit;
  std::atomic<std::uint64_t> next_cluster{0};
  std::atomic<bool> abandoned{false};
  Exploration* exploration = nullptr;  // null unless the launch runs in all orders
};

enum class State : std::uint8_t { ready, at_barrier, at_named_barrier, at_cluster_barrier, at_warp_operation, ended };

class Cluster;

struct Thread {
  Context context;
  char* stack;  // null once the thread has ended
  Thread* next_ready;
  unsigned linear;
  std::uint32_t cluster_arrival;  // the phase of the cluster's barrier at which it has arrived, plus 1; 0 for none
  State state;
  // The thread's wait. These members are valid in the two waiting states.
  int line;
  int operation;
  unsigned mask;
  int parameter;
  int width;
  std::uint64_t value;
  std::uint64_t result;

  bool holds_local(const char* address) const { return address <= stack && address > stack - kStackBytes; }
};

struct Warp {
  unsigned live;     // lanes that exist and have not ended
  unsigned arrived;  // lanes that wait in a warp operation
  unsigned at_barrier;
  unsigned converging;  // lanes that ask which lanes run along with them
};

// Whether two waiting threads wait in the same place for the same thing.
inline bool waits_alike(const Thread& left, const Thread& right) {
  return left.state == right.state && left.operation == right.operation && left.line == right.line &&
         (left.state != State::at_warp_operation || left.mask == right.mask);
}

// splitmix64
std::uint64_t next_random(std::uint64_t& state);

class Block {
 public:
  // Call this before the launch's first begin().
  void begin_launch(const Launch& launch);
  // `clock` is that of the block's cluster, if there is one.
  void begin(std::uint64_t number, ClusterClock* clock = nullptr, unsigned rank = 0);

  uint3 index() const { return index_; }
  const Launch& launch() const { return *launch_; }
  unsigned live() const { return live_; }
  SharedArena& arena() { return arena_; }
  const SharedArena& arena() const { return arena_; }

  // Removes and returns the next thread to run; null if none can run.
  Thread* take_ready();
  void make_ready(Thread& thread);
  // The same for a thread that waits for others in a loop.
  void let_wait(Thread& thread);
  bool has_ready() const { return ready_.first != nullptr || ready_warps_ != 0; }
  // Returns the next thread that has not begun, still without a stack; null if all have begun.
  Thread* start_next();
  // Ends all threads except `first`, which must be the only one that has begun and which does their
  // work. Returns the order in which to do it.
  const std::uint16_t* take_threads(const Thread& first);
  unsigned size() const { return size_; }
  void end_thread(Thread& thread);

  // Makes a thread wait. The last thread of the block makes all others ready. Returns false if
  // others wait at another barrier.
  bool arrive_at_barrier(Thread& thread, Barrier kind, int predicate, int line);
  const Thread& first_at_barrier() const { return *first_at_barrier_; }
  int barrier_result() const { return barrier_result_; }
  // Whether all live threads wait at the grid's barrier, which complete_barrier() then ends.
  bool waits_for_grid() const { return waits_for_grid_; }
  void complete_barrier();

  static constexpr unsigned kNamedBarriers = 16;
  // Arrives at a named barrier that opens for `threads`, and makes the thread wait there if it waits. Returns the number
  // that others have given in this phase: `threads`, or the fault.
  unsigned arrive_at_named_barrier(Thread& thread, unsigned number, unsigned threads, bool waits);
  const void* place_of_named_barrier(unsigned number) const { return &named_[number]; }

  // The cluster is null until it matters, for a block that is one by itself.
  Cluster* cluster() const { return cluster_; }
  unsigned rank() const { return rank_; }
  void join(Cluster* cluster, unsigned rank) {
    cluster_ = cluster;
    rank_ = rank;
  }
  // Makes a thread wait for the cluster's barrier, and ends the wait of all threads that do.
  void wait_for_cluster(Thread& thread);
  void leave_cluster_barrier();
  bool waits_for_cluster() const { return at_cluster_barrier_ != 0; }

  // Makes a thread wait in the warp operation that it describes, and computes the results that are
  // complete.
  void arrive_at_warp_operation(Thread& thread);
  // Makes a thread wait until no lane of its warp can run on. Lanes that ask in the same line run
  // together.
  void ask_active_lanes(Thread& thread);
  // Answers all lanes that ask, although other lanes can run on. Returns false if no lane asks.
  bool answer_active_lanes();
  unsigned live_lanes(const Thread& thread) const { return warps_[thread.linear / kLanes].live; }

  // Calls visit(thread) for every thread that has begun, in the order of beginning.
  template <typename Visit>
  void for_each_begun(Visit visit) {
    for (unsigned i = 0; i < next_start_; ++i) visit(threads_[start_order_[i]]);
  }
  template <typename Visit>
  void for_each_unfinished(Visit visit) const {
    for (const Thread& thread : threads_) {
      if (thread.state != State::ended) visit(thread);
    }
  }

  // For the checking mode.
  BlockClock& clock() { return clock_; }
  const BlockClock& clock() const { return clock_; }
  Conduct& conduct(unsigned thread) { return conduct_[thread]; }

  AsyncCopies& copies() { return copies_; }
  const AsyncCopies& copies() const { return copies_; }
  ProductsInFlight& products() { return products_; }
  // Whether the copy that begins now happens as late as possible. The checking mode finds accesses meanwhile by
  // themselves.
  bool delays_copy() {
    if (is_checking()) return true;
    return launch_->order == Order::reverse || (launch_->order == Order::random && (next_random(random_) & 1) != 0);
  }

  unsigned first_fiber = 0;  // of an exploration
  bool spinning = false;  // whether its threads only yielded when it last ran
  bool parked = false;    // whether it can only wait for its cluster

 private:
  void order_threads();
  void become_ready_in_exploration(Thread& thread);
  // For an exploration: the threads of a mask of a warp, or of the whole block, are behind each other's steps.
  void meet_in_exploration(unsigned first, unsigned lanes);
  void meet_in_exploration();
  void leave_barrier(Thread& thread);
  bool complete_warp_operation(unsigned warp, unsigned lane);
  void lane_stopped(unsigned warp);
  void answer_lanes(unsigned warp);
  void make_lanes_ready(unsigned warp, unsigned lanes);
  void check_warp_operation(unsigned warp, unsigned lanes, Thread* const (&waiting)[kLanes]);

  struct Queue {
    Thread* first = nullptr;
    Thread* last = nullptr;
    void push(Thread& thread) {
      thread.next_ready = nullptr;
      (last != nullptr ? last->next_ready : first) = &thread;
      last = &thread;
    }
    Thread* pop() {
      Thread* const taken = first;
      if (taken == nullptr) return nullptr;
      first = taken->next_ready;
      if (first == nullptr) last = nullptr;
      return taken;
    }
  };
  void order_warps();
  Thread* take_by_rank();
  unsigned first_place() const;
  void put_last(unsigned place);

  const Launch* launch_ = nullptr;
  Queue ready_;
  // For the random order instead: the warps, the one that goes first at the front, and the threads of each that can run.
  Queue ready_of_[kMostThreads / kLanes];
  std::uint32_t ready_warps_ = 0;
  std::uint8_t ranks_[kMostThreads / kLanes];
  std::uint64_t delay_mask_ = 0;
  unsigned size_ = 0;
  unsigned next_start_ = 0;
  unsigned live_ = 0;
  unsigned at_barrier_ = 0;
  unsigned at_cluster_barrier_ = 0;
  unsigned rank_ = 0;
  Cluster* cluster_ = nullptr;
  int barrier_sum_ = 0;
  int barrier_result_ = 0;
  bool waits_for_grid_ = false;
  struct NamedBarrier {
    unsigned arrived, threads;
  };
  NamedBarrier named_[kNamedBarriers] = {};
  Thread* first_at_barrier_ = nullptr;
  std::uint64_t number_ = 0;
  std::uint64_t random_ = 0;
  uint3 index_ = {0, 0, 0};
  Warp warps_[kMostThreads / kLanes];
  std::vector<std::uint16_t> start_order_;
  std::vector<Thread> threads_;
  SharedArena arena_;
  BlockClock clock_;
  AsyncCopies copies_;
  ProductsInFlight products_;
  std::vector<Conduct> conduct_;  // by thread, in the checking mode
};

// Defined here because every barrier and every switch between threads calls them.

inline Thread* Block::start_next() {
  if (next_start_ == size_) return nullptr;
  const unsigned linear = start_order_[next_start_++];
  Thread& thread = threads_[linear];
  thread.linear = linear;
  thread.state = State::ready;
  thread.next_ready = nullptr;
  thread.stack = nullptr;
  thread.cluster_arrival = 0;
  return &thread;
}

inline void Block::make_ready(Thread& thread) {
  thread.state = State::ready;
  if (launch_->exploration != nullptr) return become_ready_in_exploration(thread);
  if (launch_->order != Order::random) return ready_.push(thread);
  const unsigned warp = thread.linear / kLanes;
  ready_of_[warp].push(thread);
  ready_warps_ |= 1u << warp;
}

inline Thread* Block::take_ready() { return ready_warps_ != 0 ? take_by_rank() : ready_.pop(); }

inline bool Block::arrive_at_barrier(Thread& thread, Barrier kind, int predicate, int line) {
  thread.state = State::at_barrier;
  thread.operation = static_cast<int>(kind);
  thread.line = line;
  if (at_barrier_ == 0) {
    first_at_barrier_ = &thread;
  } else if (!waits_alike(*first_at_barrier_, thread)) {
    return false;
  }
  barrier_sum_ += predicate != 0 ? 1 : 0;
  const unsigned number = thread.linear / kLanes;
  warps_[number].at_barrier |= 1u << thread.linear % kLanes;
  if (++at_barrier_ == live_) complete_barrier();
  else if (warps_[number].converging != 0) lane_stopped(number);
  return true;
}

uint3 index_in(std::uint64_t linear, const dim3& sizes);

const char* warp_operation_name(WarpOp operation);

// The outcome of a warp's matrix operation, returned to each lane.
enum class MatrixOutcome : std::uint64_t { done, lanes_missing, lanes_differ };
MatrixOutcome multiply_warpgroup(Block& block, Thread* const (&threads)[kLanes]);
void compute_matrix_operation(WarpOp operation, unsigned lanes, Thread* const (&lane_threads)[kLanes]);

// Finds the lane that a waiting thread's shuffle reads from. Returns false if the operation is not
// a shuffle.
bool shuffle_source(const Thread& thread, unsigned& source);

// Computes a warp operation for the lanes of `lanes`, which all wait in it.
void compute_warp_operation(WarpOp operation, unsigned lanes, Thread* const (&lane_threads)[kLanes]);

}  // namespace cuemu
