// Stands in for torch's header in a unit that only declares and binds functions.
#pragma once

#include <cuemu/binding.h>

namespace torch {

using namespace at;

}  // namespace torch
