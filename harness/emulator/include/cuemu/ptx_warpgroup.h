// Products of matrices by a warpgroup: wgmma.
#pragma once

// The variables that an asm statement with wgmma takes over and gives back. Only the checking mode needs their places,
// and without it they stay in registers.
#ifdef CUEMU_CHECKED
#define CUEMU_HAND_OVER(begins) ::cuemu::hand_over_registers(begins)
#define CUEMU_IN_FLIGHT(variable) ::cuemu::note_product_registers(&(variable), sizeof(variable), __LINE__)
#else
#define CUEMU_HAND_OVER(begins) static_cast<void>(0)
#define CUEMU_IN_FLIGHT(variable) static_cast<void>(0)
#endif

namespace cuemu {
namespace ptx {

// The left operand is a descriptor, or four registers. Without it the last operand says whether the right one is
// transposed.
template <int n, int k, Element d, Element a, Element b, typename Sums, typename Left>
CUEMU_INLINE Sums warpgroup_product(Sums sums, const Left& left, std::uint64_t right, bool keeps, std::int32_t left_scale,
                                    std::int32_t right_scale, std::uint32_t transposed, std::uint32_t also_transposed,
                                    bool saturate, int line) {
  static_assert(sizeof(sums.x) == n / 2 * bytes_of(d) && sizeof(sums.x[0]) == 4,
                "wgmma has as many registers as its shape and types say");
  constexpr bool in_registers = sizeof(left.x[0]) == 4;
  static_assert(sizeof(left.x) == (in_registers ? 16 : 8), "the left operand of wgmma is a descriptor or four registers");
  const std::uint32_t right_transposed = in_registers ? transposed : also_transposed;
  WarpgroupProduct product{n, k, a, b, d, sums.x, nullptr, 0, right, keeps, saturate, left_scale < 0, right_scale < 0,
                           !in_registers && transposed == 1, right_transposed == 1};
  if constexpr (in_registers) product.left_registers = left.x;
  else product.left_at = left.x[0];
  warpgroup_multiply(product, line);
  return sums;
}

}  // namespace ptx
}  // namespace cuemu
