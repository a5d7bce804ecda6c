// How Thrust's algorithms are called. With a policy, or on pointers of the device, each runs as a kernel of one thread;
// otherwise the host runs it, as Thrust does with plain pointers.
#pragma once

#include <algorithm>

#include "iterators.h"

namespace thrust {

namespace detail {

namespace whole = ::cuemu::whole;

// A result that is an argument, by its number among those without the policy, and some places on.
template <int number>
struct At {
  std::ptrdiff_t places;
};

template <typename Function>
void run(Where where, const char* name, Function function) {
  if (where == Where::device) whole::run(name, function);
  else function();
}

// Runs a function that returns a value, which a kernel leaves in the device's memory.
template <typename Function>
auto result_of(Where where, const char* name, Function function) {
  using Result = decltype(function());
  if (where == Where::host) return function();
  Result* place = nullptr;
  Result result{};
  cudaMalloc(&place, sizeof result);
  whole::run(name, [=]() mutable { *place = function(); });
  cudaMemcpy(static_cast<void*>(&result), place, sizeof result, cudaMemcpyDeviceToHost);
  cudaFree(place);
  return result;
}

// Memory for a while: of the device, or of the host.
template <typename T>
class Scratch {
 public:
  Scratch(Where where, std::ptrdiff_t count) : where_(where) {
    if (where == Where::device) cudaMalloc(&data_, count * sizeof(T) + 1);
    else data_ = static_cast<T*>(::cuemu::noted_allocation(::operator new(count * sizeof(T) + 1), count * sizeof(T) + 1));
  }
  ~Scratch() {
    if (where_ == Where::device) {
      cudaFree(data_);
      return;
    }
    ::cuemu::note_heap_free(data_);
    ::operator delete(data_);
  }
  Scratch(const Scratch&) = delete;
  T* get() const { return data_; }

 private:
  Where where_;
  T* data_ = nullptr;
};

// An iterator's value, where the iterator gives something that stands for it.
template <typename Iterator>
ValueOf<Iterator> value(const Iterator& at, std::ptrdiff_t n) { return static_cast<ValueOf<Iterator>>(at[n]); }

template <typename Result, typename Arguments>
auto resolved(const Result& result, const Arguments&) { return result; }
template <int number, typename Arguments>
auto resolved(const At<number>& result, const Arguments& all) { return get<number>(all) + result.places; }
template <int first, int second, typename Arguments>
auto resolved(const pair<At<first>, At<second>>& result, const Arguments& all) {
  return std::make_pair(resolved(result.first, all), resolved(result.second, all));
}

template <typename Call, typename... Arguments>
auto call(Where where, Call algorithm, const Arguments&... all) {
  if (::cuemu::in_kernel()) where = Where::host;  // the thread that calls it
  if constexpr (std::is_void_v<decltype(algorithm(where, raw(all)...))>) algorithm(where, raw(all)...);
  else return resolved(algorithm(where, raw(all)...), tuple<Arguments...>(all...));
}

}  // namespace detail

#define CUEMU_ALGORITHM(Group, name)                                                                                 \
  template <typename First, typename... More>                                                                        \
  auto name(const First& first, const More&... more) {                                                               \
    const auto algorithm = [](detail::Where where, auto... all) { return detail::Group::name(where, all...); };      \
    if constexpr (detail::kIsPolicy<First>) return detail::call(First::where, algorithm, more...);                   \
    else {                                                                                                           \
      constexpr bool is_on_device = detail::kIsOnDevice<First> || (detail::kIsOnDevice<More> || ...);                \
      return detail::call(is_on_device ? detail::Where::device : detail::Where::host, algorithm, first, more...);    \
    }                                                                                                                \
  }

}  // namespace thrust
