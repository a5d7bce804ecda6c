// Thrust's vectors, in the device's memory and in the host's.
#pragma once

#include <vector>

#include "algorithms.h"

namespace thrust {

template <typename T>
using host_vector = std::vector<T>;

template <typename T>
class device_vector {
 public:
  using value_type = T;
  using iterator = device_ptr<T>;
  using const_iterator = device_ptr<const T>;
  using reference = device_reference<T>;
  using pointer = device_ptr<T>;
  using size_type = std::size_t;
  device_vector() = default;
  explicit device_vector(size_type count, const T& value = T()) { resize(count, value); }
  template <typename In>
    requires requires(In at) { *at; }
  device_vector(In first, In last) {
    resize(last - first);
    thrust::copy(first, last, begin());
  }
  device_vector(const std::vector<T>& other) : device_vector(other.begin(), other.end()) {}
  device_vector(std::initializer_list<T> values) : device_vector(values.begin(), values.end()) {}
  device_vector(const device_vector& other) : device_vector(other.begin(), other.end()) {}
  device_vector(device_vector&& other) noexcept { swap(other); }
  device_vector& operator=(device_vector other) noexcept { swap(other); return *this; }
  ~device_vector() { cudaFree(data_); }
  operator std::vector<T>() const {
    std::vector<T> found(size_);
    thrust::copy(begin(), end(), found.begin());
    return found;
  }
  iterator begin() { return iterator(data_); }
  iterator end() { return begin() + size_; }
  const_iterator begin() const { return const_iterator(data_); }
  const_iterator end() const { return begin() + size_; }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }
  pointer data() { return begin(); }
  const_iterator data() const { return begin(); }
  size_type size() const { return size_; }
  size_type capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  reference operator[](size_type i) { return begin()[i]; }
  device_reference<const T> operator[](size_type i) const { return begin()[i]; }
  reference front() { return begin()[0]; }
  reference back() { return begin()[size_ - 1]; }
  void reserve(size_type count) {
    if (count <= capacity_) return;
    T* more = nullptr;
    cudaMalloc(&more, count * sizeof(T));
    if (size_ > 0) cudaMemcpy(more, data_, size_ * sizeof(T), cudaMemcpyDeviceToDevice);
    cudaFree(data_);
    data_ = more;
    capacity_ = count;
  }
  void resize(size_type count, const T& value = T()) {
    reserve(count);
    if (count > size_) thrust::fill(begin() + size_, begin() + count, value);
    size_ = count;
  }
  void assign(size_type count, const T& value) {
    clear();
    resize(count, value);
  }
  void push_back(const T& value) {
    if (size_ == capacity_) reserve(2 * size_ + 1);
    begin()[size_++] = value;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  iterator erase(iterator first, iterator last) {
    thrust::copy(last, end(), first);
    size_ -= last - first;
    return first;
  }
  void shrink_to_fit() {}
  void swap(device_vector& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  T* data_ = nullptr;
  size_type size_ = 0, capacity_ = 0;
};

}  // namespace thrust
