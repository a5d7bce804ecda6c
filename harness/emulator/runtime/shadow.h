// The threads that last touched each word of memory in the current launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cuemu {

constexpr std::size_t kWordBytes = 4;
constexpr unsigned kWholeWord = 15;  // a bit for each byte

// One access, in 16 bytes. A launch that reaches a largest count is no longer checked, and says so.
struct Cell {
  static constexpr std::uint32_t kMostBlocks = (1u << 26) - 1;
  static constexpr std::uint32_t kMostTime = (1u << 28) - 1;
  static constexpr std::uint32_t kMostLaneClock = (1u << 23) - 1;

  std::uint64_t first = 0;
  std::uint64_t second = 0;

  // What does not depend on the place and the thread.
  struct Kind {
    bool is_atomic, is_volatile, is_of_block, is_by_copy;
  };
  static Cell of(std::uint32_t block, unsigned thread, std::uint32_t time, std::uint32_t lane_clock, const void* code, Kind kind) {
    return {distance_of(code) << 31 | std::uint64_t{lane_clock} << 8 | (kind.is_by_copy ? 1u << 7 : 0u) |
                (kind.is_of_block ? 1u << 6 : 0u) | kWholeWord << 2 | (kind.is_volatile ? 2u : 0u) | (kind.is_atomic ? 1u : 0u),
            std::uint64_t{block} << 38 | std::uint64_t{thread} << 28 | time};
  }
  // The same access to some bytes of a word.
  Cell of_bytes(unsigned bytes) const { return {(first & ~std::uint64_t{kWholeWord << 2}) | bytes << 2, second}; }
  bool is_same_but_bytes(const Cell& other) const {
    return second == other.second && ((first ^ other.first) & ~std::uint64_t{kWholeWord << 2}) == 0;
  }
  bool is_empty() const { return second == 0; }
  const void* code() const {
    const std::int64_t distance = static_cast<std::int64_t>(first) >> 31;
    return distance == 0 ? nullptr : reinterpret_cast<const void*>(code_base + static_cast<std::uint64_t>(distance));
  }
  bool is_by_copy() const { return first >> 7 & 1; }
  bool is_of_block() const { return first >> 6 & 1; }  // an atomic operation of the block's scope
  std::uint32_t lane_clock() const { return first >> 8 & kMostLaneClock; }
  std::uint32_t block() const { return static_cast<std::uint32_t>(second >> 38); }
  unsigned thread() const { return second >> 28 & 1023; }
  std::uint32_t time() const { return second & kMostTime; }
  unsigned bytes() const { return first >> 2 & kWholeWord; }
  bool is_atomic() const { return first & 1; }
  bool is_volatile() const { return first & 2; }

  // Code is kept by its distance from the launch's kernel: at most 4 GiB, or the line is unknown.
  static inline std::uintptr_t code_base = 0;

 private:
  static std::uint64_t distance_of(const void* code) {
    if (code == nullptr) return 0;
    const auto distance = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(code) - code_base);
    return distance << 31 >> 31 == distance ? static_cast<std::uint64_t>(distance) : 0;
  }
};

struct Part;

// The last write, and the last reads by two different threads. Or, if different threads have accessed
// different bytes, the parts of the word.
struct Word {
  Cell write;
  Cell reads[2];

  bool is_split() const { return write.second == kSplit; }
  Part* parts() const { return reinterpret_cast<Part*>(write.first); }
  void split(Part* parts) {
    *this = Word{};
    write.first = reinterpret_cast<std::uintptr_t>(parts);
    write.second = kSplit;
  }

 private:
  static constexpr std::uint64_t kSplit = 1;  // of no block
};

// Some bytes of a word, and the accesses to them.
struct Part {
  Word word;
  unsigned bytes;
  Part* next;
};

// The words of all memory that kernels touch, by page. A page is blank if the launch has not
// touched it.
class Shadow {
 public:
  // A new launch begins: makes all words blank from now on.
  void forget() {
    ++generation_;
    launch_ = generation_;
    parts_used_ = 0;
    free_parts_ = nullptr;
    if (used_ > kKeptPages || parts_.size() > kKeptChunks) give_back();
  }
  // The same at the grid's barrier. Which bytes the launch has written stays known.
  void pass_grid_barrier() { ++generation_; }
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
  // The bytes of a word that the launch wrote before the grid's last barrier.
  unsigned written_before_barrier(const char* address);
  // Returns a part without a use, or null if memory is short.
  Part* new_part();
  void free_parts(Part* first);

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kWords = kPageBytes / kWordBytes;
  static constexpr std::size_t kBytesOfPage = kWords * sizeof(Word) + kWords;  // and a byte for what was written
  static constexpr std::size_t kRecent = 256;
  static constexpr std::size_t kPartsOfChunk = 4096;
  static constexpr std::size_t kKeptPages = (std::size_t{256} << 20) / kBytesOfPage;  // between launches
  static constexpr std::size_t kKeptChunks = (std::size_t{64} << 20) / (kPartsOfChunk * sizeof(Part));
  static constexpr std::size_t kMostBytes = std::size_t{2} << 30;

  struct Page {
    std::uintptr_t number;  // 0 for a free entry of the table
    std::uint32_t generation;
    Word* words;
    unsigned char* written() const { return reinterpret_cast<unsigned char*>(words + kWords); }
  };
  struct Recent {
    std::uintptr_t number;
    std::uint32_t generation;
    Word* words;
  };
  Word* words_of(std::uintptr_t number);
  void grow();
  void give_back();
  std::size_t bytes() const { return used_ * kBytesOfPage + parts_.size() * kPartsOfChunk * sizeof(Part); }

  Page* pages_ = nullptr;  // a hash table with open addressing
  std::size_t places_ = 0;
  std::size_t used_ = 0;
  std::uint32_t generation_ = 1;
  std::uint32_t launch_ = 1;  // the generation in which the launch began
  Recent recent_[kRecent] = {};
  std::vector<std::unique_ptr<Part[]>> parts_;
  std::size_t parts_used_ = 0;
  Part* free_parts_ = nullptr;
};

}  // namespace cuemu
