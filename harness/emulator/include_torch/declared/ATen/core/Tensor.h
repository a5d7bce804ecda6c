// Stands in for torch's header where a unit only declares and binds functions: torch's own takes g++
// four times as long as all else in such a unit. This class has the name and the layout of torch's;
// the runtime (torch_binding.cpp) makes, copies and drops its tensors.
#pragma once

#include <optional>
#include <utility>

namespace cuemu::tensor {

void make(void* tensor) noexcept;  // an undefined one
void copy(void* tensor, const void* from) noexcept;
void drop(void* tensor) noexcept;

}  // namespace cuemu::tensor

namespace at {

class Tensor {
 public:
  Tensor() noexcept { cuemu::tensor::make(this); }
  Tensor(const Tensor& other) noexcept { cuemu::tensor::copy(this, &other); }
  Tensor(Tensor&& other) noexcept : Tensor() { std::swap(held_, other.held_); }
  Tensor& operator=(Tensor other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~Tensor() { cuemu::tensor::drop(this); }

 private:
  void* held_;
};

using std::optional;

}  // namespace at
