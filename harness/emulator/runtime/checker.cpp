#include "checker.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
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

std::atomic<bool> checking{false};

namespace {

constexpr unsigned kPatience = 1000;    // reads of the same values before other threads may run
constexpr unsigned kMostTurns = 64;     // such turns in which nothing happens anywhere
// The limit for all threads' reads in such turns. A loop over a few coefficients ends before that
// and is not a wait.
constexpr std::uint64_t kMostIdleReads = 5'000'000;

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
  bool bounds_told = false;
  const char* indices = nullptr;  // the place of threadIdx, blockIdx, blockDim and gridDim
  const char* indices_end = nullptr;
  const char* host_stack = nullptr;
  const char* host_stack_end = nullptr;
};

// The part of the host's stack that the current launch reads: its arguments, and the variables of
// its call.
struct LaunchFrame {
  const char* end = nullptr;
  const char* const* captured = nullptr;
  std::size_t bytes = 0;
  bool holds(const char* address) const {
    const char* const call = reinterpret_cast<const char*>(captured);
    if (address < end || (address >= call && address < call + bytes)) return true;
    for (std::size_t i = 0; i < bytes / sizeof(char*); ++i) {
      if (address >= captured[i] && address < captured[i] + sizeof(char*)) return true;
    }
    return false;
  }
};
thread_local LaunchFrame launch_frame;

Checker* const the_checker = new Checker;

Checker& checker() { return *the_checker; }

bool is_new(char kind, const void* code, const void* other) {
  Checker& all = checker();
  return all.told.insert({all.kernel, code, other, kind}).second;
}

bool is_new(char kind, const void* code, int line) {
  return is_new(kind, code, reinterpret_cast<const void*>(static_cast<std::intptr_t>(line)));
}

std::string thread_words(uint3 thread, uint3 block) {
  return "thread " + coordinates(thread) + " of block " + coordinates(block);
}

const char* verb(const Touch& touch) {
  if (touch.is_atomic) return touch.writes ? (touch.reads ? "updates atomically" : "stores atomically") : "loads atomically";
  return touch.writes ? "writes" : "reads";
}

std::string size_words(std::size_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

void tell(const char* kind, const Running& at, const std::string& message, const char* remedy, const void* code,
          const char* what, bool is_suspicion) {
  Checker& all = checker();
  Report report{kind, all.kernel, 0, message, remedy, {{at.index(), at.block.index(), 0, what, code}}};
  report.is_suspicion = is_suspicion;
  add_report(std::move(report));
}

// ---- Where an address lies ------------------------------------------------------------------------------------------

bool is_mapped(const char* address) {
  static thread_local std::uintptr_t recent[64] = {};
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(address) / 4096;
  if (recent[page % 64] == page && page != 0) return true;
  unsigned char vector = 0;
  if (page == 0 || mincore(reinterpret_cast<void*>(page * 4096), 1, &vector) != 0) return false;
  recent[page % 64] = page;
  return true;
}

// Returns the guarded allocation in or beside which an address lies; empty if there is none.
Extent extent_of(const char* address) {
  Checker& all = checker();
  for (const Extent& one : all.known) {
    if (address >= one.data && static_cast<std::size_t>(address - one.data) < one.bytes) return one;
  }
  const Extent found = guarded_extent(address);
  if (found.data != nullptr) all.known[all.next_known++ % 4] = found;
  return found;
}

std::string with_article(const char* what) {
  return (std::strchr("aeiou", *what) != nullptr ? "an " : "a ") + std::string(what);
}

void tell_bounds(const Running& at, const Touch& touch, const std::string& where) {
  Checker& all = checker();
  all.bounds_told = true;
  if (!is_new('b', touch.code, nullptr)) return;
  tell("out-of-bounds", at,
       thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + size_words(touch.bytes) + " " + where +
           " in line {0}",
       "Bound every index by the size of what it indexes; the last block of a grid often has threads beyond the end.",
       touch.code, verb(touch), false);
}

std::string beside(const Touch& touch, const char* data, std::size_t bytes, const std::string& what) {
  const std::ptrdiff_t offset = touch.address - data;
  const std::string of = " of " + what + " of " + size_words(bytes);
  if (offset < 0) return std::to_string(-offset) + " bytes before the start" + of;
  return "at byte offset " + std::to_string(offset) + ", past the end" + of;
}

// Whether a global address may be accessed. Reports it if not.
bool is_in_bounds(const Running& at, const Touch& touch) {
  Checker& all = checker();
  if (touch.address >= all.host_stack && touch.address < all.host_stack_end) {
    if (launch_frame.holds(touch.address)) return false;
    tell_bounds(at, touch, "of the host's memory (a variable of a host function)");
    return false;
  }
  const Extent extent = extent_of(touch.address);
  if (extent.data != nullptr) {
    const std::ptrdiff_t offset = touch.address - extent.data;
    if (extent.is_freed) {
      tell_bounds(at, touch, "of " + with_article(extent.what) + " of " + size_words(extent.bytes) + " that was freed,");
      return false;
    }
    if (offset >= 0 && static_cast<std::size_t>(offset) + touch.bytes <= extent.bytes) return true;
    tell_bounds(at, touch, beside(touch, extent.data, extent.bytes, with_article(extent.what)));
    return false;
  }
  if (is_mapped(touch.address) && is_mapped(touch.address + touch.bytes - 1)) return true;
  char address[32];
  std::snprintf(address, sizeof address, "0x%zx", reinterpret_cast<std::size_t>(touch.address));
  const std::string message = thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " +
                              size_words(touch.bytes) + " at address " + address +
                              ", where there is no memory, in line {0}";
  at.worker.fail_at("out-of-bounds", touch.code, message, verb(touch),
                        "Check the pointer that the host passes, and every index, against the size of the tensor.");
}

// Whether another block of the cluster has certainly begun, and has not ended. Reports it if not.
bool is_alive(const Running& at, const Touch& touch, const Block& owner) {
  const bool has_ended = owner.live() == 0;
  if (!has_ended && (at.copy != nullptr || at.clock.knows_of(owner.clock().block(), at.thread))) return true;
  if (!is_new('e', touch.code, at.line)) return false;
  tell("out-of-bounds", at,
       thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + size_words(touch.bytes) +
           " of the shared memory of block " + coordinates(owner.index()) +
           (has_ended ? ", which has ended," : ", which may not have begun,") + " in line {0}",
       has_ended ? "Let all blocks meet at the cluster's barrier before one of them ends."
                 : "Let all blocks meet at the cluster's barrier before one accesses another's shared memory.",
       touch.code, verb(touch), false);
  return false;
}

// ---- Races ----------------------------------------------------------------------------------------------------------

Report race(const Running& at, const Touch& touch, const Cell& earlier, bool earlier_wrote, const std::string& where) {
  Checker& all = checker();
  const uint3 thread = index_in(earlier.thread(), all.config.block);
  const uint3 block = index_in(earlier.block() - 1, all.config.grid);
  const bool same_block = earlier.block() == at.clock.block();
  const bool same_warp = same_block && earlier.thread() / 32 == at.thread / 32;
  const char* const before = earlier.is_atomic() ? "updated atomically" : earlier_wrote ? "wrote" : "read";
  const char* const remedy =
      same_warp   ? "Put a __syncwarp() between the two: lanes of a warp do not run in lockstep."
      : at.clock.is_near(earlier.block()) && !same_block
          ? "Put the cluster's barrier (barrier.cluster.arrive and wait) between the two, or an mbarrier."
      : same_block ? "Put a __syncthreads() between the two, reached by all threads of the block."
      : earlier.is_atomic() || touch.is_atomic
          ? "Put a __threadfence() between the write and the atomic operation that tells of it; or make both atomic, or "
            "read the result in a later launch."
          : "Blocks are not ordered: use atomics, give each block its own elements, or read the result in a later launch "
            "(or behind a __threadfence() and an atomic counter).";
  Report report;
  report.kind = "race";
  report.kernel = all.kernel;
  report.line = 0;
  report.message = thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + where + " in line {0}, which " +
                   thread_words(thread, block) + " " + before + " in line {1}: nothing orders the two";
  report.remedy = remedy;
  report.accesses = {{at.index(), at.block.index(), 0, verb(touch), touch.code},
                     {thread, block, 0, before, earlier.code()}};
  return report;
}

void tell_race(const Running& at, const Touch& touch, const Cell& earlier, bool earlier_wrote, const std::string& where,
               bool is_shared) {
  if (is_new(is_shared ? 's' : 'g', touch.code, earlier.code())) {
    add_report(race(at, touch, earlier, earlier_wrote, where));
  }
}

// The block of the cluster whose shared memory holds an address; null for global memory.
Block* owner_of(Block& block, const char* address) {
  if (block.arena().holds(address)) return &block;
  return block.cluster() == nullptr ? nullptr : block.cluster()->owner_of(address);
}

// A copy in flight, which a block of the cluster may have to end, that an access meets; null if there is none.
const AsyncCopies::Waiting* copy_in_flight(Block& block, const Touch& touch) {
  const auto* const own = block.copies().in_flight(touch.address, touch.bytes, touch.writes);
  if (own != nullptr || block.cluster() == nullptr) return own;
  for (Block* const other : block.cluster()->blocks()) {
    const auto* const found = other->copies().in_flight(touch.address, touch.bytes, touch.writes);
    if (found != nullptr) return found;
  }
  return nullptr;
}

// An access to what an asynchronous copy is about to write, or a write to what it is about to read.
void tell_copy_in_flight(const Running& at, const Touch& touch, const AsyncCopies::Waiting& one, const std::string& where) {
  if (!is_new('y', touch.code, one.copy.line)) return;
  const uint3 thread = index_in(one.thread, checker().config.block);
  const std::string line = std::to_string(one.copy.line);
  Report report{"race", checker().kernel, 0,
                thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + where + " in line {0} while the " +
                    "asynchronous copy that " + thread_words(thread, one.from->index()) + " began in line " + line +
                    " is in flight: no wait has ended it",
                one.copy.barrier != nullptr
                    ? "Wait for the mbarrier's phase before the access, with the right parity."
                    : "Wait for the copy's group (cp.async.wait_group) in the thread that began it, then synchronise.",
                {{at.index(), at.block.index(), 0, verb(touch), touch.code},
                 {thread, one.from->index(), one.copy.line, "copies", nullptr}}};
  add_report(std::move(report));
}

// A copy's access to what a thread has accessed: unordered, or ordered without a fence for the asynchronous proxy. PTX asks
// for the fence also where a copy overwrites what was only read: on an H200 such a load saw the copy once in 2000 calls.
void tell_copy(const Running& at, const Touch& touch, const Cell& earlier, bool wrote, bool is_hidden, const std::string& where) {
  const int copy_line = at.line;
  if (!is_new('z', earlier.code(), copy_line)) return;
  const std::string line = std::to_string(copy_line), before = wrote ? "wrote" : "read";
  const uint3 thread = index_in(earlier.thread(), checker().config.block);
  const uint3 block = index_in(earlier.block() - 1, checker().config.grid);
  Report report{"race", checker().kernel, copy_line,
                std::string("the ") + at.agent + " that " + thread_words(at.index(), at.block.index()) + " began in line " + line + " " +
                    verb(touch) + " " + where + ", which " + thread_words(thread, block) + " " + before + " in line {1}: " +
                    (is_hidden ? "no fence.proxy.async lies between" : "nothing orders the two"),
                is_hidden ? "Put a fence.proxy.async behind the access, before the barrier that the copy's thread waits for."
                : at.copies()
                    ? "Let every thread arrive at an mbarrier behind its last access, and begin the next copy behind that phase."
                    : "Let the wgmma begin behind the barrier that says that its operands are there, and wait for it "
                      "(wgmma.wait_group) before they are written again.",
                {{at.index(), at.block.index(), copy_line, std::string(at.copies() ? "copies and " : "multiplies and ") + verb(touch), nullptr},
                 {thread, block, 0, before, earlier.code()}}};
  add_report(std::move(report));
}

bool conflicts(const Cell& earlier, const Touch& touch, unsigned bytes, const Running& at) {
  return !earlier.is_empty() && (earlier.bytes() & bytes) != 0 && !(earlier.is_atomic() && touch.is_atomic) &&
         !at.is_behind(earlier);
}

// Whether an access of a thread precedes the copy that happens now, but no fence shows it to the asynchronous proxy.
bool is_hidden(const Cell& earlier, unsigned bytes, const Running& at) {
  return at.copy != nullptr && (earlier.bytes() & bytes) != 0 && at.clock.lacks_proxy_fence(earlier, *at.copy);
}

bool lacks_fence(const Cell& earlier, const Touch& touch, const Running& at) {
  const auto own = checker().histories.find(touch.address);
  return at.clock.lacks_fence(earlier, own == checker().histories.end() ? nullptr : &own->second);
}

// Notes an access in a word. Returns the earlier access that it races with, or null.
struct Conflict {
  Cell earlier;
  bool wrote;
  bool is_hidden = false;  // from the asynchronous proxy, but ordered
};
Conflict note(Word& word, const Cell& cell, const Touch& touch, const Running& at, unsigned bytes) {
  Conflict found{};
  if (conflicts(word.write, touch, bytes, at)) found = {word.write, true};
  else if (is_hidden(word.write, bytes, at)) found = {word.write, true, true};
  // Both accesses may be atomic and the value still be old: an atomic operation claims that the
  // value is there, but no fence guarantees it.
  if (touch.is_volatile && !touch.writes && word.write.is_volatile() && lacks_fence(word.write, touch, at) &&
      !at.is_behind(word.write)) {
    found = {word.write, true};
  }
  if (!touch.writes) {
    Cell& last = word.reads[0];
    const bool is_own = last.block() == cell.block() && last.thread() == cell.thread();
    if (is_own && cell.is_atomic() && !last.is_atomic()) return found;  // keep the plain read, the one to check
    if (!last.is_empty() && !is_own) word.reads[1] = last;
    last = cell;
    return found;
  }
  const Cell& own = word.reads[0];
  if (touch.compares && own.block() == cell.block() && own.thread() == cell.thread()) checker().settled.insert(own.code());
  for (const Cell& read : word.reads) {
    if (!found.earlier.is_empty()) break;
    if (conflicts(read, touch, bytes, at)) found = {read, false};
    else if (is_hidden(read, bytes, at)) found = {read, false, true};
  }
  word.write = cell;
  word.reads[0] = word.reads[1] = Cell{};
  return found;
}

std::string shared_words(const SharedArena::Place& place) {
  if (place.name == nullptr) return "the dynamic shared memory";
  return *place.name == 0 ? "shared memory" : std::string("the __shared__ variable ") + place.name;
}

std::string place_words(const Touch& touch, const SharedArena::Place* place) {
  if (place != nullptr) return shared_words(*place) + " at byte " + std::to_string(touch.address - place->data);
  const Extent extent = extent_of(touch.address);
  if (extent.data == nullptr) return "a global variable";
  return with_article(extent.what) + " of " + size_words(extent.bytes) + " at byte " +
         std::to_string(touch.address - extent.data);
}

std::string place_words(Block& block, const Touch& touch) {
  const Block* const owner = owner_of(block, touch.address);
  if (owner == nullptr) return place_words(touch, nullptr);
  const SharedArena::Place place = owner->arena().place(touch.address, touch.bytes);
  return place_words(touch, &place);
}

// The checker learns of a store before it happens, and no other access comes between.
void settle_repeated_store() {
  RepeatedStore& store = checker().repeated;
  const Touch touch = store.touch;
  store.touch.address = nullptr;
  if (std::memcmp(touch.address, store.before, touch.bytes) == 0) return;
  tell_race({this_worker(), *store.block, store.block->clock(), store.thread}, touch, store.earlier, true,
            place_words(*store.block, touch), owner_of(*store.block, touch.address) != nullptr);
}

void tell_or_doubt(const Running& at, const Touch& touch, const Conflict& conflict, const SharedArena::Place* place) {
  Doubt& doubt = at.block.conduct(at.thread).doubt;
  RepeatedStore& store = checker().repeated;
  if (at.copy != nullptr) {
    return tell_copy(at, touch, conflict.earlier, conflict.wrote, conflict.is_hidden, place_words(touch, place));
  }
  if (!touch.reads && !touch.is_atomic && conflict.wrote && touch.bytes <= sizeof store.before) {
    if (store.touch.address != nullptr) return;  // another word of the same store
    store = {touch, conflict.earlier, {}, &at.block, at.thread};
    std::memcpy(store.before, touch.address, touch.bytes);
    return;
  }
  if (touch.is_atomic && !conflict.wrote && !conflict.earlier.is_atomic()) {  // reported as the reader's own doubt
    checker().unsettled.try_emplace(conflict.earlier.code(),
                                    race(at, touch, conflict.earlier, false, place_words(touch, place)));
    return;
  }
  const bool is_plain_read = !touch.writes && !touch.is_atomic;
  if (is_plain_read && conflict.wrote && conflict.earlier.is_atomic() && doubt.address == nullptr) {
    doubt = {touch.address, Doubt::kPatience, touch, conflict.earlier};
    ++checker().doubts;
  } else {
    tell_race(at, touch, conflict.earlier, conflict.wrote, place_words(touch, place), place != nullptr);
  }
}

void tell_uninitialised(const Running& at, const Touch& touch, const SharedArena::Place* place) {
  if (!is_new('u', touch.code, nullptr)) return;
  tell("uninitialised", at,
       thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + place_words(touch, place) +
           " in line {0}, where nothing was written before",
       "Write every element before it is read: zero what is accumulated, and fill tiles to their last element.",
       touch.code, verb(touch), true);
}

// Notes an access in all words that it touches. `place` is its place in shared memory, or null for
// global memory.
void note_words(const Running& at, const Touch& touch, const SharedArena::Place* place) {
  Checker& all = checker();
  const std::uint32_t block = at.clock.block();
  const unsigned first = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(touch.address) % kWordBytes);
  const char* const end = touch.address + touch.bytes;
  const Cell whole = Cell::of(block, at.thread, at.clock.time(), at.lane_clock(), touch.code, 15, touch.is_atomic,
                              touch.is_volatile, at.copy != nullptr && at.copy->is_in_async_proxy);
  bool untouched = true;
  for (const char* word_address = touch.address - first; word_address < end; word_address += kWordBytes) {
    Word* const word = all.shadow.word(word_address);
    if (word == nullptr) return;
    if (place != nullptr) {  // left by an earlier block
      if (!at.clock.is_near(word->write.block())) word->write = Cell{};
      if (!at.clock.is_near(word->reads[0].block())) word->reads[0] = word->reads[1] = Cell{};
    }
    unsigned bytes = 15;
    if (word_address < touch.address) bytes &= 15u << first;
    if (word_address + kWordBytes > end) bytes &= 15u >> (word_address + kWordBytes - end);
    untouched = untouched && word->write.is_empty();
    const Conflict conflict = note(*word, whole.of_bytes(bytes), touch, at, bytes);
    if (!conflict.earlier.is_empty()) tell_or_doubt(at, touch, conflict, place);
  }
  if (untouched && touch.reads && is_poison(touch.address, touch.bytes)) tell_uninitialised(at, touch, place);
}

void forget_doubt(Doubt& doubt) {
  doubt.address = nullptr;
  --checker().doubts;
}

// Keeps the report of a doubt until the launch has ended.
void keep_doubt(const Running& at, Doubt& doubt) {
  const std::string where = place_words(at.block, doubt.touch);
  checker().unsettled.try_emplace(doubt.touch.code, race(at, doubt.touch, doubt.earlier, true, where));
  forget_doubt(doubt);
}

// Decides whether a thread's earlier read was a fault, by what the thread does next.
void settle_doubt(const Running& at, Doubt& doubt, const Touch& touch) {
  if (touch.address == doubt.address && touch.is_atomic && touch.writes && touch.compares) {
    checker().settled.insert(doubt.touch.code);
    forget_doubt(doubt);
  } else if (--doubt.left == 0) {
    keep_doubt(at, doubt);
  }
}

// ---- Threads that wait ----------------------------------------------------------------------------------------------

std::uint64_t value_at(const Touch& touch) {
  std::uint64_t value = 0;
  std::memcpy(&value, touch.address, touch.bytes < sizeof value ? touch.bytes : sizeof value);
  return value;
}

// Counts reads of the same values. After many of them it lets other threads run, and it reports a
// deadlock if nothing happens.
void notice_waiting(const Running& at, const Touch& touch) {
  Checker& all = checker();
  Spin& spin = at.block.conduct(at.thread).spin;
  unsigned place = 0;
  while (place < spin.places && spin.addresses[place] != touch.address) ++place;
  const std::uint64_t value = value_at(touch);
  if (place == spin.places || spin.values[place] != value) {
    if (place == Spin::kPlaces) spin.places = place = 0;
    if (place == spin.places) ++spin.places;
    spin.addresses[place] = touch.address;
    spin.values[place] = value;
    spin.reads = spin.turns = 0;
    ++all.progress;
    return;
  }
  if (++spin.reads < kPatience) return;
  spin.reads = 0;
  spin.turns = spin.progress == all.progress ? spin.turns + 1 : 0;
  spin.progress = all.progress;
  all.idle_reads = all.idle_since == all.progress ? all.idle_reads + kPatience : 0;
  all.idle_since = all.progress;
  if (spin.turns < kMostTurns || all.idle_reads < kMostIdleReads) return at.worker.yield();
  at.worker.fail_at("deadlock", touch.code,
                 thread_words(at.index(), at.block.index()) + " waits in line {0} for a value that nobody writes: no "
                 "other thread can go on",
                 "waits", "Let what is waited for be written by a thread that does not wait itself, and release every lock.");
}

}  // namespace

void note_launch_frame(const void* end, const void* call, std::size_t bytes) {
  LaunchFrame& frame = launch_frame;
  frame.end = static_cast<const char*>(end);
  frame.captured = static_cast<const char* const*>(call);
  frame.bytes = bytes;
}

void begin_checked_launch(const char* kernel, const Config& config) {
  Checker& all = checker();
  all.shadow.forget();
  all.histories.clear();
  all.kernel = kernel;
  all.config = config;
  all.bounds_told = false;
  all.repeated.touch.address = nullptr;
  all.doubts = 0;  // doubts of an abandoned launch
  all.idle_reads = 0;
  for (Extent& one : all.known) one = Extent{};
  const auto [first, last] = index_storage();
  all.indices = first;
  all.indices_end = last;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* begin = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    all.host_stack = static_cast<const char*>(begin);
    all.host_stack_end = all.host_stack + bytes;
  }
}

void end_checked_block(Block& block) {
  if (checker().repeated.touch.address != nullptr) settle_repeated_store();
  block.for_each_begun([&](Thread& thread) {
    Doubt& doubt = block.conduct(thread.linear).doubt;
    if (doubt.address != nullptr) keep_doubt({this_worker(), block, block.clock(), thread.linear}, doubt);
  });
}

void end_checked_launch() {
  Checker& all = checker();
  for (auto& [code, report] : all.unsettled) {
    if (all.settled.count(code) == 0 && is_new('d', code, nullptr)) add_report(std::move(report));
  }
  all.unsettled.clear();
  all.settled.clear();
}

void check_grid_barrier() { checker().shadow.forget(); }

bool has_reported_bounds() { return checker().bounds_told; }

namespace {

// An access to a register that a product in flight writes. Reports it.
void check_register(Worker& worker, const Touch& touch) {
  Block& block = worker.block();
  const auto* const found = block.products().registers_at(worker.thread().linear, touch.address, touch.bytes);
  if (found == nullptr || !is_new('r', touch.code, found->line)) return;
  const uint3 thread = worker.thread_index();
  const std::string line = std::to_string(found->line);
  add_report({"race", checker().kernel, 0,
              thread_words(thread, block.index()) + " " + verb(touch) + " a register in line {0} while the wgmma of line " + line +
                  ", which writes it, is in flight: no wgmma.wait_group has ended it",
              "Put wgmma.commit_group and wgmma.wait_group between the wgmma and the access.",
              {{thread, block.index(), 0, verb(touch), touch.code}, {thread, block.index(), found->line, "multiplies", nullptr}}});
}

}  // namespace

void check_access(Touch touch) {
  Checker& all = checker();
  if (touch.address >= all.indices && touch.address < all.indices_end) return;  // threadIdx and the like
  Worker& worker = this_worker();
  const Thread& thread = worker.thread();
  if (touch.address <= thread.stack && touch.address > thread.stack - kStackBytes) {  // a local variable
    if (worker.block().products().has_registers()) check_register(worker, touch);
    return;
  }
  if (all.repeated.touch.address != nullptr) settle_repeated_store();
  Block& block = worker.block();
  const AsyncCopies::Waiting* const copy = block.copies().current();
  Block& acting = copy != nullptr ? *copy->from : block;
  if (copy != nullptr && copy->copy.box != nullptr) touch.code = copy->code;
  const Running at{worker, acting, acting.clock(), copy != nullptr ? copy->view.thread : thread.linear,
                   copy != nullptr ? &copy->view : nullptr, copy != nullptr ? copy->copy.line : 0};
  if (all.doubts != 0) {
    Doubt& doubt = block.conduct(thread.linear).doubt;
    if (doubt.address != nullptr) settle_doubt(at, doubt, touch);
  }
  SharedArena::Place place{};
  const Block* const owner = owner_of(block, touch.address);
  const bool is_shared = owner != nullptr;
  if (is_shared) {
    if (owner != &at.block && !is_alive(at, touch, *owner)) return;
    place = owner->arena().place(touch.address, touch.bytes);
    if (!place.is_inside) {
      return tell_bounds(at, touch, beside(touch, place.data, place.bytes, shared_words(place)));
    }
  } else if (!is_in_bounds(at, touch)) {
    return;
  }
  if (const auto* flying = copy_in_flight(block, touch)) {
    tell_copy_in_flight(at, touch, *flying, place_words(touch, is_shared ? &place : nullptr));
  }
  if (touch.writes && !touch.is_atomic) ++all.progress;
  if (!touch.is_atomic && !touch.is_volatile) return note_words(at, touch, is_shared ? &place : nullptr);
  // This comes first because it may let other threads run. The access follows whatever they do.
  if (touch.reads) notice_waiting(at, touch);
  const bool is_flag = touch.is_volatile && (!is_shared || !touch.writes || at.clock.has_fenced());
  if (is_flag && touch.writes && !is_shared) at.clock.store_flag();
  touch.is_atomic = touch.is_atomic || is_flag;
  note_words(at, touch, is_shared ? &place : nullptr);
  if (touch.reads) {
    const auto found = all.histories.find(touch.address);
    if (found != all.histories.end()) at.clock.acquire(found->second);
  }
  if (touch.writes) at.clock.release(all.histories[touch.address], at.thread);
}

void check_product_begin(Block& block, const CopyView& view, const WarpgroupProduct& product, const char* address, std::size_t bytes) {
  const Touch touch{address, bytes, true, false, false, false, product.code};
  const Running at{this_worker(), block, block.clock(), view.thread, &view, product.line, "wgmma"};
  const SharedArena::Place place = block.arena().place(address, bytes);
  if (!place.is_inside) return tell_bounds(at, touch, beside(touch, place.data, place.bytes, shared_words(place)));
  if (const auto* flying = copy_in_flight(block, touch)) tell_copy_in_flight(at, touch, *flying, place_words(touch, &place));
}

void check_product_read(Block& block, const CopyView& view, const WarpgroupProduct& product, const char* address, std::size_t bytes) {
  const Touch touch{address, bytes, true, false, false, false, product.code};
  const Running at{this_worker(), block, block.clock(), view.thread, &view, product.line, "wgmma"};
  const SharedArena::Place place = block.arena().place(address, bytes);
  if (place.is_inside) note_words(at, touch, &place);
}

void check_product_fence(const WarpgroupProduct& product) {
  if (!is_new('f', product.code, product.line)) return;
  Worker& worker = this_worker();
  const std::string thread = worker.position();
  add_report({"race", checker().kernel, product.line,
              thread + " begins a wgmma in line " + std::to_string(product.line) +
                  " without a wgmma.fence before: its registers and the thread's own accesses to them are not ordered",
              "Put a wgmma.fence.sync.aligned before the first wgmma, and behind every access to registers that the next one uses.",
              {{worker.thread_index(), worker.block().index(), product.line, "multiplies", nullptr}}});
}

void tell_overflow(int line, const char* operation, const char* type) {
  Checker& all = checker();
  Worker& worker = this_worker();
  const uint3 thread = worker.thread_index(), block = worker.block().index();
  if (!is_new('o', nullptr, line)) return;
  add_report({"overflow", all.kernel, line,
              thread_words(thread, block) + " computes a " + operation + " of type " + type +
                  " beyond its range in line " + std::to_string(line),
              "Compute indices past 2^31 in 64 bits: cast one operand to long long (or size_t) before the product.",
              {{thread, block, line, std::string("computes ") + operation, nullptr}}});
}

void check_absent_lane(uint3 thread, uint3 block, const char* operation, unsigned lane, int line) {
  Checker& all = checker();
  if (!is_new('m', operation, line)) return;
  Report report{"mask", all.kernel, line,
                thread_words(thread, block) + " reads from lane " + std::to_string(lane) + " by " +
                    operation + " in line " + std::to_string(line) + ", and that lane does not take part",
                "Let all lanes that are read from reach the call, and name them in the mask.",
                {{thread, block, line, operation, nullptr}}};
  report.is_suspicion = true;
  add_report(std::move(report));
}

}  // namespace cuemu
