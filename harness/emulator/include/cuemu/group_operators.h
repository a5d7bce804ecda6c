// The operators of cooperative groups' reductions and scans.
#pragma once

#include <limits>

#include "../cooperative_groups.h"

namespace cooperative_groups {

#define CUEMU_OPERATOR(name, expression, start)                                       \
  template <typename Value>                                                           \
  struct name {                                                                       \
    Value operator()(Value left, Value right) const { return expression; }            \
    static Value identity() { return start; }                                         \
  };
CUEMU_OPERATOR(plus, static_cast<Value>(left + right), Value())
CUEMU_OPERATOR(less, right < left ? right : left, std::numeric_limits<Value>::max())
CUEMU_OPERATOR(greater, left < right ? right : left, std::numeric_limits<Value>::lowest())
CUEMU_OPERATOR(bit_and, static_cast<Value>(left & right), static_cast<Value>(~Value()))
CUEMU_OPERATOR(bit_or, static_cast<Value>(left | right), Value())
CUEMU_OPERATOR(bit_xor, static_cast<Value>(left ^ right), Value())
#undef CUEMU_OPERATOR

}  // namespace cooperative_groups
