// The part of libcu++ that only repeats the standard library.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

namespace cuda {
namespace std = ::std;
}
