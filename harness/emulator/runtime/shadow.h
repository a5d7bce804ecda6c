// The threads that last touched each word of memory in the current launch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuemu {

constexpr std::size_t kWordBytes = 4;

// One access, in 16 bytes. A launch that reaches the largest time is no longer checked.
struct Cell {
  static constexpr std::uint32_t kMostBlocks = (1u << 26) - 1;
  static constexpr std::uint32_t kMostTime = (1u << 22) - 1;

  std::uint64_t first = 0;
  std::uint64_t second = 0;

  // Addresses of code have 47 bits.
  static Cell of(std::uint32_t block, unsigned thread, std::uint32_t time, unsigned lane_clock, const void* code,
                 unsigned bytes, bool is_atomic, bool is_volatile, bool is_by_copy) {
    return {reinterpret_cast<std::uintptr_t>(code) << 17 | (is_by_copy ? 1u << 16 : 0u) | lane_clock,
            std::uint64_t{block} << 38 | std::uint64_t{thread} << 28 | std::uint64_t{time} << 6 | bytes << 2 |
                (is_volatile ? 2u : 0u) | (is_atomic ? 1u : 0u)};
  }
  // The same access to some bytes of a word.
  Cell of_bytes(unsigned bytes) const { return {first, (second & ~std::uint64_t{15 << 2}) | bytes << 2}; }
  bool is_empty() const { return second == 0; }
  const void* code() const { return reinterpret_cast<const void*>(first >> 17); }
  bool is_by_copy() const { return first >> 16 & 1; }
  unsigned lane_clock() const { return first & 0xffff; }
  std::uint32_t block() const { return static_cast<std::uint32_t>(second >> 38); }
  unsigned thread() const { return second >> 28 & 1023; }
  std::uint32_t time() const { return second >> 6 & kMostTime; }
  unsigned bytes() const { return second >> 2 & 15; }  // a bit for each byte of the word
  bool is_atomic() const { return second & 1; }
  bool is_volatile() const { return second & 2; }
};

// The last write, and the last reads by two different threads.
struct Word {
  Cell write;
  Cell reads[2];
};

// The words of all memory that kernels touch, by page. A page is blank if the launch has not
// touched it.
class Shadow {
 public:
  // Makes all words blank from now on.
  void forget() {
    ++generation_;
    if (used_ > kKeptPages) give_back();
  }
  // Returns null if memory is short. Then the checker ignores that address.
  Word* word(const char* address) {
    const std::uintptr_t number = reinterpret_cast<std::uintptr_t>(address) / kPageBytes;
    Recent& recent = recent_[number % kRecent];
    if (recent.number != number || recent.generation != generation_) {
      recent = {number, generation_, words_of(number)};
    }
    return recent.words == nullptr
               ? nullptr
               : recent.words + reinterpret_cast<std::uintptr_t>(address) % kPageBytes / kWordBytes;
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kWords = kPageBytes / kWordBytes;
  static constexpr std::size_t kRecent = 256;
  static constexpr std::size_t kKeptPages = (std::size_t{256} << 20) / (kWords * sizeof(Word));  // between launches
  static constexpr std::size_t kMostPages = (std::size_t{2} << 30) / (kWords * sizeof(Word));

  struct Page {
    std::uintptr_t number;  // 0 for a free entry of the table
    std::uint32_t generation;
    Word* words;
  };
  struct Recent {
    std::uintptr_t number;
    std::uint32_t generation;
    Word* words;
  };
  Word* words_of(std::uintptr_t number);
  void grow();
  void give_back();

  Page* pages_ = nullptr;  // a hash table with open addressing
  std::size_t places_ = 0;
  std::size_t used_ = 0;
  std::uint32_t generation_ = 1;
  Recent recent_[kRecent] = {};
};

}  // namespace cuemu
