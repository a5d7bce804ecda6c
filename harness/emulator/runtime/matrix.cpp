// Products of matrices that a warp's lanes hold together, computed once all lanes have arrived.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensor_core.h"
#include "worker.h"
#include "cuemu/small_float_bits.h"

namespace cuemu {
namespace {

constexpr int kMostElements = 32 * 16;  // of the largest matrix, 32 x 16

template <typename Value>
Value element_at(const void* values, int i) {
  Value value;
  std::memcpy(&value, static_cast<const char*>(values) + i * sizeof(Value), sizeof value);
  return value;
}

// Rounds a number as the hardware reads it: the lower 13 bits of a tf32 do not count.
template <typename Number>
Number widened(const LaneOfMatrix& lane, int i) {
  switch (lane.element) {
    case Element::half: return static_cast<Number>(HalfBits::widen(element_at<unsigned short>(lane.values, i)));
    case Element::bfloat16: return static_cast<Number>(BfloatBits::widen(element_at<unsigned short>(lane.values, i)));
    case Element::tf32:
      return static_cast<Number>(bit_cast<float>(element_at<std::uint32_t>(lane.values, i) & 0xffffe000u));
    case Element::float32: return static_cast<Number>(element_at<float>(lane.values, i));
    case Element::float64: return static_cast<Number>(element_at<double>(lane.values, i));
    case Element::int8: return static_cast<Number>(element_at<signed char>(lane.values, i));
    case Element::uint8: return static_cast<Number>(element_at<unsigned char>(lane.values, i));
    case Element::int32: return static_cast<Number>(element_at<int>(lane.values, i));
    case Element::e4m3:
    case Element::e5m2: return static_cast<Number>(small_float(lane.element, element_at<std::uint8_t>(lane.values, i)));
  }
  return Number();
}

template <typename Number>
void store(const MatrixProduct& lane, int i, Number value) {
  char* const to = static_cast<char*>(lane.sum);
  if constexpr (std::is_same_v<Number, std::int64_t>) {
    const std::int64_t kept = lane.saturate ? std::clamp<std::int64_t>(value, INT32_MIN, INT32_MAX) : value;
    const auto bits = static_cast<std::uint32_t>(kept);
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
  } else if (lane.sum_element == Element::half) {
    const unsigned short bits = HalfBits::narrow(static_cast<float>(value));
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
  } else {
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

// Computes sum += left x right. The number of columns is a constant, so that the compiler can
// vectorise the inner loop.
template <int n, typename Number>
void add_products(int m, int k, const Number* left, const Number* right, Number* sum) {
  for (int row = 0; row < m; ++row) {
    for (int inner = 0; inner < k; ++inner) {
      const Number factor = left[row * k + inner];
      for (int column = 0; column < n; ++column) sum[row * n + column] += factor * right[inner * n + column];
    }
  }
}

enum class Role { left, right, sum };

// Where element i of a lane stands in a matrix that is stored by rows. For mma.sync these are the layouts of "Matrix
// Fragments for mma" in the PTX ISA: all shapes share them, in terms of the elements that one register holds.
int place(const MatrixProduct& product, Role role, int lane, int i) {
  if (!product.is_mma) return kLanes * i + lane;
  const int group = lane / 4, member = lane % 4;
  if (role == Role::sum) return (group + i / 2 * 8) * product.n + member * 2 + i % 2;
  const int held = product.left.element == Element::float64 ? 1 : 4 / bytes_of(product.left.element);
  const int number = i / held, inner = member * held + i % held;
  if (role == Role::left) return (group + number % 2 * 8) * product.k + inner + number / 2 * 4 * held;
  return (inner + number * 4 * held) * product.n + group;
}

// Adds the products to float sums. The chip takes some in two steps: of factors of 8 bits it makes halves, takes half of
// each register at a time, and adds the addend at last; a fragment of tf32 it takes four deep.
void add_floats(const MatrixProduct& product, const float* left, const float* right, float* sum) {
  const int m = product.m, n = product.n, k = product.k;
  const Element element = product.left.element;
  const bool is_small = bytes_of(element) == 1, is_fragment = element == Element::tf32 && !product.is_mma;
  const TensorCore core = tensor_core(element, product.right.element, product.sum_element, false);
  if (!is_small && !is_fragment) return add_tensor_products(core, m, n, k, left, right, sum);
  float some_left[kMostElements], some_right[kMostElements], total[kMostElements] = {};
  for (int second = 0; second < 2; ++second) {
    for (int inner = 0; inner < k / 2; ++inner) {
      const int from = is_small ? inner / 2 * 4 + second * 2 + inner % 2 : second * (k / 2) + inner;
      for (int row = 0; row < m; ++row) some_left[row * (k / 2) + inner] = left[row * k + from];
      std::copy_n(right + from * n, n, some_right + inner * n);
    }
    add_tensor_products(core, m, n, k / 2, some_left, some_right, is_small ? total : sum);
  }
  if (!is_small) return;
  for (int i = 0; i < m * n; ++i) {
    sum[i] += total[i];
    if (std::isnan(sum[i])) sum[i] = kTensorNan;
  }
}

template <typename Number>
void multiply(const MatrixProduct* const (&lanes)[kLanes]) {
  const int m = lanes[0]->m, n = lanes[0]->n, k = lanes[0]->k;
  Number left[kMostElements], right[kMostElements], sum[kMostElements];
  const auto gather = [&](Number* matrix, int elements, Role role, LaneOfMatrix MatrixProduct::* which) {
    for (int i = 0; i < elements; ++i) {
      matrix[place(*lanes[0], role, i % kLanes, i / kLanes)] = widened<Number>(lanes[i % kLanes]->*which, i / kLanes);
    }
  };
  gather(left, m * k, Role::left, &MatrixProduct::left);
  gather(right, k * n, Role::right, &MatrixProduct::right);
  gather(sum, m * n, Role::sum, &MatrixProduct::addend);
  if constexpr (std::is_same_v<Number, float>) add_floats(*lanes[0], left, right, sum);
  else if (n == 8) add_products<8>(m, k, left, right, sum);
  else if (n == 16) add_products<16>(m, k, left, right, sum);
  else add_products<32>(m, k, left, right, sum);
  for (int i = 0; i < m * n; ++i) {
    store(*lanes[i % kLanes], i / kLanes, sum[place(*lanes[0], Role::sum, i % kLanes, i / kLanes)]);
  }
}

bool alike(const MatrixProduct& one, const MatrixProduct& other) {
  return one.m == other.m && one.n == other.n && one.k == other.k && one.left.element == other.left.element &&
         one.right.element == other.right.element && one.addend.element == other.addend.element &&
         one.sum_element == other.sum_element && one.saturate == other.saturate &&
         one.is_mma == other.is_mma;
}

MatrixOutcome multiply_warp(Thread* const (&threads)[kLanes]) {
  const MatrixProduct* lanes[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = reinterpret_cast<const MatrixProduct*>(threads[lane]->value);
    if (!alike(*lanes[0], *lanes[lane])) return MatrixOutcome::lanes_differ;
  }
  if (lanes[0]->sum_element == Element::int32) multiply<std::int64_t>(lanes);
  else if (lanes[0]->sum_element == Element::float64) multiply<double>(lanes);
  else multiply<float>(lanes);
  return MatrixOutcome::done;
}

}  // namespace

void compute_matrix_operation(WarpOp operation, unsigned lanes, Thread* const (&threads)[kLanes]) {
  MatrixOutcome outcome = MatrixOutcome::done;
  if (lanes != ~0u) {
    outcome = MatrixOutcome::lanes_missing;
  } else if (operation == WarpOp::warpgroup_multiply) {
    outcome = multiply_warpgroup(this_worker().block(), threads);
  } else if (operation == WarpOp::matrix_multiply) {
    outcome = multiply_warp(threads);
  } else {
    for (const Thread* thread : threads) {
      if (thread->value == threads[0]->value && thread->parameter == threads[0]->parameter) continue;
      outcome = MatrixOutcome::lanes_differ;
    }
  }
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    threads[__builtin_ctz(left)]->result = static_cast<std::uint64_t>(outcome);
  }
}

}  // namespace cuemu
