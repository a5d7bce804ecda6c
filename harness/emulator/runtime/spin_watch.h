// Notices that a block's threads wait for another block, though each of them goes on from barrier to barrier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "block.h"

namespace cuemu {

// A loop such as `while (__syncthreads_or(flag == 0))` leaves a thread the same each time: its saved registers and the
// end of its stack. A loop that gets anywhere counts, and changes them.
class SpinWatch {
 public:
  void begin() { *this = SpinWatch(); }

  // Tells whether the thread, which is about to continue, has been here often, and nowhere else since.
  bool sees(const Thread& next) {
#ifdef CUEMU_UCONTEXT
    return false;
#else
    if (++handovers_ < kPatience) return false;
    if (thread_ == nullptr || ++absence_ > kMostAbsence) {
      thread_ = &next;
      places_ = repeats_ = 0;
    }
    if (thread_ != &next) return false;
    absence_ = 0;
    const std::uint64_t now = digest(next);
    if (std::find(seen_, seen_ + places_, now) != seen_ + places_) return ++repeats_ >= kMostRepeats;
    if (places_ == kPlaces) places_ = 0;
    seen_[places_++] = now;
    repeats_ = 0;
    return false;
#endif
  }

 private:
  static constexpr unsigned kPatience = 1000, kMostRepeats = 64;
  static constexpr unsigned kMostAbsence = 1 << 14;  // handovers until another thread is watched: this one may have ended
  static constexpr unsigned kPlaces = 16;            // at which such a loop may suspend a thread
  static constexpr std::size_t kWords = 256;         // of the stack

#ifndef CUEMU_UCONTEXT
  // FNV-1a of what the switch to another thread has saved, and of the frames above it.
  static std::uint64_t digest(const Thread& thread) {
    const char* const place = static_cast<const char*>(thread.context.stack_pointer);
    const std::size_t words = std::min<std::size_t>(kWords, static_cast<std::size_t>(thread.stack - place) / 8);
    std::uint64_t digest = 14695981039346656037u;
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, place + 8 * i, sizeof word);
      digest = (digest ^ word) * 1099511628211u;
    }
    return digest;
  }
#endif

  const Thread* thread_ = nullptr;
  unsigned handovers_ = 0, absence_ = 0, repeats_ = 0, places_ = 0;
  std::uint64_t seen_[kPlaces] = {};
};

}  // namespace cuemu
