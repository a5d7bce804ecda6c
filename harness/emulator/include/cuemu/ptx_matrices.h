// Matrices that the lanes of a warp hold together: ldmatrix, stmatrix and mma.sync.
#pragma once

namespace cuemu {
namespace ptx {

CUEMU_INLINE std::uint32_t own_lane() { return position_in(threadIdx, blockDim) % 32; }

// The row of a matrix whose address the lane of this number gave.
CUEMU_INLINE char* row_of(char* own, std::uint32_t lane, int line) {
  const auto value = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(own));
  return reinterpret_cast<char*>(warp_operation(WarpOp::shuffle, ~0u, value, static_cast<int>(lane), 32, line));
}

// Calls visit(matrix, half, address) for the two elements that a lane holds of each matrix.
template <int count, bool trans, typename Visit>
CUEMU_INLINE void each_element(char* row, const char* instruction, int line, Visit visit) {
  const std::uint32_t lane = own_lane();
  if (lane < 8 * count) check_alignment(row, 16, instruction, line);
  for (std::uint32_t matrix = 0; matrix < count; ++matrix) {
    for (std::uint32_t half = 0; half < 2; ++half) {
      const std::uint32_t across = lane % 4 * 2 + half, down = lane / 4;
      char* const from = row_of(row, matrix * 8 + (trans ? across : down), line);
      visit(matrix, half, pointer<std::uint16_t>(from + 2 * (trans ? down : across)));
    }
  }
}
template <int count, bool trans>
CUEMU_INLINE auto load_matrices(char* row, int line) {
  Pack<std::uint32_t, count> values{};
  each_element<count, trans>(row, "ldmatrix", line, [&](std::uint32_t matrix, std::uint32_t half, std::uint16_t* at) {
    values.x[matrix] |= static_cast<std::uint32_t>(*at) << 16 * half;
  });
  return values;
}
template <int count, bool trans>
CUEMU_INLINE void store_matrices(char* row, const auto& values, int line) {
  static_assert(sizeof(values.x) / sizeof values.x[0] == count, "stmatrix has as many values as its opcode says");
  each_element<count, trans>(row, "stmatrix", line, [&](std::uint32_t matrix, std::uint32_t half, std::uint16_t* at) {
    *at = static_cast<std::uint16_t>(values.x[matrix] >> 16 * half);
  });
}

template <int m, int n, int k, Element d, Element a, Element b, Element c>
CUEMU_INLINE auto product(const auto& left, const auto& right, const auto& addend, bool saturate, int line) {
  static_assert(sizeof(left.x) == m * k / 32 * bytes_of(a) && sizeof(right.x) == k * n / 32 * bytes_of(b) &&
                    sizeof(addend.x) == m * n / 32 * bytes_of(c),
                "mma.sync has as many registers as its shape and types say");
  using Register = std::conditional_t<d == Element::float64, std::uint64_t, std::uint32_t>;
  Pack<Register, m * n / 32 * bytes_of(d) / static_cast<int>(sizeof(Register))> sum;
  matrix_multiply({m, n, k, {a, left.x}, {b, right.x}, {c, addend.x}, d, sum.x, saturate, true}, line);
  return sum;
}

}  // namespace ptx
}  // namespace cuemu
