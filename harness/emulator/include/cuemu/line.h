// The line of a call in the author's source.
#pragma once

// Always inlined, so that the checking mode can find the kernel's line.
#define CUEMU_INLINE inline __attribute__((always_inline))

namespace cuemu {

// A default argument of this type takes the place of an int, which would make overloads ambiguous.
struct Line {
  constexpr explicit Line(int number) : number(number) {}
  int number;
};

}  // namespace cuemu

#define CUEMU_LINE ::cuemu::Line line = ::cuemu::Line(__builtin_LINE())
