// What the files of the checking mode share: the checker's state, and how it words a report.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "guard.h"
#include "report.h"
#include "shadow.h"
#include "worker.h"

namespace cuemu {

struct Site {
  const char* kernel;
  const void* code;
  const void* other;
  char kind;
  bool operator<(const Site& right) const {
    return std::tie(code, other, kind, kernel) < std::tie(right.code, right.other, right.kind, right.kernel);
  }
};

// The running thread.
struct Running {
  Worker& worker;
  Block& block;
  BlockClock& clock;
  unsigned thread;
  const CopyView* copy = nullptr;  // set if an asynchronous copy of the thread accesses memory, not the thread itself
  int line = 0;                    // of that copy
  const char* agent = "asynchronous copy";
  uint3 index() const { return index_in(thread, block.launch().config.block); }
  bool is_behind(const Cell& earlier) const {
    return copy != nullptr ? clock.is_behind(earlier, *copy) : clock.is_behind(earlier, thread);
  }
  bool copies() const { return *agent == 'a'; }
  unsigned lane_clock() const { return copy != nullptr ? copy->clock : clock.lane_clock(thread); }
};

// A store that races with an earlier one. It is no fault if it stores the value that is there
// already.
struct RepeatedStore {
  Touch touch;  // the address is null if there is no store
  Cell earlier;
  char before[16];
  Block* block;
  unsigned thread;
};

// The checker handles one launch at a time, on one OS thread.
struct Checker {
  Shadow shadow;
  std::unordered_map<const char*, History> histories;
  std::set<Site> told;
  const char* kernel = "";
  Config config{};
  Extent known[4] = {};  // the allocations touched last
  unsigned next_known = 0;
  std::uint64_t progress = 0;
  unsigned doubts = 0;  // of all threads
  // Doubts that no update settled, by the line's code. The launch's end reports them, unless
  // updates settle other doubts of that line.
  std::map<const void*, Report> unsettled;
  std::set<const void*> settled;
  std::uint64_t idle_since = 0;  // the progress when idle_reads began to count
  std::uint64_t idle_reads = 0;
  RepeatedStore repeated{};
  const Thread* running = nullptr;  // the thread of the last access, and how many it has made since another one's
  std::uint32_t stretch = 0;
  std::uint64_t repeats = 0;  // of faults that are known
  bool bounds_told = false;
  bool is_clock_full = false;
  const char* indices = nullptr;  // the place of threadIdx, blockIdx, blockDim and gridDim
  const char* indices_end = nullptr;
  const char* host_stack = nullptr;
  const char* host_stack_end = nullptr;
};

extern Checker* const the_checker;
inline Checker& checker() { return *the_checker; }

// ---- Words (checker.cpp) ---------------------------------------------------------------------------------------------

// Whether a fault of a kind at some code, and at other code or another line, is the first of a run.
bool is_new(char kind, const void* code, const void* other);
bool is_new(char kind, const void* code, int line);
std::string thread_words(uint3 thread, uint3 block);
const char* verb(const Touch& touch);
std::string size_words(std::size_t bytes);
std::string with_article(const char* what);
void tell(const char* kind, const Running& at, const std::string& message, const char* remedy, const void* code,
          const char* what, bool is_suspicion);

// ---- Where an address lies (bounds.cpp) ------------------------------------------------------------------------------

// Returns the guarded allocation in or beside which an address lies; empty if there is none.
Extent extent_of(const char* address);
// Whether a global address may be accessed. Reports it if not.
bool is_in_bounds(const Running& at, const Touch& touch);
// Whether another block of the cluster has certainly begun, and has not ended. Reports it if not.
bool is_alive(const Running& at, const Touch& touch, const Block& owner);
void tell_bounds(const Running& at, const Touch& touch, const std::string& where);
void tell_bounds(const Running& at, const Touch& touch, const std::string& where, const char* remedy);
std::string beside(const Touch& touch, const char* data, std::size_t bytes, const std::string& what);

// ---- Races (races.cpp) -----------------------------------------------------------------------------------------------

// The block of the cluster whose shared memory holds an address; null for global memory.
Block* owner_of(Block& block, const char* address);
// A copy in flight, which a block of the cluster may have to end, that an access meets; null if there is none.
const AsyncCopies::Waiting* copy_in_flight(Block& block, const Touch& touch);
void tell_copy_in_flight(const Running& at, const Touch& touch, const AsyncCopies::Waiting& one, const std::string& where);
std::string shared_words(const SharedArena::Place& place);
// `place` is that of an access in shared memory, or null for global memory.
std::string place_words(const Touch& touch, const SharedArena::Place* place);
// Notes an access in all words that it touches, and reports the races that it makes.
void note_words(const Running& at, const Touch& touch, const SharedArena::Place* place);
// Reports a read through the read-only cache of what the launch has written.
void check_constant(const Running& at, const Touch& touch);
void settle_repeated_store();
// Decides whether a thread's earlier read was a fault, by what the thread does next.
void settle_doubt(const Running& at, Doubt& doubt, const Touch& touch);
// Keeps the report of a doubt until the launch has ended.
void keep_doubt(const Running& at, Doubt& doubt);

}  // namespace cuemu
