// CUDA's functions on the two halves or four bytes of a word, and those of DPX.
#pragma once

#include "line.h"
#include "math.h"

namespace cuemu {
template <typename Part>
constexpr int clamped(int value) {
  constexpr int low = std::numeric_limits<Part>::min(), high = std::numeric_limits<Part>::max();
  return value < low ? low : value > high ? high : value;
}
constexpr int magnitude(int value) { return value < 0 ? -value : value; }
// Rounds half a sum to nearest, and ties away from zero.
constexpr int rounded_half(int sum) { return (sum + (sum < 0 ? 0 : 1)) >> 1; }
}  // namespace cuemu

// In `expression`, x and y are the parts, and a result wraps around.
#define CUEMU_ON_PARTS(name, Part, expression)                                                     \
  inline unsigned name(unsigned left, unsigned right) {                                            \
    constexpr unsigned bits = 8 * sizeof(Part);                                                    \
    unsigned result = 0;                                                                           \
    for (unsigned at = 0; at < 32; at += bits) {                                                   \
      const int x = static_cast<Part>(left >> at), y = static_cast<Part>(right >> at);             \
      result |= (static_cast<unsigned>(expression) & ((1u << bits) - 1)) << at;                    \
    }                                                                                              \
    return result;                                                                                 \
  }
#define CUEMU_ON_EACH_PART(name, Part, expression)                                                 \
  inline unsigned name(unsigned word) {                                                            \
    constexpr unsigned bits = 8 * sizeof(Part);                                                    \
    unsigned result = 0;                                                                           \
    for (unsigned at = 0; at < 32; at += bits) {                                                   \
      const int x = static_cast<Part>(word >> at);                                                 \
      result |= (static_cast<unsigned>(expression) & ((1u << bits) - 1)) << at;                    \
    }                                                                                              \
    return result;                                                                                 \
  }
#define CUEMU_SUM_OF_DISTANCES(name, Part)                                                         \
  inline unsigned name(unsigned left, unsigned right) {                                            \
    unsigned sum = 0;                                                                              \
    for (unsigned at = 0; at < 32; at += 8 * sizeof(Part)) {                                       \
      sum += static_cast<unsigned>(                                                                \
          ::cuemu::magnitude(static_cast<Part>(left >> at) - static_cast<Part>(right >> at)));     \
    }                                                                                              \
    return sum;                                                                                    \
  }
#define CUEMU_COMPARED(name, count, Part, op)                                                      \
  CUEMU_ON_PARTS(__vcmp##name##count, Part, x op y ? -1 : 0)                                       \
  CUEMU_ON_PARTS(__vset##name##count, Part, x op y ? 1 : 0)
// The functions of one signedness, s or u.
#define CUEMU_SIGNED_PARTS(sign, count, Part)                                                      \
  CUEMU_ON_PARTS(__vadd##sign##s##count, Part, ::cuemu::clamped<Part>(x + y))                      \
  CUEMU_ON_PARTS(__vsub##sign##s##count, Part, ::cuemu::clamped<Part>(x - y))                      \
  CUEMU_ON_PARTS(__vabsdiff##sign##count, Part, ::cuemu::magnitude(x - y))                         \
  CUEMU_ON_PARTS(__vavg##sign##count, Part, ::cuemu::rounded_half(x + y))                          \
  CUEMU_ON_PARTS(__vmax##sign##count, Part, x > y ? x : y)                                         \
  CUEMU_ON_PARTS(__vmin##sign##count, Part, x < y ? x : y)                                         \
  CUEMU_SUM_OF_DISTANCES(__vsad##sign##count, Part)                                                \
  CUEMU_COMPARED(ge##sign, count, Part, >=)                                                        \
  CUEMU_COMPARED(gt##sign, count, Part, >)                                                         \
  CUEMU_COMPARED(le##sign, count, Part, <=)                                                        \
  CUEMU_COMPARED(lt##sign, count, Part, <)
#define CUEMU_PARTS(count, Signed, Unsigned)                                                       \
  CUEMU_ON_PARTS(__vadd##count, Unsigned, x + y)                                                   \
  CUEMU_ON_PARTS(__vsub##count, Unsigned, x - y)                                                   \
  CUEMU_ON_PARTS(__vhaddu##count, Unsigned, (x + y) >> 1)                                          \
  CUEMU_ON_EACH_PART(__vabs##count, Signed, ::cuemu::magnitude(x))                                 \
  CUEMU_ON_EACH_PART(__vabsss##count, Signed, ::cuemu::clamped<Signed>(::cuemu::magnitude(x)))     \
  CUEMU_ON_EACH_PART(__vneg##count, Signed, -x)                                                    \
  CUEMU_ON_EACH_PART(__vnegss##count, Signed, ::cuemu::clamped<Signed>(-x))                        \
  CUEMU_COMPARED(eq, count, Unsigned, ==)                                                          \
  CUEMU_COMPARED(ne, count, Unsigned, !=)                                                          \
  CUEMU_SIGNED_PARTS(s, count, Signed)                                                             \
  CUEMU_SIGNED_PARTS(u, count, Unsigned)
CUEMU_PARTS(2, short, unsigned short)
CUEMU_PARTS(4, signed char, unsigned char)
#undef CUEMU_PARTS
#undef CUEMU_SIGNED_PARTS
#undef CUEMU_COMPARED
#undef CUEMU_SUM_OF_DISTANCES
#undef CUEMU_ON_EACH_PART
#undef CUEMU_ON_PARTS

// DPX: extrema of two or three values or of a sum, which wraps around. `extremum` is min or max, and `prefers` the
// comparison for which the first of two values is the extremum.
#define CUEMU_DPX(extremum, prefers)                                                               \
  inline int __vi##extremum##_s32_relu(int x, int y) { return max(extremum(x, y), 0); }            \
  inline int __vi##extremum##3_s32(int x, int y, int z) { return extremum(extremum(x, y), z); }    \
  inline int __vi##extremum##3_s32_relu(int x, int y, int z) {                                     \
    return max(extremum(extremum(x, y), z), 0);                                                    \
  }                                                                                                \
  inline unsigned __vi##extremum##3_u32(unsigned x, unsigned y, unsigned z) {                      \
    return extremum(extremum(x, y), z);                                                            \
  }                                                                                                \
  inline int __viadd##extremum##_s32(int x, int y, int z) {                                        \
    return extremum(static_cast<int>(static_cast<unsigned>(x) + static_cast<unsigned>(y)), z);     \
  }                                                                                                \
  inline int __viadd##extremum##_s32_relu(int x, int y, int z) {                                   \
    return max(__viadd##extremum##_s32(x, y, z), 0);                                               \
  }                                                                                                \
  inline unsigned __viadd##extremum##_u32(unsigned x, unsigned y, unsigned z) {                    \
    return extremum(x + y, z);                                                                     \
  }                                                                                                \
  inline unsigned __vi##extremum##_s16x2_relu(unsigned x, unsigned y) {                            \
    return __vmaxs2(__v##extremum##s2(x, y), 0);                                                   \
  }                                                                                                \
  inline unsigned __vi##extremum##3_s16x2(unsigned x, unsigned y, unsigned z) {                    \
    return __v##extremum##s2(__v##extremum##s2(x, y), z);                                          \
  }                                                                                                \
  inline unsigned __vi##extremum##3_s16x2_relu(unsigned x, unsigned y, unsigned z) {               \
    return __vmaxs2(__vi##extremum##3_s16x2(x, y, z), 0);                                          \
  }                                                                                                \
  inline unsigned __vi##extremum##3_u16x2(unsigned x, unsigned y, unsigned z) {                    \
    return __v##extremum##u2(__v##extremum##u2(x, y), z);                                          \
  }                                                                                                \
  inline unsigned __viadd##extremum##_s16x2(unsigned x, unsigned y, unsigned z) {                  \
    return __v##extremum##s2(__vadd2(x, y), z);                                                    \
  }                                                                                                \
  inline unsigned __viadd##extremum##_s16x2_relu(unsigned x, unsigned y, unsigned z) {             \
    return __vmaxs2(__viadd##extremum##_s16x2(x, y, z), 0);                                        \
  }                                                                                                \
  inline unsigned __viadd##extremum##_u16x2(unsigned x, unsigned y, unsigned z) {                  \
    return __v##extremum##u2(__vadd2(x, y), z);                                                    \
  }                                                                                                \
  CUEMU_INLINE int __vib##extremum##_s32(int x, int y, bool* is_first) {                           \
    *is_first = x prefers y;                                                                       \
    return extremum(x, y);                                                                         \
  }                                                                                                \
  CUEMU_INLINE unsigned __vib##extremum##_u32(unsigned x, unsigned y, bool* is_first) {            \
    *is_first = x prefers y;                                                                       \
    return extremum(x, y);                                                                         \
  }                                                                                                \
  CUEMU_INLINE unsigned __vib##extremum##_s16x2(unsigned x, unsigned y, bool* high, bool* low) {   \
    *high = static_cast<short>(x >> 16) prefers static_cast<short>(y >> 16);                       \
    *low = static_cast<short>(x) prefers static_cast<short>(y);                                    \
    return __v##extremum##s2(x, y);                                                                \
  }                                                                                                \
  CUEMU_INLINE unsigned __vib##extremum##_u16x2(unsigned x, unsigned y, bool* high, bool* low) {   \
    *high = (x >> 16) prefers (y >> 16);                                                           \
    *low = (x & 0xffffu) prefers (y & 0xffffu);                                                    \
    return __v##extremum##u2(x, y);                                                                \
  }
CUEMU_DPX(max, >=)
CUEMU_DPX(min, <=)
#undef CUEMU_DPX
