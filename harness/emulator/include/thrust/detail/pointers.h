// Pointers into the device's memory, and where an algorithm runs.
#pragma once

#include <compare>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "../../cuemu/whole_device.h"
#include "../functional.h"

namespace thrust {

// An element of the device's memory as the host sees it. Reading and writing it copies.
template <typename T>
class device_reference {
 public:
  explicit device_reference(T* place) : place_(place) {}
  device_reference(const device_reference&) = default;
  operator std::remove_const_t<T>() const {
    std::remove_const_t<T> value;
    cudaMemcpy(&value, place_, sizeof value, cudaMemcpyDeviceToHost);
    return value;
  }
  const device_reference& operator=(const std::remove_const_t<T>& value) const {
    cudaMemcpy(place_, &value, sizeof value, cudaMemcpyHostToDevice);
    return *this;
  }
  const device_reference& operator=(const device_reference& other) const { return *this = std::remove_const_t<T>(other); }
  const device_reference& operator+=(const T& value) const { return *this = std::remove_const_t<T>(*this) + value; }

 private:
  T* place_;
};

template <typename T>
class device_ptr {
 public:
  using value_type = std::remove_cv_t<T>;
  using reference = device_reference<T>;
  using pointer = device_ptr;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::random_access_iterator_tag;
  device_ptr() = default;
  explicit device_ptr(T* raw) : raw_(raw) {}
  device_ptr(std::nullptr_t) {}
  template <typename U>
    requires std::is_convertible_v<U*, T*>
  device_ptr(const device_ptr<U>& other) : raw_(other.get()) {}
  T* get() const { return raw_; }
  reference operator*() const { return reference(raw_); }
  reference operator[](difference_type i) const { return reference(raw_ + i); }
  device_ptr& operator+=(difference_type n) { raw_ += n; return *this; }
  device_ptr& operator-=(difference_type n) { raw_ -= n; return *this; }
  device_ptr& operator++() { return *this += 1; }
  device_ptr& operator--() { return *this -= 1; }
  device_ptr operator++(int) { device_ptr old = *this; ++*this; return old; }
  device_ptr operator--(int) { device_ptr old = *this; --*this; return old; }
  friend device_ptr operator+(device_ptr at, difference_type n) { return at += n; }
  friend device_ptr operator+(difference_type n, device_ptr at) { return at += n; }
  friend device_ptr operator-(device_ptr at, difference_type n) { return at -= n; }
  friend difference_type operator-(const device_ptr& a, const device_ptr& b) { return a.raw_ - b.raw_; }
  auto operator<=>(const device_ptr&) const = default;
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  T* raw_ = nullptr;
};

template <typename T>
device_ptr<T> device_pointer_cast(T* raw) { return device_ptr<T>(raw); }
template <typename T>
device_ptr<T> device_pointer_cast(const device_ptr<T>& at) { return at; }
template <typename T>
T* raw_pointer_cast(T* raw) { return raw; }
template <typename T>
T* raw_pointer_cast(const device_ptr<T>& at) { return at.get(); }
template <typename T>
T& raw_reference_cast(T& value) { return value; }

template <typename T>
device_ptr<T> device_malloc(std::size_t count) {
  T* raw = nullptr;
  cudaMalloc(&raw, count * sizeof(T));
  return device_ptr<T>(raw);
}
template <typename T>
void device_free(device_ptr<T> at) { cudaFree(const_cast<std::remove_const_t<T>*>(at.get())); }

// Policies, and iterators of whom it is known where they point.
namespace detail {

enum class Where { host, device };

struct Policy {};
struct HostPolicy : Policy {
  static constexpr Where where = Where::host;
};
struct DevicePolicy : Policy {
  static constexpr Where where = Where::device;
  DevicePolicy on(cudaStream_t) const { return {}; }
  template <typename Allocator>
  DevicePolicy operator()(const Allocator&) const { return {}; }
};
template <typename T>
constexpr bool kIsPolicy = std::is_base_of_v<Policy, std::remove_cvref_t<T>>;

// What kernels use in place of an argument: pointers of the device as they are.
template <typename T>
T raw(const T& other) { return other; }
template <typename T>
T* raw(const device_ptr<T>& at) { return at.get(); }

template <typename T>
constexpr bool kIsOnDevice = false;
template <typename T>
constexpr bool kIsOnDevice<device_ptr<T>> = true;

}  // namespace detail

// Memory of the device, for a policy of the device.
template <typename T, typename Policy>
  requires(detail::kIsPolicy<Policy> && Policy::where == detail::Where::device)
device_ptr<T> malloc(const Policy&, std::size_t count) { return device_malloc<T>(count); }
template <typename Policy, typename T>
  requires detail::kIsPolicy<Policy>
void free(const Policy&, device_ptr<T> at) { device_free(at); }

inline constexpr detail::HostPolicy host, seq;
inline constexpr detail::DevicePolicy device;
namespace cuda {
inline constexpr detail::DevicePolicy par, par_nosync;
}
namespace system::cuda {
using thrust::cuda::par;
}

}  // namespace thrust
