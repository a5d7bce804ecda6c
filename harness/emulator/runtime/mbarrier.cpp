// The barriers of inline PTX: mbarriers in shared memory, and a block's named barriers.
#include <string>

#include "worker.h"

namespace cuemu {
namespace {

constexpr std::uint64_t kCount = (1u << 20) - 1;
constexpr std::int64_t kMostBytes = 1 << 20;

// The phase's parity in bit 63, bytes that are still to come in bits 40 to 62, the arrivals of a phase in bits 20 to 39,
// and those that are still to come in bits 0 to 19.
struct Mbarrier {
  std::uint64_t parity, expected;
  std::int64_t pending, bytes;

  explicit Mbarrier(std::uint64_t word)
      : parity(word >> 63), expected(word >> 20 & kCount), pending(static_cast<std::int64_t>(word & kCount)),
        bytes(static_cast<std::int64_t>(word << 1) >> 41) {}
  std::uint64_t word() const {
    return parity << 63 | (static_cast<std::uint64_t>(bytes) & 0x7fffff) << 40 | expected << 20 |
           (static_cast<std::uint64_t>(pending) & kCount);
  }
};

[[noreturn]] void fault(const std::string& message, const char* remedy, int line) {
  Worker& worker = this_worker();
  worker.fail("barrier", line, message + " in " + worker.position(), remedy, kLaunchFailure);
}

}  // namespace

std::uint64_t new_mbarrier(const void* address, std::uint32_t arrivals, int line) {
  if (arrivals == 0 || arrivals > kCount) {
    fault("mbarrier.init for no arrival, or for more than 1,048,575,", "Give the number of arrivals of a phase.", line);
  }
  if (is_checking()) {
    Worker& worker = this_worker();
    worker.decide({Operation::Kind::begin, address});
    BlockClock& clock = worker.block().clock();
    clock.use_thread_order();
    clock.threads().forget(address);
    if (Exploration* const all = worker.exploration()) all->began(worker.fiber(), address);
  }
  Mbarrier state(0);
  state.expected = arrivals;
  state.pending = arrivals;
  return state.word();
}

std::uint64_t change_mbarrier(std::uint64_t* word, std::int64_t bytes, std::int64_t arrivals, int line) {
  Worker& worker = this_worker();
  if (is_checking()) {
    // A copy that the thread has just waited for belongs to its wait.
    if (arrivals != 0 || bytes > 0 || worker.exploration() == nullptr || !worker.fiber().is_in_step) {
      worker.decide({Operation::Kind::arrive, word});
    }
    BlockClock& clock = worker.block().clock();
    clock.use_thread_order();
    if (const auto* const copy = worker.block().copies().current()) clock.threads().release_in_phase(word, copy->view);
    else if (arrivals != 0) clock.threads().release_in_phase(word, clock.place_of(worker.thread().linear));
  }
  const std::uint64_t before = *word;  // the threads of a block run one at a time
  Mbarrier state(before);
  state.pending -= arrivals;
  state.bytes += bytes;
  if (state.pending < 0) {
    fault("an mbarrier gets more arrivals in a phase than mbarrier.init says, or none was initialised,",
          "Initialise it, and let as many threads arrive as its count says.", line);
  }
  if (state.bytes < -kMostBytes || state.bytes >= kMostBytes) {
    fault("an mbarrier expects more than 1,048,575 bytes", "Expect as many bytes as the copies of the phase bring.", line);
  }
  const bool flips = state.pending == 0 && state.bytes == 0;
  if (Exploration* const all = worker.exploration()) all->arrived(worker.fiber(), word, flips, bytes, arrivals);
  if (flips) {
    if (is_checking()) worker.block().clock().threads().end_phase(word);
    state.parity ^= 1;
    state.pending = static_cast<std::int64_t>(state.expected);
  }
  *word = state.word();
  if (arrivals != 0) worker.has_arrived();
  return before;
}

void lower_mbarrier(std::uint64_t* word) {
  Mbarrier state(*word);
  --state.expected;
  *word = state.word();
}

bool can_pass_mbarrier(const Block& block, const void* word, std::uint64_t parity) {
  return Mbarrier(*static_cast<const std::uint64_t*>(word)).parity != parity || block.copies().any_of(static_cast<const char*>(word));
}

bool pass_mbarrier(const std::uint64_t* word, std::uint64_t parity) {
  if (is_checking()) this_worker().decide({Operation::Kind::wait, word, parity});
  if (Mbarrier(*word).parity == parity) return false;
  if (is_checking()) {
    Worker& worker = this_worker();
    if (Exploration* const all = worker.exploration()) all->passed(worker.fiber(), word);
    BlockClock& clock = worker.block().clock();
    clock.threads().acquire(word, clock.place_of(worker.thread().linear));
  }
  return true;
}

void named_barrier(std::uint32_t number, std::uint32_t threads, bool waits, int line) {
  if (number >= Block::kNamedBarriers) {
    fault("barrier " + std::to_string(number) + ": a block has the barriers 0 to 15;", "Choose one of these.", line);
  }
  if (threads == 0 || (threads % kLanes != 0 && threads != this_worker().block().size())) {
    fault("barrier " + std::to_string(number) + " for " + std::to_string(threads) + " threads, which are not whole warps,",
          "Give a multiple of 32.", line);
  }
  this_worker().meet_at_named_barrier(number, threads, waits, line);
}

void fence_async_proxy() {
  if (!is_checking()) return;
  Worker& worker = this_worker();
  BlockClock& clock = worker.block().clock();
  clock.use_thread_order();
  clock.threads().fence_proxy(clock.place_of(worker.thread().linear));
}

}  // namespace cuemu
