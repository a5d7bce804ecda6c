// The exploration of a small launch: it runs in every order of its synchronising operations, which are those on mbarriers
// and named barriers, atomic operations, and accesses to flags. Orders that differ only in operations that commute count
// as one. That is dynamic partial-order reduction with source sets and sleep sets (Abdulla, Aronsson, Jonsson and Sagonas,
// POPL 2014): an order ends, and each pair of its operations that are not ordered otherwise asks for one that reverses it.
//
// Between two synchronising operations a thread runs without a stop. This loses nothing, because the checker reports
// accesses that nothing orders as races, whichever of them comes first. A thread that reads a flag in a loop waits until
// somebody writes it.
//
// Blocks that synchronise through shared memory alone do not meet, so each is explored by itself. The memory is as before in
// the end; the launch itself follows.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "block.h"

namespace cuemu {

// What a thread will do when it goes on.
struct Operation {
  enum class Kind : std::uint8_t { begin, arrive, wait, touch };
  Kind kind;
  const void* place;         // the barrier, or the bytes
  std::uint64_t parity = 0;  // that a wait is for
  unsigned bytes = 0;        // of a touch
  bool writes = false;
  unsigned reduction = 0;  // the kind of an update whose result nobody uses; those of one kind commute
  const void* code = nullptr;
  bool is_global = false;  // a touch of global memory
};

// By a thread's slot: the steps of that thread that are ordered before something, as the number of the last one plus 1.
// Slots beyond the end have none.
using StepClock = std::vector<std::uint32_t>;

class Exploration {
 public:
  static constexpr unsigned kMostThreads = 2048;
  static constexpr unsigned kMostOrders = 1000;
  static constexpr std::chrono::seconds kMostTime{10};
  static constexpr unsigned kMostSteps = 20000;  // of one order
  using Time = std::chrono::steady_clock::time_point;

  // Explores some blocks of a launch until a time; all of them unless it is a part.
  Exploration(bool is_part, Time end) : is_part_(is_part), end_(end) {}

  // Why orders are left; none if all have run.
  enum class Left { none, some, meets_others, allocates };
  Left left() const { return left_; }
  unsigned orders() const { return orders_; }
  // Takes back what orders have written.
  void restore() const;

  // Begins an order of the launch, whose blocks have all begun.
  void begin_order(const std::vector<Block*>& blocks);
  // Prepares the next order, with the memory of the first. Returns false if there is none, or the bound is reached.
  bool next_order();
  // Ends the exploration where orders cannot be compared.
  void break_off(Left why);

  // One of the launch's CUDA threads.
  struct Fiber {
    Block* block;
    Thread* thread;
    unsigned slot;  // in clocks; kNoSlot before its first step
    bool has_announced, is_parked, is_in_step;
    Operation next;           // which it has announced
    std::uint64_t parked_at;  // the changes when it began to wait in a loop
    StepClock known;
    // The touch that it made last, if that changed nothing: the same one again waits for a change.
    const void* idle_place;
    const void* idle_code;
    std::vector<std::size_t> idle_versions;  // by word, the changes until then
  };
  Fiber& fiber(const Block& block, const Thread& thread) { return fibers_[block.first_fiber + thread.linear]; }

  // Returns the thread that runs next; null once all have ended, none can go on, or the rest of the order is known.
  Fiber* next();
  // Whether the order has come to its end, or to a point behind which others have been.
  bool is_over() const { return is_over_; }
  // Whether threads run on without a plan, to show that they wait for something that never comes.
  bool is_adrift() const { return is_adrift_; }
  void become_ready(Fiber& fiber);
  void announce(Fiber& fiber, const Operation& operation);
  void park(Fiber& fiber);
  bool is_barrier(const void* place) const;

  // What the running thread's operation has done.
  void began(Fiber& self, const void* place);
  void arrived(Fiber& self, const void* place, bool flips, std::int64_t bytes, std::int64_t arrivals);
  void passed(Fiber& self, const void* place);
  // A thread is now behind all arrivals of the phases that are over.
  void acquire(Fiber& fiber, const void* place);
  // What a thread has done so far comes before whoever acquires a place.
  void publish(Fiber& fiber, const void* place);
  // Threads have met, perhaps in a barrier of the block or the grid: all of them are behind what each has done.
  void meet(const std::vector<Fiber*>& threads, bool is_barrier);

  // Notes what global memory holds before a write.
  void keep(const char* address, std::size_t bytes);

 private:
  static constexpr unsigned kNoSlot = ~0u;
  // Rounds without a change in which sleepers go on, and then also those who would repeat in vain what they did.
  static constexpr unsigned kPatientRounds = 1000, kForcedRounds = 64;

  struct Step {
    unsigned fiber;
    std::vector<unsigned> asleep;  // threads whose turn here leads to orders that have been
    std::vector<unsigned> done;    // threads that had their turn here, and the one that has it
    std::vector<unsigned> wanted;  // threads that shall have it
  };
  struct Event {
    unsigned fiber;
    StepClock clock;
  };
  struct Effect {
    enum class Kind : std::uint8_t { begin, arrive, flip, pass, read, write, reduce };
    Kind kind;
    const void* place;
    unsigned reduction = 0;
  };
  struct Place {
    bool is_barrier = false;
    // Of a barrier.
    int last_flip = -1, flip_before = -1;  // steps; -1 for none
    StepClock past, now, passes;
    std::vector<unsigned> passed, expected;  // steps since the last flip
    std::vector<unsigned> arrived;           // fibers since then
    // Of other places.
    int last_write = -1;
    std::vector<unsigned> reads;  // steps since then
    struct Reduction {
      unsigned step, kind;
    };
    std::vector<Reduction> reductions;  // since then
    std::vector<unsigned> changes;      // all steps that have changed it
    StepClock written, read;
  };

  // Steps with which the running one does not commute, and what its thread knew before that.
  struct Races {
    explicit Races(const Fiber& self) : self(self), before(self.known) {}
    void with(int step) {
      if (step >= 0) steps.push_back(static_cast<unsigned>(step));
    }
    void with(const std::vector<unsigned>& more) { steps.insert(steps.end(), more.begin(), more.end()); }
    const Fiber& self;
    StepClock before;
    std::vector<unsigned> steps;
  };

  Fiber* choose();
  Fiber* hurry(Fiber& fiber);
  Fiber* next_adrift();
  bool go_on_when_idle();
  bool wake_parked();
  bool complete_grid_barrier();
  bool is_enabled(const Fiber& fiber);
  bool is_dependent(const Operation& next, const Effect& effect) const;
  void grant(Fiber& fiber);
  void settle_touch();
  void note(Fiber& self, Effect::Kind kind, const void* place, unsigned reduction = 0);
  void flip(Place& place);
  void reverse(const Races& races);
  void want(const Fiber& self, unsigned step);
  unsigned number_of(const Fiber& fiber) const { return static_cast<unsigned>(&fiber - fibers_.data()); }

  std::vector<Block*> blocks_;
  std::vector<Fiber> fibers_;
  std::vector<unsigned> slots_;  // the fibers by slot
  std::deque<Fiber*> runnable_;
  std::vector<Fiber*> parked_;
  std::unordered_map<const void*, Place> places_;
  std::vector<Step> steps_;  // of the order, also those that are still to be repeated
  std::vector<Event> trace_;
  std::vector<Effect> effects_;  // of the last step
  std::uint64_t changes_ = 0;
  unsigned forced_rounds_ = 0;
  std::size_t hurried_at_ = 0;  // the last step for which a sleeper had to go on, and how often it did
  unsigned hurried_ = 0;
  unsigned last_ = 0;
  bool is_over_ = false, is_redundant_ = false, is_adrift_ = false, is_part_;
  Left left_ = Left::none;
  struct {
    Fiber* by = nullptr;
    std::vector<char> before;
  } touching_;
  struct Kept {
    char* address;
    std::uint32_t word;
  };
  std::vector<Kept> kept_;
  std::unordered_set<const char*> is_kept_;
  unsigned orders_ = 0;
  Time end_, idle_since_;
};

// Whether the wait for a phase of an mbarrier would end now, perhaps because copies happen that it waits for.
bool can_pass_mbarrier(const Block& block, const void* word, std::uint64_t parity);

// Reports how many orders of a launch have run without a fault, and why not all.
void report_orders(const Launch& launch, unsigned orders, Exploration::Left left);

}  // namespace cuemu
