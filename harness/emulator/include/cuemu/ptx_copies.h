// Asynchronous copies of inline PTX, and the barriers that count them. Copies happen in the solution's own code, so
// that the checking mode sees them.
#pragma once

namespace cuemu {
namespace ptx {

template <typename T>
CUEMU_INLINE void copy_words(const AsyncCopy& copy) {
  for (std::uint32_t done = 0; done + sizeof(T) <= copy.bytes; done += sizeof(T)) {
    *reinterpret_cast<T*>(copy.to + done) = *reinterpret_cast<const T*>(copy.from + done);
  }
}
CUEMU_INLINE void perform(const AsyncCopy& copy) {
  if (copy.read < copy.bytes) {
    for (std::uint32_t i = 0; i < copy.bytes; ++i) copy.to[i] = i < copy.read ? copy.from[i] : 0;
  } else if (copy.bytes == 4) copy_words<std::uint32_t>(copy);
  else if (copy.bytes == 8) copy_words<std::uint64_t>(copy);
  else copy_words<Pack<std::uint32_t, 4>>(copy);
}

CUEMU_INLINE void copy_async(char* to, const char* from, std::uint32_t bytes, std::uint32_t read, int line) {
  const AsyncCopy copy{to, from, bytes, read < bytes ? read : bytes, nullptr, false, line};
  check_alignment(to, bytes, "cp.async", line);
  if (copy.read == bytes) check_alignment(from, bytes, "cp.async", line);
  if (begin_async_copy(copy)) perform(copy);
}
CUEMU_INLINE void wait_for_copies(bool is_bulk, std::uint32_t pending) {
  AsyncCopy copy;
  while (take_due_copy(is_bulk, pending, copy)) perform(copy);
}

// An mbarrier: the phase's parity in bit 63, bytes that are still to come in bits 40 to 62, the arrivals of a phase in
// bits 20 to 39, and those that are still to come in bits 0 to 19.
constexpr std::uint64_t kCount = (1u << 20) - 1;
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

CUEMU_INLINE void begin_mbarrier(char* address, std::uint32_t arrivals, int line) {
  check_alignment(address, 8, "mbarrier.init", line);
  if (arrivals == 0 || arrivals > kCount) {
    mbarrier_fault("mbarrier.init for no arrival, or for more than 1,048,575,", "Give the number of arrivals of a phase.", line);
  }
  Mbarrier state(0);
  state.expected = arrivals;
  state.pending = arrivals;
  *pointer<std::uint64_t>(address) = state.word();
}
CUEMU_INLINE void end_mbarrier(char* address) { *pointer<std::uint64_t>(address) = 0; }

CUEMU_INLINE std::uint64_t change_mbarrier(char* address, std::int64_t bytes, std::int64_t arrivals, int line) {
  fence(false);
  const std::uint64_t before = atomic_update(pointer<std::uint64_t>(address), [&](std::uint64_t word) {
    Mbarrier state(word);
    state.pending -= arrivals;
    state.bytes += bytes;
    if (state.pending < 0) {
      mbarrier_fault("an mbarrier gets more arrivals in a phase than mbarrier.init says, or none was initialised,",
                     "Initialise it, and let as many threads arrive as its count says.", line);
    }
    if (state.bytes < -(1 << 20) || state.bytes >= 1 << 20) {
      mbarrier_fault("an mbarrier expects more than 1,048,575 bytes", "Expect as many bytes as the copies of the phase bring.", line);
    }
    if (state.pending == 0 && state.bytes == 0) {
      state.parity ^= 1;
      state.pending = static_cast<std::int64_t>(state.expected);
    }
    return state.word();
  });
  fence(false);
  return before;
}
CUEMU_INLINE std::uint64_t arrive(char* address, std::uint32_t bytes, std::uint32_t count, int line) {
  return change_mbarrier(address, bytes, count == kNone ? 1 : count, line);
}
// Whether the phase with this parity has ended. Copies that the barrier waits for happen now at the latest.
CUEMU_INLINE bool has_completed(char* address, std::uint64_t parity, int line) {
  AsyncCopy copy;
  for (;;) {
    const std::uint64_t word = __atomic_load_n(pointer<std::uint64_t>(address), __ATOMIC_SEQ_CST);
    if (word >> 63 != parity) {
      fence(false);
      return true;
    }
    if (!take_copy_of(address, copy)) break;
    perform(copy);
    change_mbarrier(address, -static_cast<std::int64_t>(copy.bytes), 0, line);
  }
  yield();
  return false;
}

CUEMU_INLINE void copy_bulk(char* to, const char* from, std::uint32_t bytes, char* barrier, int line) {
  check_alignment(to, 16, "cp.async.bulk", line);
  check_alignment(from, 16, "cp.async.bulk", line);
  check_alignment(reinterpret_cast<const char*>(static_cast<std::uintptr_t>(bytes)), 16, "cp.async.bulk", line);
  const AsyncCopy copy{to, from, bytes, bytes, barrier, true, line};
  if (!begin_async_copy(copy)) return;
  perform(copy);
  change_mbarrier(barrier, -static_cast<std::int64_t>(bytes), 0, line);
}
CUEMU_INLINE void copy_bulk_back(char* to, const char* from, std::uint32_t bytes, int line) {
  check_alignment(to, 16, "cp.async.bulk", line);
  check_alignment(from, 16, "cp.async.bulk", line);
  check_alignment(reinterpret_cast<const char*>(static_cast<std::uintptr_t>(bytes)), 16, "cp.async.bulk", line);
  const AsyncCopy copy{to, from, bytes, bytes, nullptr, true, line};
  if (begin_async_copy(copy)) perform(copy);
}

}  // namespace ptx
}  // namespace cuemu
