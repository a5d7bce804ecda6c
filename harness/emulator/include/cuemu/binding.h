// Binds C++ functions for Python as pybind11 does, which it takes the place of in a build that asks
// no more of it: the runtime holds pybind11 and its conversions, compiled once. A type, or a use of
// the module, that is not here does not compile; the build is then repeated with torch's own headers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

typedef struct _object PyObject;

namespace cuemu::python {

// What a function's `call` returns where the arguments are not its own, as in pybind11.
inline PyObject* const kNotMine = reinterpret_cast<PyObject*>(1);

// A type's conversion from Python and to it, and its name in a signature.
template <typename T>
struct Value;

#define CUEMU_SCALARS(DO)                                                                             \
  DO(bool) DO(float) DO(double) DO(signed char) DO(unsigned char) DO(short) DO(unsigned short) DO(int) \
  DO(unsigned int) DO(long) DO(unsigned long) DO(long long) DO(unsigned long long)
#define CUEMU_OBJECTS(DO) DO(at::Tensor) DO(at::ScalarType) DO(c10::Scalar) DO(std::string)
#define CUEMU_CONTAINERS(DO)                                                                           \
  DO(std::optional<at::Tensor>) DO(std::optional<at::ScalarType>) DO(std::optional<bool>)              \
  DO(std::optional<int>) DO(std::optional<int64_t>) DO(std::optional<float>) DO(std::optional<double>) \
  DO(std::vector<at::Tensor>) DO(std::vector<int>) DO(std::vector<int64_t>) DO(std::vector<float>)     \
  DO(std::vector<double>)
#define CUEMU_VALUES(DO) CUEMU_SCALARS(DO) CUEMU_OBJECTS(DO) CUEMU_CONTAINERS(DO)

#define CUEMU_DECLARE_VALUE(...)                                   \
  template <>                                                      \
  struct Value<__VA_ARGS__> {                                      \
    static bool load(PyObject*, bool may_convert, __VA_ARGS__&);   \
    static PyObject* cast(__VA_ARGS__&&);                          \
    static std::string name();                                     \
  };
CUEMU_VALUES(CUEMU_DECLARE_VALUE)
#undef CUEMU_DECLARE_VALUE

PyObject* none();
// A tuple that takes over its parts; NULL where one of them is.
PyObject* tuple(PyObject* const* parts, std::size_t count);
std::string joined(const std::string* names, std::size_t count, const char* open, const char* close);

template <typename... Parts>
struct Value<std::tuple<Parts...>> {
  static PyObject* cast(std::tuple<Parts...>&& all) {
    return std::apply(
        [](Parts&... part) {
          PyObject* const made[] = {Value<Parts>::cast(std::move(part))...};
          return tuple(made, sizeof...(Parts));
        },
        all);
  }
  static std::string name() {
    const std::string names[] = {Value<Parts>::name()...};
    return joined(names, sizeof...(Parts), "tuple[", "]");
  }
};

struct Function {
  const char* name;
  const char* documentation;
  std::string signature;  // in pybind11's notation
  std::size_t arity;
  bool has_torchs_errors;  // bound by torch::wrap_pybind_function
  void (*function)();
  PyObject* (*call)(void (*function)(), PyObject* const* arguments, const bool* may_convert);
};

template <typename Return, typename... Arguments, std::size_t... at>
PyObject* call(void (*function)(), PyObject* const* arguments, const bool* may_convert, std::index_sequence<at...>) {
  std::tuple<std::decay_t<Arguments>...> own;
  if (!(Value<std::decay_t<Arguments>>::load(arguments[at], may_convert[at], std::get<at>(own)) && ...)) {
    return kNotMine;
  }
  const auto typed = reinterpret_cast<Return (*)(Arguments...)>(function);
  if constexpr (std::is_void_v<Return>) {
    typed(std::forward<Arguments>(std::get<at>(own))...);
    return none();
  } else {
    std::decay_t<Return> result = typed(std::forward<Arguments>(std::get<at>(own))...);
    return Value<std::decay_t<Return>>::cast(std::move(result));
  }
}

template <typename Return, typename... Arguments>
Function described(const char* name, const char* documentation, bool has_torchs_errors, Return (*function)(Arguments...)) {
  const std::string names[] = {"{" + Value<std::decay_t<Arguments>>::name() + "}"..., ""};
  std::string signature = joined(names, sizeof...(Arguments), "(", ") -> ");
  if constexpr (std::is_void_v<Return>) {
    signature += "None";
  } else {
    signature += Value<std::decay_t<Return>>::name();
  }
  const auto erased = [](void (*given)(), PyObject* const* arguments, const bool* may_convert) {
    return call<Return, Arguments...>(given, arguments, may_convert, std::index_sequence_for<Arguments...>());
  };
  return {name,
          documentation,
          std::move(signature),
          sizeof...(Arguments),
          has_torchs_errors,
          reinterpret_cast<void (*)()>(function),
          erased};
}

template <typename Return, typename... Arguments>
struct Wrapped {
  Return (*function)(Arguments...);
};

// The module that PYBIND11_MODULE fills.
class Module {
 public:
  explicit Module(PyObject* module) : module_(module) {}

  template <typename Return, typename... Arguments>
  Module& def(const char* name, Return (*function)(Arguments...), const char* documentation = nullptr) {
    add(described(name, documentation, false, function));
    return *this;
  }

  template <typename Return, typename... Arguments>
  Module& def(const char* name, Wrapped<Return, Arguments...> wrapped, const char* documentation = nullptr) {
    add(described(name, documentation, true, wrapped.function));
    return *this;
  }

 private:
  void add(Function&& function);

  PyObject* module_;
};

PyObject* module(const char* name, void (*fill)(Module&));

}  // namespace cuemu::python

namespace torch {

template <typename Return, typename... Arguments>
cuemu::python::Wrapped<Return, Arguments...> wrap_pybind_function(Return (*function)(Arguments...)) {
  return {function};
}

}  // namespace torch

#define CUEMU_MODULE(name, variable)                                                                       \
  static void cuemu_fill_##name(cuemu::python::Module&);                                                   \
  extern "C" __attribute__((visibility("default"))) PyObject* PyInit_##name() {                            \
    return cuemu::python::module(#name, &cuemu_fill_##name);                                               \
  }                                                                                                        \
  static void cuemu_fill_##name(cuemu::python::Module& variable)
#define PYBIND11_MODULE(name, variable) CUEMU_MODULE(name, variable)
