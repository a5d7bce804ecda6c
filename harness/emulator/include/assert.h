// The standard header with an assert() that stops a kernel instead of the process. As with the
// original, a source may include it repeatedly, with or without NDEBUG.
#include_next <assert.h>

#ifndef NDEBUG
#include "cuemu/runtime.h"
#undef assert
#define assert(expression)                                                                         \
  (static_cast<bool>(expression)                                                                   \
       ? static_cast<void>(0)                                                                      \
       : (::cuemu::in_kernel() ? ::cuemu::assertion_failed(#expression, __FILE__, __LINE__, __func__) \
                               : __assert_fail(#expression, __FILE__, __LINE__, __func__)))
#endif
