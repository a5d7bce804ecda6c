// What the stand-ins for CUB's and Thrust's algorithms of the whole device share. Each runs as a kernel of one thread, so
// that the checking mode sees its accesses. Sums add up tiles, since a GPU's sums err no more than that.
#pragma once

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include "launch.h"

namespace cuemu::whole {

constexpr std::ptrdiff_t kTile = 64;  // items that are added one after the other

// Runs a function as a kernel of this name.
template <typename Function>
cudaError_t run(const char* name, Function function) {
  const auto call = [](const Function& kept) {
    Function own = kept;  // which may have state that a call changes
    own();
  };
  launch(Kernel(name, nullptr, &library_mark), 0, config(1, 1), call)(function);
  return cudaPeekAtLastError();
}

template <typename Iterator>
using ValueOf = typename std::iterator_traits<Iterator>::value_type;
// The type in which CUB keeps a running result (its __accumulator_t).
template <typename Op, typename Init, typename Item>
using SumOf = std::decay_t<std::invoke_result_t<Op&, Init, Item>>;

// The items from `first` on, in order, by a tree; there is at least one.
template <typename T, typename Iterator, typename Op>
T tree(Iterator first, std::ptrdiff_t count, Op op) {
  if (count <= kTile) {
    T sum = static_cast<T>(first[0]);
    for (std::ptrdiff_t i = 1; i < count; ++i) sum = op(sum, static_cast<T>(first[i]));
    return sum;
  }
  const std::ptrdiff_t half = (count / 2 + kTile - 1) / kTile * kTile;
  return op(tree<T>(first, half, op), tree<T>(first + half, count - half, op));
}

template <typename Iterator, typename Init, typename Op>
auto reduce(Iterator first, std::ptrdiff_t count, Init init, Op op) {
  using T = SumOf<Op, Init, ValueOf<Iterator>>;
  return count == 0 ? static_cast<T>(init) : static_cast<T>(op(static_cast<T>(init), tree<T>(first, count, op)));
}

// Prefixes; `out` may be `first`. Each tile's own prefixes come behind the sum of the tiles before.
template <bool is_inclusive, typename Iterator, typename Out, typename Init, typename Op>
void scan(Iterator first, std::ptrdiff_t count, Out out, Init init, bool has_init, Op op) {
  using T = SumOf<Op, Init, ValueOf<Iterator>>;
  T before = static_cast<T>(init);
  bool has_before = has_init;
  for (std::ptrdiff_t tile = 0; tile < count; tile += kTile) {
    const std::ptrdiff_t size = count - tile < kTile ? count - tile : kTile;
    T own = before;
    for (std::ptrdiff_t i = 0; i < size; ++i) {
      const T item = static_cast<T>(first[tile + i]);
      if constexpr (!is_inclusive) out[tile + i] = i == 0 ? before : has_before ? static_cast<T>(op(before, own)) : own;
      own = i == 0 ? item : static_cast<T>(op(own, item));
      if constexpr (is_inclusive) out[tile + i] = has_before ? static_cast<T>(op(before, own)) : own;
    }
    before = has_before ? static_cast<T>(op(before, own)) : own;
    has_before = true;
  }
}

// The end of the run of equal keys that begins at `begin`.
template <typename Keys, typename Equal>
std::ptrdiff_t end_of_run(Keys keys, std::ptrdiff_t begin, std::ptrdiff_t count, Equal equal) {
  using Key = ValueOf<Keys>;
  std::ptrdiff_t end = begin + 1;
  while (end < count && equal(static_cast<Key>(keys[end - 1]), static_cast<Key>(keys[end]))) ++end;
  return end;
}

// Prefixes of each run of equal keys.
template <bool is_inclusive, typename Keys, typename Iterator, typename Out, typename Init, typename Equal, typename Op>
void scan_runs(Keys keys, Iterator first, std::ptrdiff_t count, Out out, Init init, bool has_init, Equal equal, Op op) {
  for (std::ptrdiff_t begin = 0, end; begin < count; begin = end) {
    end = end_of_run(keys, begin, count, equal);
    scan<is_inclusive>(first + begin, end - begin, out + begin, init, has_init, op);
  }
}

struct Nothing {};

// Sorts keys, and values with them, stably. `other_keys` and `other_values` have room for as many.
template <typename Keys, typename Values, typename OtherKeys, typename OtherValues, typename Less>
void sort(Keys keys, Values values, std::ptrdiff_t count, OtherKeys other_keys, OtherValues other_values, Less less) {
  constexpr bool has_values = !std::is_same_v<Values, Nothing>;
  for (std::ptrdiff_t width = 1; width < count; width *= 2) {
    for (std::ptrdiff_t begin = 0; begin < count; begin += 2 * width) {
      const std::ptrdiff_t middle = begin + width < count ? begin + width : count;
      const std::ptrdiff_t end = middle + width < count ? middle + width : count;
      std::ptrdiff_t left = begin, right = middle;
      for (std::ptrdiff_t i = begin; i < end; ++i) {
        const bool takes_right = left == middle || (right < end && less(keys[right], keys[left]));
        const std::ptrdiff_t from = takes_right ? right++ : left++;
        other_keys[i] = keys[from];
        if constexpr (has_values) other_values[i] = values[from];
      }
    }
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      keys[i] = other_keys[i];
      if constexpr (has_values) values[i] = other_values[i];
    }
  }
}

}  // namespace cuemu::whole
