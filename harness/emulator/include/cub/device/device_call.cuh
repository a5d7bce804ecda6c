// What the stand-ins for CUB's algorithms of the whole device share.
#pragma once

#include <limits>

#include "../../cuemu/whole_device.h"
#include "../util_type.cuh"

namespace cub {

namespace detail {

namespace whole = ::cuemu::whole;

using whole::ValueOf;

// The type from which a sum starts: that of the place for it.
template <typename In, typename Out>
using SumFrom = ::std::conditional_t<::std::is_void_v<ValueOf<Out>>, ValueOf<In>, ValueOf<Out>>;

// Runs an algorithm that needs some bytes of storage. A call without storage asks how many.
template <typename Function>
cudaError_t call(const char* name, void* storage, ::std::size_t& bytes, Function function, ::std::size_t needed = 1) {
  if (storage == nullptr) {
    bytes = needed;
    return cudaSuccess;
  }
  return bytes < needed ? cudaErrorInvalidValue : whole::run(name, function);
}

// The largest finite number of a type, from which a minimum starts.
template <typename T>
T largest() {
  if constexpr (::std::is_arithmetic_v<T>) return ::std::numeric_limits<T>::max();
  else return T(::std::is_same_v<T, __half> ? 65504.0f : 3.3895314e38f);
}
template <typename T>
T lowest() {
  if constexpr (::std::is_arithmetic_v<T>) return ::std::numeric_limits<T>::lowest();
  else return T(::std::is_same_v<T, __half> ? -65504.0f : -3.3895314e38f);
}

}  // namespace detail

// Two arrays for keys or values, of which one is in use.
template <typename T>
struct DoubleBuffer {
  T* d_buffers[2];
  int selector = 0;
  DoubleBuffer() : d_buffers{nullptr, nullptr} {}
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[1 - selector]; }
};

}  // namespace cub
