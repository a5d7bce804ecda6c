// Atomic operations. They are real ones, since blocks run on several OS threads.
#pragma once

#include <cstring>

#include "line.h"
#include "runtime.h"

namespace cuemu {

template <typename Value> struct WordOf;
template <std::size_t> struct WordOfSize;
template <> struct WordOfSize<1> { using type = unsigned char; };
template <> struct WordOfSize<2> { using type = unsigned short; };
template <> struct WordOfSize<4> { using type = unsigned int; };
template <> struct WordOfSize<8> { using type = unsigned long long; };

// The memory orders tell the checking mode the scope of an operation: those of the block alone acquire and release. Fences
// are calls of their own.
template <bool is_of_block>
struct Scope {
  static constexpr int kUpdate = is_of_block ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
  static constexpr int kLoad = is_of_block ? __ATOMIC_ACQUIRE : __ATOMIC_SEQ_CST;
  static constexpr int kStore = is_of_block ? __ATOMIC_RELEASE : __ATOMIC_SEQ_CST;
};

// Says of what kind the thread's next atomic operation is if nobody uses its result: 1 for sums, 2 and 3 for minima and
// maxima, 4 to 6 for and, or, exclusive or. Those of one kind commute.
#ifdef CUEMU_CHECKED
void discards(unsigned kind);
#else
CUEMU_INLINE void discards(unsigned) {}
#endif

// Replaces *address by next(*address) and returns the old value.
template <bool is_of_block = false, typename Value, typename Next>
CUEMU_INLINE Value atomic_update(Value* address, Next next) {
  using Word __attribute__((may_alias)) = typename WordOfSize<sizeof(Value)>::type;
  Word* const word = reinterpret_cast<Word*>(address);
  typename WordOfSize<sizeof(Value)>::type seen = __atomic_load_n(word, Scope<is_of_block>::kUpdate);
  for (;;) {
    Value before;
    __builtin_memcpy(static_cast<void*>(&before), &seen, sizeof before);
    const Value after = next(before);
    typename WordOfSize<sizeof(Value)>::type wanted;
    __builtin_memcpy(&wanted, &after, sizeof wanted);
    constexpr int order = Scope<is_of_block>::kUpdate;
    if (__atomic_compare_exchange_n(word, &seen, wanted, true, order, order)) {
      if (wanted == seen) changed_nothing();
      return before;
    }
  }
}

template <bool is_of_block, typename Value>
CUEMU_INLINE Value compare_and_swap(Value* address, Value expected, Value desired) {
  const Value wanted = expected;
  constexpr int order = Scope<is_of_block>::kLoad;
  __atomic_compare_exchange_n(address, &expected, desired, false, order, order);
  if (expected != wanted) tried_in_vain();  // the holder of the lock may be a thread of this block
  return expected;
}

// The checking mode reports a reference to a misaligned variable. An access in several parts has one to the whole.
template <typename Value>
CUEMU_INLINE void promise_alignment(const Value&) {}

template <typename Value>
CUEMU_INLINE Value seen_before(Value before, bool changed) {
  if (!changed) changed_nothing();
  return before;
}

}  // namespace cuemu

// The body knows whether the function is of the block's scope.
#define CUEMU_SCOPED(name, result, parameters, ...)                                               \
  CUEMU_INLINE result name parameters { constexpr bool is_of_block = false; __VA_ARGS__; }        \
  CUEMU_INLINE result name##_block parameters { constexpr bool is_of_block = true; __VA_ARGS__; } \
  CUEMU_INLINE result name##_system parameters { constexpr bool is_of_block = false; __VA_ARGS__; }
#define CUEMU_BUILTIN(name, type, builtin, changes)                                            \
  CUEMU_SCOPED(name, type, (type * address, type value),                                       \
               const type old = builtin(address, value, ::cuemu::Scope<is_of_block>::kUpdate); \
               return ::cuemu::seen_before(old, changes))
#define CUEMU_UPDATED(name, type, next)               \
  CUEMU_SCOPED(name, type, (type * address, type value), \
               return ::cuemu::atomic_update<is_of_block>(address, [value](type old) -> type { return next; }))

CUEMU_BUILTIN(atomicAdd, int, __atomic_fetch_add, value != 0)
CUEMU_BUILTIN(atomicAdd, unsigned int, __atomic_fetch_add, value != 0)
CUEMU_BUILTIN(atomicAdd, unsigned long long, __atomic_fetch_add, value != 0)
CUEMU_UPDATED(atomicAdd, float, old + value)
CUEMU_UPDATED(atomicAdd, double, old + value)
CUEMU_BUILTIN(atomicSub, int, __atomic_fetch_sub, value != 0)
CUEMU_BUILTIN(atomicSub, unsigned int, __atomic_fetch_sub, value != 0)
CUEMU_BUILTIN(atomicExch, int, __atomic_exchange_n, value != old)
CUEMU_BUILTIN(atomicExch, unsigned int, __atomic_exchange_n, value != old)
CUEMU_BUILTIN(atomicExch, unsigned long long, __atomic_exchange_n, value != old)
CUEMU_UPDATED(atomicExch, float, (static_cast<void>(old), value))
CUEMU_UPDATED(atomicMin, int, value < old ? value : old)
CUEMU_UPDATED(atomicMin, unsigned int, value < old ? value : old)
CUEMU_UPDATED(atomicMin, long long, value < old ? value : old)
CUEMU_UPDATED(atomicMin, unsigned long long, value < old ? value : old)
CUEMU_UPDATED(atomicMax, int, value > old ? value : old)
CUEMU_UPDATED(atomicMax, unsigned int, value > old ? value : old)
CUEMU_UPDATED(atomicMax, long long, value > old ? value : old)
CUEMU_UPDATED(atomicMax, unsigned long long, value > old ? value : old)
CUEMU_UPDATED(atomicInc, unsigned int, old >= value ? 0 : old + 1)
CUEMU_UPDATED(atomicDec, unsigned int, old == 0 || old > value ? value : old - 1)
CUEMU_BUILTIN(atomicAnd, int, __atomic_fetch_and, (old & value) != old)
CUEMU_BUILTIN(atomicAnd, long long, __atomic_fetch_and, (old & value) != old)
CUEMU_BUILTIN(atomicAnd, unsigned int, __atomic_fetch_and, (old & value) != old)
CUEMU_BUILTIN(atomicAnd, unsigned long long, __atomic_fetch_and, (old & value) != old)
CUEMU_BUILTIN(atomicOr, int, __atomic_fetch_or, (old | value) != old)
CUEMU_BUILTIN(atomicOr, long long, __atomic_fetch_or, (old | value) != old)
CUEMU_BUILTIN(atomicOr, unsigned int, __atomic_fetch_or, (old | value) != old)
CUEMU_BUILTIN(atomicOr, unsigned long long, __atomic_fetch_or, (old | value) != old)
CUEMU_BUILTIN(atomicXor, int, __atomic_fetch_xor, value != 0)
CUEMU_BUILTIN(atomicXor, long long, __atomic_fetch_xor, value != 0)
CUEMU_BUILTIN(atomicXor, unsigned int, __atomic_fetch_xor, value != 0)
CUEMU_BUILTIN(atomicXor, unsigned long long, __atomic_fetch_xor, value != 0)

#define CUEMU_CAS(type)                                                             \
  CUEMU_SCOPED(atomicCAS, type, (type * address, type expected, type desired),      \
               return ::cuemu::compare_and_swap<is_of_block>(address, expected, desired))
CUEMU_CAS(int)
CUEMU_CAS(unsigned int)
CUEMU_CAS(unsigned long long)
CUEMU_CAS(unsigned short)

#define CUEMU_ADD_EACH(suffix)                                                                           \
  CUEMU_INLINE float2 atomicAdd##suffix(float2* address, float2 value) {                                 \
    ::cuemu::promise_alignment(*address);                                                                \
    return {atomicAdd##suffix(&address->x, value.x), atomicAdd##suffix(&address->y, value.y)};           \
  }                                                                                                      \
  CUEMU_INLINE float4 atomicAdd##suffix(float4* address, float4 value) {                                 \
    ::cuemu::promise_alignment(*address);                                                                \
    return {atomicAdd##suffix(&address->x, value.x), atomicAdd##suffix(&address->y, value.y),            \
            atomicAdd##suffix(&address->z, value.z), atomicAdd##suffix(&address->w, value.w)};           \
  }
CUEMU_ADD_EACH()
CUEMU_ADD_EACH(_block)
CUEMU_ADD_EACH(_system)

#undef CUEMU_ADD_EACH
#undef CUEMU_CAS
#undef CUEMU_BUILTIN
