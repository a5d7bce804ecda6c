// CUDA's warp matrices (wmma): fragments that the 32 lanes of a warp hold together.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuemu/lanes.h"

namespace nvcuda {
namespace wmma {

// Rounds to the nearest number of 10 explicit significand bits, ties away from zero, as cvt.rna.tf32.f32 does.
inline float __float_to_tf32(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

namespace precision {
struct tf32;
}
namespace experimental {
namespace precision {
struct u4;
struct s4;
struct b1;
}  // namespace precision
}  // namespace experimental

}  // namespace wmma
}  // namespace nvcuda

namespace cuemu {

namespace wmma = ::nvcuda::wmma;

template <typename T> struct MatrixElement;
#define CUEMU_MATRIX_ELEMENT(type, storage, name)                 \
  template <> struct MatrixElement<type> {                        \
    using Stored = storage;                                       \
    static constexpr Element element = Element::name;             \
  };
CUEMU_MATRIX_ELEMENT(__half, __half, half)
CUEMU_MATRIX_ELEMENT(__nv_bfloat16, __nv_bfloat16, bfloat16)
CUEMU_MATRIX_ELEMENT(wmma::precision::tf32, float, tf32)
CUEMU_MATRIX_ELEMENT(float, float, float32)
CUEMU_MATRIX_ELEMENT(double, double, float64)
CUEMU_MATRIX_ELEMENT(signed char, signed char, int8)
CUEMU_MATRIX_ELEMENT(unsigned char, unsigned char, uint8)
CUEMU_MATRIX_ELEMENT(int, int, int32)
#undef CUEMU_MATRIX_ELEMENT

template <typename T>
constexpr bool is_of(Element element) {
  return MatrixElement<T>::element == element;
}

// The alignment in bytes. CUDA asks for 32, but in its own examples tiles of 8-bit integers lie 16
// bytes apart.
template <typename Stored>
inline constexpr unsigned kMatrixAlignment = sizeof(Stored) == 1 ? 16 : 32;

// Whether CUDA has a fragment of this use, shape and type.
template <typename Use, int m, int n, int k, typename T>
constexpr bool has_fragment() {
  const bool is_sum = std::is_same_v<Use, wmma::accumulator>;
  const bool usual = k == 16 && ((m == 16 && n == 16) || (m == 32 && n == 8) || (m == 8 && n == 32));
  if (is_of<T>(Element::float64)) return m == 8 && n == 8 && k == 4;
  if (is_of<T>(Element::tf32)) return !is_sum && m == 16 && n == 16 && k == 8;
  if (is_of<T>(Element::float32)) return is_sum && (usual || (m == 16 && n == 16 && k == 8));
  if (is_of<T>(Element::int32)) return is_sum && usual;
  return usual && (!is_sum || is_of<T>(Element::half));
}

template <typename T>
inline constexpr bool kSubByte = std::is_same_v<T, wmma::experimental::precision::u4> ||
                                 std::is_same_v<T, wmma::experimental::precision::s4> ||
                                 std::is_same_v<T, wmma::experimental::precision::b1>;

}  // namespace cuemu

namespace nvcuda {
namespace wmma {

template <typename Use, int m, int n, int k, typename T, typename Layout = void>
class fragment {
  static_assert(!::cuemu::kSubByte<T>,
                "cuemu-unsupported: wmma on integers of less than 8 bits: guard it with #ifdef __CUDA_ARCH__ "
                "and give a plain fallback");
  static_assert(::cuemu::has_fragment<Use, m, n, k, T>(), "wmma has no fragment of this use, shape and type");
  static_assert(std::is_void_v<Layout> == std::is_same_v<Use, accumulator>,
                "factors have a layout, row_major or col_major, and accumulators have none");

 public:
  using element_type = T;
  using storage_element_type = typename ::cuemu::MatrixElement<T>::Stored;
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m;
  static constexpr int columns = std::is_same_v<Use, matrix_a> ? k : n;
  static constexpr int num_elements = rows * columns / 32;
  static constexpr int num_storage_elements = num_elements;

  storage_element_type x[num_elements];

  ::cuemu::LaneOfMatrix lane() const { return {::cuemu::MatrixElement<T>::element, x}; }
};

template <typename Use, int m, int n, int k, typename T, typename Layout>
void fill_fragment(fragment<Use, m, n, k, T, Layout>& to,
                   const std::type_identity_t<typename ::cuemu::MatrixElement<T>::Stored>& value) {
  for (auto& element : to.x) element = value;
}

}  // namespace wmma
}  // namespace nvcuda

namespace cuemu {

// The place in memory of the calling lane's i-th element of a fragment.
template <typename Fragment>
std::size_t offset_of_element(unsigned i, unsigned stride, bool by_rows) {
  const unsigned number = 32 * i + position_in(threadIdx, blockDim) % 32;
  const std::size_t row = number / Fragment::columns, column = number % Fragment::columns;
  return by_rows ? row * stride + column : column * stride + row;
}

template <typename Fragment, typename Stored>
CUEMU_INLINE void load_matrix(Fragment& to, const Stored* from, unsigned stride, bool by_rows, int line) {
  begin_matrix_access(WarpOp::matrix_load, from, kMatrixAlignment<Stored>, stride * sizeof(Stored), line);
  for (unsigned i = 0; i < Fragment::num_elements; ++i) to.x[i] = from[offset_of_element<Fragment>(i, stride, by_rows)];
}

}  // namespace cuemu

namespace nvcuda {
namespace wmma {

template <typename Use, int m, int n, int k, typename T, typename Layout>
CUEMU_INLINE void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& to,
                                   const std::type_identity_t<typename ::cuemu::MatrixElement<T>::Stored>* from,
                                   unsigned stride, int line = __builtin_LINE()) {
  static_assert(!std::is_void_v<Layout>, "to load an accumulator, give mem_row_major or mem_col_major");
  ::cuemu::load_matrix(to, from, stride, std::is_same_v<Layout, row_major>, line);
}
template <int m, int n, int k, typename T>
CUEMU_INLINE void load_matrix_sync(fragment<accumulator, m, n, k, T>& to,
                                   const std::type_identity_t<typename ::cuemu::MatrixElement<T>::Stored>* from,
                                   unsigned stride, layout_t layout, int line = __builtin_LINE()) {
  ::cuemu::load_matrix(to, from, stride, layout == mem_row_major, line);
}

template <int m, int n, int k, typename T>
CUEMU_INLINE void store_matrix_sync(std::type_identity_t<typename ::cuemu::MatrixElement<T>::Stored>* to,
                                    const fragment<accumulator, m, n, k, T>& from, unsigned stride, layout_t layout,
                                    int line = __builtin_LINE()) {
  using From = fragment<accumulator, m, n, k, T>;
  ::cuemu::begin_matrix_access(::cuemu::WarpOp::matrix_store, to, ::cuemu::kMatrixAlignment<T>, stride * sizeof *to,
                               line);
  for (unsigned i = 0; i < From::num_elements; ++i) {
    to[::cuemu::offset_of_element<From>(i, stride, layout == mem_row_major)] = from.x[i];
  }
}

// sum = left x right + addend
template <int m, int n, int k, typename Sum, typename Left, typename LeftLayout, typename Right, typename RightLayout,
          typename Addend>
void mma_sync(fragment<accumulator, m, n, k, Sum>& sum, const fragment<matrix_a, m, n, k, Left, LeftLayout>& left,
              const fragment<matrix_b, m, n, k, Right, RightLayout>& right,
              const fragment<accumulator, m, n, k, Addend>& addend, bool saturate = false,
              int line = __builtin_LINE()) {
  using ::cuemu::Element;
  constexpr bool is_integer = ::cuemu::is_of<Left>(Element::int8) || ::cuemu::is_of<Left>(Element::uint8);
  static_assert(std::is_same_v<Left, Right>, "both factors have the same type");
  static_assert(is_integer == ::cuemu::is_of<Sum>(Element::int32) &&
                    is_integer == ::cuemu::is_of<Addend>(Element::int32),
                "products of integers are added to int accumulators");
  static_assert(::cuemu::is_of<Left>(Element::half) || std::is_same_v<Sum, Addend>,
                "only products of half have accumulators of two types");
  static_assert(::cuemu::is_of<Left>(Element::half) || !::cuemu::is_of<Sum>(Element::half),
                "only products of half are added to half accumulators");
  ::cuemu::matrix_multiply({m, n, k, left.lane(), right.lane(), addend.lane(),
                            ::cuemu::MatrixElement<Sum>::element, sum.x, saturate},
                           line);
}

}  // namespace wmma
}  // namespace nvcuda
