// Stands in for CUB's iterator of this name, which CUDA 12 has.
#pragma once

#include "../../thrust/detail/iterators.h"

namespace cub {

template <typename T, typename Function, typename Iterator, typename = ::std::ptrdiff_t>
using TransformInputIterator = ::thrust::transform_iterator<Function, Iterator, T, T>;

}  // namespace cub
