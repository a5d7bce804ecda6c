// What inline PTX means, in C++. The rewriter calls these functions; registers are unsigned integers of their width.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "atomics.h"
#include "device.h"
#include "lanes.h"
#include "math.h"
#include "small_float_bits.h"

namespace cuemu {
namespace ptx {

constexpr std::uint32_t kNone = ~0u;  // of an operand that is not there
constexpr std::uint32_t kAll = ~0u;   // to wait for all copies, also those outside groups

struct Half {
  std::uint16_t bits;
  using Format = HalfBits;
};
struct Bfloat {
  std::uint16_t bits;
  using Format = BfloatBits;
};
template <typename Small> struct Pair {
  Small low, high;
};
template <typename T> constexpr bool kIsSmall = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>;

struct Sink {};  // in place of a register that takes a result which nobody wants

inline std::uint32_t bits(float value) { return bit_cast<std::uint32_t>(value); }
inline std::uint64_t bits(double value) { return bit_cast<std::uint64_t>(value); }

// An operand of the asm statement, as a register.
template <typename Register, typename Value>
CUEMU_INLINE Register given(Value value) {
  if constexpr (std::is_pointer_v<Value>) return static_cast<Register>(reinterpret_cast<std::uintptr_t>(value));
  else {
    static_assert(!std::is_floating_point_v<Value>, "the constraint of a floating-point operand is f or d");
    return static_cast<Register>(value);
  }
}
template <typename Target, typename Register>
CUEMU_INLINE void take(Target& target, Register value) {
  if constexpr (std::is_floating_point_v<Target>) target = bit_cast<Target>(value);
  else if constexpr (std::is_pointer_v<Target>) target = reinterpret_cast<Target>(static_cast<std::uintptr_t>(value));
  else target = static_cast<Target>(value);
}

// A register's value as a type, and back.
template <typename T, typename Register>
CUEMU_INLINE T in(Register value) {
  if constexpr (std::is_same_v<T, float>) return bit_cast<float>(static_cast<std::uint32_t>(value));
  else if constexpr (std::is_same_v<T, double>) return bit_cast<double>(static_cast<std::uint64_t>(value));
  else if constexpr (kIsSmall<T>) return T{static_cast<std::uint16_t>(value)};
  else if constexpr (std::is_same_v<T, Pair<Half>> || std::is_same_v<T, Pair<Bfloat>>) {
    return T{{static_cast<std::uint16_t>(value)}, {static_cast<std::uint16_t>(value >> 16)}};
  } else return static_cast<T>(value);
}
template <typename Register, typename T>
CUEMU_INLINE void out(Register& to, T value) {
  if constexpr (std::is_same_v<T, float>) to = static_cast<Register>(bit_cast<std::uint32_t>(value));
  else if constexpr (std::is_same_v<T, double>) to = static_cast<Register>(bit_cast<std::uint64_t>(value));
  else if constexpr (kIsSmall<T>) to = value.bits;
  else if constexpr (std::is_same_v<T, Pair<Half>> || std::is_same_v<T, Pair<Bfloat>>) {
    to = static_cast<Register>(value.low.bits | static_cast<std::uint32_t>(value.high.bits) << 16);
  } else to = static_cast<Register>(value);
}
template <typename T> CUEMU_INLINE void out(const Sink&, T) {}

// Several registers in braces; those of a vector access are aligned as such.
template <typename T, int n> struct alignas(n == 2 || n == 4 ? sizeof(T) * n : sizeof(T)) Pack {
  T x[n];
};
template <typename First, typename... Rest>
CUEMU_INLINE auto gather(First first, Rest... rest) {
  using Word = std::common_type_t<First, Rest...>;
  return Pack<Word, 1 + sizeof...(Rest)>{{static_cast<Word>(first), static_cast<Word>(rest)...}};
}
template <typename T, int n, typename... Registers>
CUEMU_INLINE void spread(const Pack<T, n>& values, Registers&&... to) {
  static_assert(sizeof...(Registers) == n, "an instruction has as many results as its opcode says");
  int i = 0;
  (out(to, values.x[i++]), ...);
}
template <int bits, typename Source, typename... Registers>
CUEMU_INLINE void unpack(Source value, Registers&&... to) {
  int i = 0;
  const auto part = [&] { return static_cast<std::uint64_t>(value) >> bits * i++ & (~0ull >> (64 - bits)); };
  (out(to, part()), ...);
}
template <int bits, typename... Values>
CUEMU_INLINE std::uint64_t joined(Values... values) {
  std::uint64_t all = 0;
  int i = 0;
  ((all |= (static_cast<std::uint64_t>(values) & (~0ull >> (64 - bits))) << bits * i++), ...);
  return all;
}

// Integers. Those of PTX wrap around.
struct Plus { template <typename T> T operator()(T a, T b) const { return a + b; } };
struct Minus { template <typename T> T operator()(T a, T b) const { return a - b; } };
struct Times { template <typename T> T operator()(T a, T b) const { return a * b; } };
template <typename T, typename Operation>
CUEMU_INLINE T wrap(T a, T b, Operation operation) {
  return static_cast<T>(operation(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}
template <std::size_t bytes> struct TwiceAs;
template <> struct TwiceAs<2> { using Signed = std::int32_t; using Unsigned = std::uint32_t; };
template <> struct TwiceAs<4> { using Signed = std::int64_t; using Unsigned = std::uint64_t; };
template <> struct TwiceAs<8> { using Signed = __int128; using Unsigned = unsigned __int128; };
template <typename T>
using Wide = std::conditional_t<std::is_signed_v<T>, typename TwiceAs<sizeof(T)>::Signed, typename TwiceAs<sizeof(T)>::Unsigned>;
template <typename T> CUEMU_INLINE T high(T a, T b) { return static_cast<T>(Wide<T>(a) * Wide<T>(b) >> 8 * sizeof(T)); }
// A GPU does not stop at a division by zero: quotient and remainder have all bits set.
template <typename T> CUEMU_INLINE T divided(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return wrap<T>(T(0), a, Minus());
  return static_cast<T>(a / b);
}
template <typename T> CUEMU_INLINE T remainder(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
inline std::int32_t clamped(std::int64_t value) {
  constexpr std::int64_t least = std::numeric_limits<std::int32_t>::min(), most = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(value < least ? least : value > most ? most : value);
}
inline std::uint32_t with_carry(std::uint64_t sum, std::uint32_t& carry) {
  carry = static_cast<std::uint32_t>(sum >> 32);
  return static_cast<std::uint32_t>(sum);
}
template <typename T> CUEMU_INLINE T shifted_left(T value, std::uint32_t by) {
  return by >= 8 * sizeof(T) ? T(0) : static_cast<T>(value << by);
}
template <typename T> CUEMU_INLINE T shifted_right(T value, std::uint32_t by) {
  if (by >= 8 * sizeof(T)) return std::is_signed_v<T> && value < T(0) ? static_cast<T>(-1) : T(0);
  return static_cast<T>(value >> by);
}
template <typename T> CUEMU_INLINE T field(T value, std::uint32_t from, std::uint32_t length) {
  constexpr int kBits = 8 * sizeof(T);
  from &= 255;
  length &= 255;
  using Unsigned = std::make_unsigned_t<T>;
  const std::uint32_t last = from + length - 1 < kBits - 1 ? from + length - 1 : kBits - 1;
  const bool sign = std::is_signed_v<T> && length != 0 && (static_cast<Unsigned>(value) >> last & 1) != 0;
  Unsigned result = sign ? static_cast<Unsigned>(-1) : Unsigned(0);
  for (std::uint32_t i = 0; i < length && i < kBits; ++i) {
    const std::uint32_t place = from + i;
    const Unsigned bit = place < kBits ? static_cast<Unsigned>(value) >> place & 1 : Unsigned(sign);
    result = static_cast<Unsigned>((result & ~(Unsigned(1) << i)) | bit << i);
  }
  return static_cast<T>(result);
}
template <typename T> CUEMU_INLINE T inserted(T bits, T into, std::uint32_t from, std::uint32_t length) {
  from &= 255;
  length &= 255;
  for (std::uint32_t i = 0; i < length && from + i < 8 * sizeof(T); ++i) {
    into = (into & ~(T(1) << (from + i))) | (bits >> i & 1) << (from + i);
  }
  return into;
}
template <typename T> CUEMU_INLINE std::uint32_t leading(T value) {
  using Unsigned = std::make_unsigned_t<T>;
  const Unsigned looked = static_cast<Unsigned>(std::is_signed_v<T> && value < T(0) ? ~value : value);
  return looked == 0 ? ~0u : 8 * sizeof(T) - 1 - static_cast<unsigned>(std::countl_zero(looked));
}
inline std::uint32_t permuted(std::uint32_t a, std::uint32_t b, std::uint32_t selector, std::string_view mode) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  const auto byte = [&](unsigned i) { return static_cast<std::uint32_t>(bytes >> 8 * (i & 7) & 0xff); };
  std::uint32_t result = 0;
  const unsigned s = selector & 3;
  for (unsigned i = 0; i < 4; ++i) {
    std::uint32_t one = 0;
    if (mode.empty()) {
      const unsigned nibble = selector >> 4 * i & 15;
      one = byte(nibble);
      if (nibble & 8) one = one & 0x80 ? 0xff : 0;
    } else if (mode == "f4e") one = byte(s + i);
    else if (mode == "b4e") one = byte(s + 8 - i);
    else if (mode == "rc8") one = byte(s);
    else if (mode == "ecl") one = byte(i > s ? i : s);
    else if (mode == "ecr") one = byte(i < s ? i : s);
    else one = byte(2 * (s & 1) + (i & 1));  // rc16
    result |= one << 8 * i;
  }
  return result;
}
inline std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}
using s8 = signed char;
using u8 = unsigned char;
template <typename Left, typename Right, typename Sum>
CUEMU_INLINE Sum dp4a(std::uint32_t a, std::uint32_t b, Sum c) {
  std::uint32_t sum = static_cast<std::uint32_t>(c);
  for (int i = 0; i < 4; ++i) sum += static_cast<std::uint32_t>(static_cast<Left>(a >> 8 * i) * static_cast<Right>(b >> 8 * i));
  return static_cast<Sum>(sum);
}

// Floating point.
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
inline double flushed(double x) { return x; }
template <typename T> CUEMU_INLINE bool unordered(T x, T y) { return x != x || y != y; }
template <typename T> CUEMU_INLINE T fmin(T a, T b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
template <typename T> CUEMU_INLINE T fmax(T a, T b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}
template <typename T> CUEMU_INLINE T fmin_nan(T a, T b) { return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : fmin(a, b); }
template <typename T> CUEMU_INLINE T fmax_nan(T a, T b) { return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : fmax(a, b); }

template <typename T> float wide(T value) { return T::Format::widen(value.bits); }
template <typename T> T narrowed(float value) { return {T::Format::narrow(value)}; }
// A function of float for halves. One rounding of a sum or a product in float changes no rounding to a half.
template <typename T, typename Function>
CUEMU_INLINE T each(T a, Function function) {
  if constexpr (kIsSmall<T>) return narrowed<T>(function(ptx::wide(a)));
  else return T{each(a.low, function), each(a.high, function)};
}
template <typename T, typename Function>
CUEMU_INLINE T each(T a, T b, Function function) {
  if constexpr (kIsSmall<T>) return narrowed<T>(function(ptx::wide(a), ptx::wide(b)));
  else return T{each(a.low, b.low, function), each(a.high, b.high, function)};
}
template <typename T>
CUEMU_INLINE T fma(T a, T b, T c, bool relu) {
  if constexpr (kIsSmall<T>) {
    const T result{narrow_fma<typename T::Format>(ptx::wide(a), ptx::wide(b), ptx::wide(c))};
    return relu && !(ptx::wide(result) > 0) && ptx::wide(result) == ptx::wide(result) ? T{0} : result;
  } else return T{fma(a.low, b.low, c.low, relu), fma(a.high, b.high, c.high, relu)};
}
inline std::uint32_t tf32(float value) {
  const std::uint32_t all = bits(value);
  return (all & 0x7f800000u) == 0x7f800000u ? all : (all + 0x1000u) & 0xffffe000u;
}
inline double rounded(double value, std::string_view mode) {
  switch (mode.size() > 1 ? mode[1] : 'n') {
    case 'z': return std::trunc(value);
    case 'm': return std::floor(value);
    case 'p': return std::ceil(value);
    default: return std::nearbyint(value);
  }
}
constexpr Rounding rounding_of(std::string_view mode) {
  return mode == "rz" ? Rounding::zero : mode == "rm" ? Rounding::down : mode == "rp" ? Rounding::up : Rounding::nearest;
}
template <typename To>
CUEMU_INLINE To narrowed_towards(float value, std::string_view mode) {
  using Format = typename To::Format;
  switch (rounding_of(mode)) {
    case Rounding::zero: return {narrow_towards<Format, Rounding::zero>(value)};
    case Rounding::down: return {narrow_towards<Format, Rounding::down>(value)};
    case Rounding::up: return {narrow_towards<Format, Rounding::up>(value)};
    default: return {Format::narrow(value)};
  }
}
inline float float_of(double value, std::string_view mode) {
  const float nearest = static_cast<float>(value);
  const double there = nearest;
  if (there == value || value != value) return nearest;
  const bool down = mode == "rm" || (mode == "rz" && value > 0), up = mode == "rp" || (mode == "rz" && value < 0);
  if (down && there > value) return std::nextafter(nearest, -INFINITY);
  if (up && there < value) return std::nextafter(nearest, INFINITY);
  return nearest;
}
template <typename To, typename From>
CUEMU_INLINE To converted(From from, std::string_view mode, bool saturate, bool flush) {
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    if (!saturate) return static_cast<To>(from);
    const __int128 value = from;
    const __int128 least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
    return static_cast<To>(value < least ? least : value > most ? most : value);
  } else if constexpr (kIsSmall<From>) {
    return converted<To>(ptx::wide(from), mode, saturate, flush);
  } else if constexpr (std::is_integral_v<To>) {
    double value = from;
    if constexpr (std::is_same_v<From, float>) if (flush) value = flushed(from);
    value = rounded(value, mode);  // integers saturate always
    if (value != value) return sizeof(To) == 8 ? static_cast<To>(1ull << 63) : To(0);
    if (value <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else if constexpr (std::is_integral_v<From>) {
    if constexpr (std::is_same_v<To, double>) return static_cast<double>(from);
    else {
      const double value = static_cast<double>(from);  // of 64 bits the nearest alone is exact
      if constexpr (kIsSmall<To>) return narrowed_towards<To>(float_of(value, "rn"), mode);
      else return sizeof(From) == 8 ? static_cast<float>(from) : float_of(value, mode);
    }
  } else {
    const bool to_whole = mode.size() == 3;
    double value = to_whole ? rounded(static_cast<double>(from), mode) : static_cast<double>(from);
    if (saturate) value = value > 0 ? (value < 1 ? value : 1) : 0;
    if constexpr (kIsSmall<To>) {
      if constexpr (std::is_same_v<From, double>) return {narrow_double<typename To::Format>(value)};
      else return narrowed_towards<To>(static_cast<float>(value), mode);
    } else if constexpr (std::is_same_v<To, float>) {
      const float result = to_whole ? static_cast<float>(value) : float_of(value, mode);
      return flush ? flushed(result) : result;
    } else return value;
  }
}
template <typename T>
CUEMU_INLINE T packed(float low, float high, bool relu) {
  using Small = decltype(T{}.low);
  const auto one = [relu](float x) { return narrowed<Small>(relu && x <= 0 ? 0.0f : x); };
  return {one(low), one(high)};
}

// Addresses. One of 32 bits is the lower half of a pointer into the block's shared memory.
CUEMU_INLINE char* address(std::uint32_t base, std::int64_t offset) { return shared_pointer(base + static_cast<std::uint32_t>(offset)); }
CUEMU_INLINE char* address(std::uint64_t base, std::int64_t offset) { return reinterpret_cast<char*>(base) + offset; }
template <typename T> CUEMU_INLINE T mapped(T own, std::uint32_t rank, int line) {
  return static_cast<T>(reinterpret_cast<std::uintptr_t>(shared_of_rank(address(own, 0), rank, line)));
}
template <typename T> CUEMU_INLINE T* pointer(char* address) { return reinterpret_cast<T*>(address); }

template <typename T, int n>
CUEMU_INLINE Pack<T, n> load_plain(const char* from) { return *reinterpret_cast<const Pack<T, n>*>(from); }
template <typename T, int n>
CUEMU_INLINE Pack<T, n> load_constant(const char* from) {
  const Pack<T, n> pack = load_plain<T, n>(from);
  note_constant_read(from, sizeof pack);
  return pack;
}
template <typename T, int n>
CUEMU_INLINE void store_plain(char* to, const auto& values) {
  Pack<T, n> pack;
  static_assert(sizeof(values.x) / sizeof values.x[0] == n, "a store has as many values as its opcode says");
  for (int i = 0; i < n; ++i) pack.x[i] = in<T>(values.x[i]);
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}
template <typename T> using Word = typename WordOfSize<sizeof(T)>::type;

// Relaxed, volatile, acquiring and releasing accesses, which other blocks may see. Those of 16 bytes are single ones, too.
template <typename T, int n, bool is_of_block>
CUEMU_INLINE Pack<T, n> load_strong(const char* from, bool acquires) {
  changed_nothing();  // a loop of them waits
  promise_alignment(*reinterpret_cast<const Pack<T, n>*>(from));
  Pack<T, n> pack;
  {
    const WideAccess whole(sizeof pack > 8);
    for (int i = 0; i < n; ++i) {
      const Word<T> word = __atomic_load_n(reinterpret_cast<const Word<T>*>(from) + i, Scope<is_of_block>::kLoad);
      __builtin_memcpy(&pack.x[i], &word, sizeof word);
    }
  }
  if (acquires) fence(!is_of_block);
  return pack;
}
template <typename T, int n, bool is_of_block>
CUEMU_INLINE void store_strong(char* to, const auto& values, bool releases) {
  if (releases) fence(!is_of_block);
  promise_alignment(*reinterpret_cast<const Pack<T, n>*>(to));
  const WideAccess whole(n * sizeof(T) > 8);
  for (int i = 0; i < n; ++i) {
    const T value = in<T>(values.x[i]);
    Word<T> word;
    __builtin_memcpy(&word, &value, sizeof word);
    __atomic_store_n(reinterpret_cast<Word<T>*>(to) + i, word, Scope<is_of_block>::kStore);
  }
}

// The types of CUDA's atomic functions.
template <typename T>
using Atomic = std::conditional_t<std::is_same_v<T, std::uint64_t>, unsigned long long,
                                  std::conditional_t<std::is_same_v<T, std::int64_t>, long long, T>>;
template <bool is_of_block, typename Operation>
CUEMU_INLINE auto atomic(bool is_ordered, Operation operation) {
  if (is_ordered) fence(!is_of_block);
  const auto result = operation();
  if (is_ordered) fence(!is_of_block);
  return result;
}

// Adds to a value, or to each half of a pair, atomically. Returns what it was.
template <bool is_of_block, typename T>
CUEMU_INLINE T add_at(T* to, T value) {
  if constexpr (requires { value.low; }) {
    const auto low = add_at<is_of_block>(&to->low, value.low);
    return {low, add_at<is_of_block>(&to->high, value.high)};
  } else {
    return atomic_update<is_of_block>(to, [value](T old) {
      if constexpr (kIsSmall<T>) return each(old, value, [](float x, float y) { return x + y; });
      else return old + value;
    });
  }
}
template <typename T, int n, bool is_of_block>
CUEMU_INLINE Pack<T, n> add_to_each(char* to, const auto& values) {
  static_assert(sizeof(values.x) / sizeof values.x[0] == n, "the operation has as many values as its opcode says");
  Pack<T, n>& pack = *reinterpret_cast<Pack<T, n>*>(to);
  promise_alignment(pack);
  Pack<T, n> before;
  for (int i = 0; i < n; ++i) before.x[i] = add_at<is_of_block>(&pack.x[i], in<T>(values.x[i]));
  return before;
}

// `bounds` is PTX's operand: the last lane in bits 0 to 4, the mask of segments in bits 8 to 12.
CUEMU_INLINE std::uint32_t shuffled(WarpOp operation, std::uint32_t value, std::uint32_t parameter, std::uint32_t bounds,
                                    std::uint32_t mask, bool& is_inside, int line) {
  const std::uint32_t segment = bounds >> 8 & 31, lane = position_in(threadIdx, blockDim) % 32;
  const std::uint32_t last = (lane & segment) | (bounds & 31 & ~segment), first = lane & segment, by = parameter & 31;
  std::uint32_t source = 0;
  if (operation == WarpOp::shuffle_up) is_inside = lane >= first + by && lane >= by, source = lane - by;
  else if (operation == WarpOp::shuffle_down) source = lane + by, is_inside = source <= last;
  else if (operation == WarpOp::shuffle_xor) source = lane ^ by, is_inside = source <= last;
  else source = first | (by & ~segment & 31), is_inside = source <= last;
  if (!is_inside) source = lane;
  return static_cast<std::uint32_t>(warp_operation(WarpOp::shuffle, mask, value, static_cast<int>(source), 32, line));
}
CUEMU_INLINE std::uint32_t elected(std::uint32_t mask, bool& is_leader, int line) {
  __syncwarp(mask, line);
  const std::uint32_t leader = static_cast<std::uint32_t>(std::countr_zero(mask));
  is_leader = position_in(threadIdx, blockDim) % 32 == leader;
  return leader;
}

}  // namespace ptx
}  // namespace cuemu

#include "ptx_copies.h"
#include "ptx_matrices.h"
#include "ptx_tensors.h"
#include "ptx_warpgroup.h"
