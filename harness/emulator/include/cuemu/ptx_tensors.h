// Copies of boxes of tensors (TMA), which a tensor map describes.
#pragma once

namespace cuemu {
namespace ptx {

template <typename Coordinates>
struct BoxPlace {
  char* map;
  Coordinates at;
};
template <typename Coordinates>
CUEMU_INLINE BoxPlace<Coordinates> box_place(char* map, Coordinates at) {
  return {map, at};
}

template <typename T>
inline void copy_element(char* shared, char* global, bool is_inside, bool loads, std::uint64_t fill) {
  T* const there = reinterpret_cast<T*>(global);
  T* const here = reinterpret_cast<T*>(shared);
  if (!loads) {
    if (is_inside) *there = *here;
  } else *here = is_inside ? *there : static_cast<T>(fill);
}

// Copies a box. What lies outside the tensor is read as the map says, and not written.
inline __attribute__((noinline)) void copy_box(const AsyncCopy& copy) {
  TensorBox box;
  read_box(copy, box);
  const TensorMap& map = box.map;
  const bool loads = copy.to != nullptr;
  char* const shared = loads ? copy.to : const_cast<char*>(copy.from);
  const std::uint32_t element = static_cast<std::uint32_t>(map.strides[0]), in_chunk = 16 / element;
  const std::uint32_t chunks = box.extents[0] / in_chunk;
  const std::uintptr_t pattern = (1u << map.swizzle) - 1;
  const std::uint32_t rows = box.bytes / (chunks * 16);
  for (std::uint32_t row = 0; row < rows; ++row) {
    char* line = map.data;
    bool is_row_inside = true;
    for (std::uint32_t dimension = 1, rest = row; dimension < map.dimensions; ++dimension) {
      const std::int64_t index = std::int64_t{box.at[dimension]} + rest % box.extents[dimension] * std::int64_t{map.steps[dimension]};
      rest /= box.extents[dimension];
      is_row_inside = is_row_inside && index >= 0 && index <= map.last[dimension];
      line += index * static_cast<std::int64_t>(map.strides[dimension]);
    }
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const std::uintptr_t straight = reinterpret_cast<std::uintptr_t>(shared) + (row * chunks + chunk) * 16;
      char* const here = reinterpret_cast<char*>(straight ^ (straight >> 7 & pattern) << 4);
      const std::int64_t first = std::int64_t{box.at[0]} + chunk * in_chunk;
      char* const there = line + first * element;
      const bool is_whole = is_row_inside && first >= 0 && first + in_chunk - 1 <= map.last[0];
      if (is_whole && reinterpret_cast<std::uintptr_t>(there) % 16 == 0) {
        using Chunk = Pack<std::uint32_t, 4>;
        if (loads) *reinterpret_cast<Chunk*>(here) = *reinterpret_cast<const Chunk*>(there);
        else *reinterpret_cast<Chunk*>(there) = *reinterpret_cast<const Chunk*>(here);
        continue;
      }
      for (std::uint32_t i = 0; i < in_chunk; ++i) {
        const bool is_inside = is_row_inside && first + i >= 0 && first + i <= map.last[0];
        char* const to = here + i * element;
        char* const from = there + i * element;
        if (element == 1) copy_element<std::uint8_t>(to, from, is_inside, loads, map.fill);
        else if (element == 2) copy_element<std::uint16_t>(to, from, is_inside, loads, map.fill);
        else if (element == 4) copy_element<std::uint32_t>(to, from, is_inside, loads, map.fill);
        else copy_element<std::uint64_t>(to, from, is_inside, loads, map.fill);
      }
    }
  }
}

template <int rank, typename Place>
CUEMU_INLINE TensorBox box_of(const Place& place, bool stores, int line) {
  static_assert(sizeof(place.at.x) / sizeof place.at.x[0] == rank, "a tensor has as many coordinates as the opcode says");
  std::int32_t at[rank];
  for (int i = 0; i < rank; ++i) at[i] = static_cast<std::int32_t>(place.at.x[i]);
  return tensor_box(place.map, at, rank, stores, line);
}
CUEMU_INLINE void begin_load(const TensorBox& box, char* to, char* barrier, int line) {
  const AsyncCopy copy{to, nullptr, box.bytes, 0, barrier, true, line, &box};
  if (!begin_async_copy(copy)) return;
  copy_box(copy);
  change_mbarrier(mbarrier_word(barrier), -static_cast<std::int64_t>(box.bytes), 0, line);
}
template <int rank, typename Place>
CUEMU_INLINE void load_box(char* to, const Place& place, char* barrier, int line) {
  check_alignment(to, 128, "cp.async.bulk.tensor", line);
  begin_load(box_of<rank>(place, false, line), to, barrier, line);
}
template <int rank, typename Place>
CUEMU_INLINE void share_box(char* to, const Place& place, char* barrier, std::uint32_t mask, int line) {
  check_alignment(to, 128, "cp.async.bulk.tensor", line);
  const TensorBox box = box_of<rank>(place, false, line);
  for (std::uint32_t block = 0; mask >> block != 0; ++block) {
    if ((mask >> block & 1) == 0) continue;
    begin_load(box, shared_of_rank(to, block, line), shared_of_rank(barrier, block, line), line);
  }
}
template <int rank, typename Place>
CUEMU_INLINE void store_box(const Place& place, const char* from, int line) {
  check_alignment(from, 128, "cp.async.bulk.tensor", line);
  const TensorBox box = box_of<rank>(place, true, line);
  const AsyncCopy copy{nullptr, from, box.bytes, box.bytes, nullptr, true, line, &box};
  if (begin_async_copy(copy)) copy_box(copy);
}

}  // namespace ptx
}  // namespace cuemu
