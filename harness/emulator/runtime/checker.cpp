// The checking mode's part that sees each access of a kernel, and the beginning and end of launches.
#include "checker.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "checking.h"

namespace cuemu {

std::atomic<bool> checking{false};

Checker* const the_checker = new Checker;

bool is_new(char kind, const void* code, const void* other) {
  Checker& all = checker();
  const bool is_first = all.told.insert({all.kernel, code, other, kind}).second;
  if (!is_first && std::strchr("umd", kind) == nullptr) ++all.repeats;  // those may be no faults
  return is_first;
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

std::string with_article(const char* what) {
  return (std::strchr("aeiou", *what) != nullptr ? "an " : "a ") + std::string(what);
}

namespace {

constexpr unsigned kPatience = 1000;    // reads of the same values before other threads may run
constexpr unsigned kMostTurns = 64;     // such turns in which nothing happens anywhere
// The limit for all threads' reads in such turns. A loop over a few coefficients ends before that
// and is not a wait.
constexpr std::uint64_t kMostIdleReads = 5'000'000;

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

void begin_checked_launch(const char* kernel, const Config& config, const void* code) {
  Checker& all = checker();
  Cell::code_base = reinterpret_cast<std::uintptr_t>(code);
  all.shadow.forget();
  all.histories.clear();
  all.kernel = kernel;
  all.config = config;
  all.bounds_told = false;
  all.is_clock_full = false;
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

void end_checked_launch(bool is_whole) {
  Checker& all = checker();
  for (auto& [code, report] : all.unsettled) {
    if (is_whole && all.settled.count(code) == 0 && is_new('d', code, nullptr)) add_report(std::move(report));
  }
  all.unsettled.clear();
  all.settled.clear();
}

std::size_t faults_seen() { return faults_reported() + checker().repeats; }

void check_grid_barrier() { checker().shadow.pass_grid_barrier(); }

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

// A thread that waits for a plain value makes accesses without end. So others run now and then, and make the race.
void let_others_run(Checker& all, Worker& worker, const Thread& thread) {
  constexpr std::uint32_t kLongest = 1u << 22;
  if (all.running != &thread) {
    all.running = &thread;
    all.stretch = 0;
  }
  // Not amid a copy, whose accesses are told from those of threads by the block's current one.
  if (++all.stretch < kLongest || worker.block().copies().current() != nullptr) return;
  all.stretch = 0;
  worker.yield();
}

}  // namespace

void check_access(Touch touch) {
  Checker& all = checker();
  if (touch.address >= all.indices && touch.address < all.indices_end) return;  // threadIdx and the like
  Worker& worker = this_worker();
  const Thread& thread = worker.thread();
  if (worker.is_local(touch.address)) {
    if (worker.block().products().has_registers()) check_register(worker, touch);
    return;
  }
  if (all.repeated.touch.address != nullptr) settle_repeated_store();
  let_others_run(all, worker, thread);
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
  if (touch.writes && !is_shared && block.launch().exploration != nullptr) block.launch().exploration->keep(touch.address, touch.bytes);
  if (touch.writes && !touch.is_atomic) ++all.progress;
  if (!touch.is_atomic && !touch.is_volatile) {
    if (touch.reads && worker.exploration() != nullptr) {
      Conduct& conduct = block.conduct(thread.linear);
      conduct.read_address = touch.address;
      conduct.read_code = touch.code;
    }
    return note_words(at, touch, is_shared ? &place : nullptr);
  }
  // This comes first because it may let other threads run. The access follows whatever they do.
  if (const Exploration* const exploration = worker.exploration()) {
    const unsigned bytes = static_cast<unsigned>(touch.bytes);
    if (!touch.belongs_to_it && !exploration->is_barrier(touch.address)) {
      const bool writes = touch.writes || touch.begins_update;
      worker.decide({Operation::Kind::touch, touch.address, 0, bytes, writes, touch.reduction, touch.code, !is_shared});
    }
    const Conduct& conduct = block.conduct(thread.linear);
    if (touch.compares && conduct.read_address == touch.address) all.settled.insert(conduct.read_code);
  } else if (touch.reads) {
    notice_waiting(at, touch);
  }
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

void check_constant_read(const void* address, std::size_t bytes) {
  if (!is_checking() || !in_kernel()) return;
  Worker& worker = this_worker();
  Block& block = worker.block();
  const Touch touch{static_cast<const char*>(address), bytes, true, false, false, false, __builtin_return_address(0)};
  if (owner_of(block, touch.address) != nullptr || worker.is_local(touch.address)) return;
  check_constant({worker, block, block.clock(), worker.thread().linear}, touch);
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

void tell_overflow(const void* code, const char* operation, const char* type) {
  Worker& worker = this_worker();
  const uint3 thread = worker.thread_index(), block = worker.block().index();
  if (!is_new('o', code, nullptr)) return;
  add_report({"overflow", checker().kernel, 0,
              thread_words(thread, block) + " computes a " + operation + " of type " + type + " beyond its range in line {0}",
              "Compute indices past 2^31 in 64 bits: cast one operand to long long (or size_t) before the product.",
              {{thread, block, 0, std::string("computes ") + operation, code}}});
}

void tell_full_clock() {
  Checker& all = checker();
  if (std::exchange(all.is_clock_full, true)) return;
  Report report{"unchecked", all.kernel, 0,
                std::string("kernel ") + all.kernel + " synchronises more often than the checking mode can count: " +
                    "races behind that go unnoticed",
                "Check a smaller case, in which no block has more than 8 million barriers, fences or warp operations.", {}};
  add_report(std::move(report));
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
