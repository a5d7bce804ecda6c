// Jumps of cuRAND's generators over many numbers. Both are linear: a jump is a power of the step's matrix.
#include <array>
#include <cstdint>
#include <vector>

#include "cuemu/runtime.h"

namespace cuemu {
namespace {

using Bits = std::array<std::uint32_t, 5>;      // the 160 bits of XORWOW
using BitMatrix = std::vector<Bits>;            // what each bit becomes
constexpr unsigned kPowers = 64 + 67;           // of 2 that jumps may need: numbers of 64 bits, and sequences 2^67 long

Bits xorwow_step(const Bits& state) {
  const std::uint32_t first = state[0] ^ (state[0] >> 2);
  return {state[1], state[2], state[3], state[4], state[4] ^ (state[4] << 4) ^ first ^ (first << 1)};
}

Bits product(const BitMatrix& matrix, const Bits& state) {
  Bits result{};
  for (unsigned bit = 0; bit < 160; ++bit) {
    if ((state[bit / 32] >> bit % 32 & 1) == 0) continue;
    for (unsigned i = 0; i < 5; ++i) result[i] ^= matrix[bit][i];
  }
  return result;
}

// The step's matrix to the powers 1, 2, 4, 8 and so on.
std::vector<BitMatrix> xorwow_powers() {
  std::vector<BitMatrix> powers(kPowers, BitMatrix(160));
  for (unsigned bit = 0; bit < 160; ++bit) {
    Bits one{};
    one[bit / 32] = 1u << bit % 32;
    powers[0][bit] = xorwow_step(one);
  }
  for (unsigned power = 1; power < kPowers; ++power) {
    for (unsigned bit = 0; bit < 160; ++bit) powers[power][bit] = product(powers[power - 1], powers[power - 1][bit]);
  }
  return powers;
}

using Matrix = std::array<std::array<std::uint64_t, 3>, 3>;

Matrix product(const Matrix& left, const Matrix& right, std::uint64_t modulus) {
  Matrix result{};
  for (unsigned row = 0; row < 3; ++row) {
    for (unsigned column = 0; column < 3; ++column) {
      for (unsigned i = 0; i < 3; ++i) result[row][column] += left[row][i] * right[i][column] % modulus;
      result[row][column] %= modulus;
    }
  }
  return result;
}

void jump_component(std::uint32_t* state, Matrix step, std::uint64_t modulus, std::uint64_t count, unsigned exponent) {
  for (unsigned i = 0; i < exponent; ++i) step = product(step, step, modulus);
  for (; count != 0; count >>= 1, step = product(step, step, modulus)) {
    if ((count & 1) == 0) continue;
    const std::uint64_t before[3] = {state[0], state[1], state[2]};
    for (unsigned row = 0; row < 3; ++row) {
      std::uint64_t sum = 0;
      for (unsigned i = 0; i < 3; ++i) sum += step[row][i] * before[i] % modulus;
      state[row] = static_cast<std::uint32_t>(sum % modulus);
    }
  }
}

}  // namespace

void jump_xorwow(std::uint32_t* state, std::uint64_t count, unsigned exponent) {
  static const std::vector<BitMatrix> powers = xorwow_powers();
  Bits bits;
  for (unsigned i = 0; i < 5; ++i) bits[i] = state[i];
  for (unsigned power = exponent; count != 0; count >>= 1, ++power) {
    if (count & 1) bits = product(powers[power], bits);
  }
  for (unsigned i = 0; i < 5; ++i) state[i] = bits[i];
}

void jump_mrg32k3a(std::uint32_t* first, std::uint32_t* second, std::uint64_t count, unsigned exponent) {
  constexpr std::uint64_t modulus1 = 4294967087u, modulus2 = 4294944443u;
  jump_component(first, {{{0, 1, 0}, {0, 0, 1}, {modulus1 - 810728, 1403580, 0}}}, modulus1, count, exponent);
  jump_component(second, {{{0, 1, 0}, {0, 0, 1}, {modulus2 - 1370589, 0, 527612}}}, modulus2, count, exponent);
}

}  // namespace cuemu
