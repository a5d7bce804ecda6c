// Stands in for CUB's iterator of this name, which CUDA 12 has.
#pragma once

#include "../../thrust/detail/iterators.h"

namespace cub {

template <typename T, typename = ::std::ptrdiff_t>
using CountingInputIterator = ::thrust::counting_iterator<T>;

}  // namespace cub
