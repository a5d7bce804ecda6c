// Lanes of a warp that act together. Tiles and coalesced groups consist of them, with ranks from
// the lowest lane up.
#pragma once

#include <bit>

#include "device.h"

namespace cuemu {

constexpr unsigned volume(const dim3& sizes) { return sizes.x * sizes.y * sizes.z; }

constexpr unsigned position_in(const uint3& index, const dim3& sizes) {
  return (index.z * sizes.y + index.y) * sizes.x + index.x;
}

class Lanes {
 public:
  explicit Lanes(unsigned mask) : mask_(mask) {}
  static Lanes range(unsigned first, unsigned count) {
    return Lanes((count >= 32 ? ~0u : (1u << count) - 1) << first);
  }

  unsigned mask() const { return mask_; }
  unsigned size() const { return static_cast<unsigned>(std::popcount(mask_)); }
  // The number of the group's lanes below the calling one.
  unsigned rank() const {
    const unsigned lane = position_in(threadIdx, blockDim) % 32;
    return static_cast<unsigned>(std::popcount(mask_ & ((1u << lane) - 1)));
  }
  unsigned lane(unsigned rank) const {
    unsigned left = mask_;
    for (; rank > 0; --rank) left &= left - 1;
    return static_cast<unsigned>(std::countr_zero(left));
  }
  Lanes ranks(unsigned first, unsigned count) const {
    unsigned mask = 0;
    for (unsigned rank = first; rank < first + count && rank < size(); ++rank) mask |= 1u << lane(rank);
    return Lanes(mask);
  }
  // Converts a mask of lanes to a mask of ranks.
  unsigned packed(unsigned lanes) const {
    unsigned ranks = 0, rank = 0;
    for (unsigned left = mask_; left != 0; left &= left - 1, ++rank) {
      ranks |= (lanes >> std::countr_zero(left) & 1) << rank;
    }
    return ranks;
  }

  // Returns the value of the lane with a given rank. Works for any type that can be copied byte by
  // byte.
  template <typename Value>
  Value from_rank(unsigned rank, const Value& value, int line) const {
    static_assert(std::is_trivially_copyable_v<Value>, "a value that threads exchange is copied byte by byte");
    const int source = static_cast<int>(lane(rank));
    Value received;
    for (std::size_t done = 0; done < sizeof(Value); done += 8) {
      const std::size_t bytes = sizeof(Value) - done < 8 ? sizeof(Value) - done : 8;
      std::uint64_t word = 0;
      __builtin_memcpy(&word, reinterpret_cast<const char*>(&value) + done, bytes);
      word = warp_operation(WarpOp::shuffle, mask_, word, source, 32, line);
      __builtin_memcpy(reinterpret_cast<char*>(&received) + done, &word, bytes);
    }
    return received;
  }

 private:
  unsigned mask_;
};

}  // namespace cuemu
