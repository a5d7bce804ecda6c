// Stands in for CUB's flags at the places where a block's items change.
#pragma once

#include "../util_type.cuh"

namespace cub {

template <typename T, int x, int y = 1, int z = 1, int = 0>
class BlockDiscontinuity {
  static constexpr int kThreads = x * y * z;

 public:
  struct TempStorage {
    detail::Places<T, kThreads> first, last;
  };
  CUEMU_INLINE explicit BlockDiscontinuity(CUEMU_LINE) : storage_(detail::private_storage<TempStorage>(line)) {}
  CUEMU_INLINE BlockDiscontinuity(TempStorage& storage) : storage_(storage) {}

  // The first item of the block, or the last one, has a flag if no item of another block is given.
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagHeads(Flag (&heads)[items], T (&input)[items], Op op, CUEMU_LINE) {
    flag(&heads, static_cast<Flag(*)[items]>(nullptr), input, op, nullptr, nullptr, line);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagHeads(Flag (&heads)[items], T (&input)[items], Op op, T before, CUEMU_LINE) {
    flag(&heads, static_cast<Flag(*)[items]>(nullptr), input, op, &before, nullptr, line);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagTails(Flag (&tails)[items], T (&input)[items], Op op, CUEMU_LINE) {
    flag(static_cast<Flag(*)[items]>(nullptr), &tails, input, op, nullptr, nullptr, line);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagTails(Flag (&tails)[items], T (&input)[items], Op op, T after, CUEMU_LINE) {
    flag(static_cast<Flag(*)[items]>(nullptr), &tails, input, op, nullptr, &after, line);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagHeadsAndTails(Flag (&heads)[items], Flag (&tails)[items], T (&input)[items], Op op, CUEMU_LINE) {
    flag(&heads, &tails, input, op, nullptr, nullptr, line);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagHeadsAndTails(Flag (&heads)[items], Flag (&tails)[items], T after, T (&input)[items], Op op,
                                      CUEMU_LINE) {
    flag(&heads, &tails, input, op, nullptr, &after, line);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagHeadsAndTails(Flag (&heads)[items], T before, Flag (&tails)[items], T (&input)[items], Op op,
                                      CUEMU_LINE) {
    flag(&heads, &tails, input, op, &before, nullptr, line);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void FlagHeadsAndTails(Flag (&heads)[items], T before, Flag (&tails)[items], T after, T (&input)[items],
                                      Op op, CUEMU_LINE) {
    flag(&heads, &tails, input, op, &before, &after, line);
  }

 private:
  // An operator may take the number of the second item, too.
  template <typename Op>
  static CUEMU_INLINE bool differ(Op& op, const T& a, const T& b, int number) {
    if constexpr (::std::is_invocable_v<Op&, const T&, const T&, int>) return op(a, b, number);
    else return op(a, b);
  }
  template <int items, typename Flag, typename Op>
  CUEMU_INLINE void flag(Flag (*heads)[items], Flag (*tails)[items], T (&input)[items], Op op, const T* before,
                         const T* after, ::cuemu::Line line) {
    if (tails != nullptr) storage_.first[thread_] = input[0];
    if (heads != nullptr) storage_.last[thread_] = input[items - 1];
    __syncthreads(line.number);
    const int first = thread_ * items;
    if (heads != nullptr) {
      if (thread_ == 0) (*heads)[0] = before == nullptr ? 1 : differ(op, *before, input[0], 0);
      else (*heads)[0] = differ(op, storage_.last[thread_ - 1], input[0], first);
      for (int i = 1; i < items; ++i) (*heads)[i] = differ(op, input[i - 1], input[i], first + i);
    }
    if (tails != nullptr) {
      const int last = items - 1;
      if (thread_ == kThreads - 1) (*tails)[last] = after == nullptr ? 1 : differ(op, input[last], *after, first + items);
      else (*tails)[last] = differ(op, input[last], storage_.first[thread_ + 1], first + items);
      for (int i = 0; i < last; ++i) (*tails)[i] = differ(op, input[i], input[i + 1], first + i + 1);
    }
  }

  TempStorage& storage_;
  const int thread_ = detail::linear_thread<x, y, z>();
};

}  // namespace cub
