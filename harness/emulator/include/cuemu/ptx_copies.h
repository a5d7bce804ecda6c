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
inline void copy_box(const AsyncCopy& copy);
CUEMU_INLINE void perform(const AsyncCopy& copy) {
  if (copy.box != nullptr) return copy_box(copy);
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
  while (take_due_copy(is_bulk, pending, copy)) {
    perform(copy);
    if (copy.barrier != nullptr) {
      change_mbarrier(pointer<std::uint64_t>(copy.barrier), -static_cast<std::int64_t>(copy.bytes), 0, copy.line);
    }
    end_async_copy();
  }
}

// An access to an mbarrier's word that the checking mode sees: it must come behind the word's initialisation.
CUEMU_INLINE std::uint64_t* mbarrier_word(char* address) {
  std::uint64_t* const word = pointer<std::uint64_t>(address);
  static_cast<void>(__atomic_load_n(word, __ATOMIC_SEQ_CST));
  return word;
}
CUEMU_INLINE void begin_mbarrier(char* address, std::uint32_t arrivals, int line) {
  check_alignment(address, 8, "mbarrier.init", line);
  *pointer<std::uint64_t>(address) = new_mbarrier(address, arrivals, line);
}
CUEMU_INLINE void end_mbarrier(char* address) { *pointer<std::uint64_t>(address) = 0; }
CUEMU_INLINE std::uint64_t arrive(char* address, std::uint32_t bytes, std::uint32_t count, int line) {
  return change_mbarrier(mbarrier_word(address), bytes, count == kNone ? 1 : count, line);
}
// Lets a phase end only when the thread's copies so far have happened.
CUEMU_INLINE void expect_copies(char* address, int line) {
  std::uint64_t* const word = mbarrier_word(address);
  const std::uint32_t bytes = count_async_copies(address);
  if (bytes != 0) change_mbarrier(word, bytes, 0, line);
}
// The same, and counts as one of the phase's arrivals.
CUEMU_INLINE void arrive_with_copies(char* address, int line) {
  expect_copies(address, line);
  arrive(address, 0, 1, line);
}
CUEMU_INLINE std::uint64_t arrive_and_drop(char* address, int line) {
  lower_mbarrier(mbarrier_word(address));
  return arrive(address, 0, 1, line);
}
// Whether the phase with this parity has ended. Copies that the barrier waits for happen now at the latest.
CUEMU_INLINE bool has_completed(char* address, std::uint64_t parity, int line) {
  std::uint64_t* const word = mbarrier_word(address);
  AsyncCopy copy;
  while (!pass_mbarrier(word, parity)) {
    if (!take_copy_of(address, copy)) {
      yield();
      return false;
    }
    perform(copy);
    change_mbarrier(word, -static_cast<std::int64_t>(copy.bytes), 0, line);
    end_async_copy();
  }
  return true;
}

CUEMU_INLINE void wait_for_phase(char* address, std::uint64_t parity, int line) {
  while (!has_completed(address, parity, line)) {
  }
}

CUEMU_INLINE void copy_bulk(char* to, const char* from, std::uint32_t bytes, char* barrier, int line) {
  check_alignment(to, 16, "cp.async.bulk", line);
  check_alignment(from, 16, "cp.async.bulk", line);
  check_alignment(reinterpret_cast<const char*>(static_cast<std::uintptr_t>(bytes)), 16, "cp.async.bulk", line);
  const AsyncCopy copy{to, from, bytes, bytes, barrier, true, line};
  if (!begin_async_copy(copy)) return;
  perform(copy);
  change_mbarrier(mbarrier_word(barrier), -static_cast<std::int64_t>(bytes), 0, line);
}
// Copies to the same place in each block of the cluster that `mask` names, and counts at the same barrier there.
CUEMU_INLINE void share_bulk(char* to, const char* from, std::uint32_t bytes, char* barrier, std::uint32_t mask, int line) {
  for (std::uint32_t rank = 0; mask >> rank != 0; ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    copy_bulk(shared_of_rank(to, rank, line), from, bytes, shared_of_rank(barrier, rank, line), line);
  }
}
CUEMU_INLINE void copy_bulk_back(char* to, const char* from, std::uint32_t bytes, int line) {
  check_alignment(to, 16, "cp.async.bulk", line);
  check_alignment(from, 16, "cp.async.bulk", line);
  check_alignment(reinterpret_cast<const char*>(static_cast<std::uintptr_t>(bytes)), 16, "cp.async.bulk", line);
  const AsyncCopy copy{to, from, bytes, bytes, nullptr, true, line};
  if (begin_async_copy(copy)) perform(copy);
}

// Arrives at a barrier of the block, for the whole block if no number of threads is given.
CUEMU_INLINE void meet(std::uint32_t number, std::uint32_t threads, bool waits, int line) {
  const unsigned all = blockDim.x * blockDim.y * blockDim.z;
  if (threads == kNone) threads = all;
  if (number == 0 && threads == all && waits) ::__syncthreads(line);
  else named_barrier(number, threads, waits, line);
}

}  // namespace ptx
}  // namespace cuemu
