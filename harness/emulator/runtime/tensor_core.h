// Sums of products as the tensor cores of Hopper make them.
#pragma once

#include <bit>
#include <cstdint>

#include "cuemu/runtime.h"

namespace cuemu {

// What a GPU's arithmetic returns for every NaN.
inline constexpr float kTensorNan = std::bit_cast<float>(0x7fffffffu);

// How one instruction sums. All of its products and the addend are aligned to the largest of their exponents, cut off
// `fraction_bits` below it, added exactly, and the sum is cut to `kept_bits` of mantissa.
struct TensorCore {
  int fraction_bits;
  int kept_bits;
  int least_of_left, least_of_right;  // exponents of the factors, where their subnormal numbers are
  bool to_odd;  // keep in the last bit whether bits were cut off, so that rounding to half is right
};

// The core of a warpgroup's products, or of a warp's, for factors of these types and sums of that one.
TensorCore tensor_core(Element left, Element right, Element sum, bool is_warpgroup);

// The value of a number of 8 bits, e4m3 or e5m2.
float small_float(Element element, std::uint8_t bits);

// Computes sums (rows, n) += left (rows, k) x right (k, n), all stored by rows, k the depth of one instruction. n is a
// multiple of eight.
void add_tensor_products(const TensorCore& core, int rows, int n, int k, const float* left, const float* right,
                         float* sums);

}  // namespace cuemu
