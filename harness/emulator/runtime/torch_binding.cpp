// What cuemu/binding.h leaves to pybind11: conversions, the call from Python, torch's errors. And the
// tensors of units that know torch's class by name alone (include_torch/declared).
#define AT_PER_OPERATOR_HEADERS
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <cuemu/binding.h>

#include <memory>

namespace cuemu::tensor {

static_assert(sizeof(at::Tensor) == sizeof(void*));

void make(void* tensor) noexcept { new (tensor) at::Tensor; }
void copy(void* tensor, const void* from) noexcept { new (tensor) at::Tensor(*static_cast<const at::Tensor*>(from)); }
void drop(void* tensor) noexcept { static_cast<at::Tensor*>(tensor)->~Tensor(); }

}  // namespace cuemu::tensor

namespace cuemu::python {

#define CUEMU_DEFINE_VALUE(...)                                                               \
  bool Value<__VA_ARGS__>::load(PyObject* given, bool may_convert, __VA_ARGS__& value) {      \
    py::detail::make_caster<__VA_ARGS__> caster;                                              \
    if (!caster.load(given, may_convert)) return false;                                       \
    value = py::detail::cast_op<__VA_ARGS__>(std::move(caster));                              \
    return true;                                                                              \
  }                                                                                           \
  PyObject* Value<__VA_ARGS__>::cast(__VA_ARGS__&& value) {                                   \
    using Caster = py::detail::make_caster<__VA_ARGS__>;                                      \
    return Caster::cast(std::move(value), py::return_value_policy::move, py::handle()).ptr(); \
  }                                                                                           \
  std::string Value<__VA_ARGS__>::name() { return py::detail::make_caster<__VA_ARGS__>::name.text; }
CUEMU_VALUES(CUEMU_DEFINE_VALUE)

PyObject* none() { return py::none().release().ptr(); }

PyObject* tuple(PyObject* const* parts, std::size_t count) {
  bool is_whole = true;
  py::tuple made(count);
  for (std::size_t at = 0; at < count; ++at) {
    is_whole = is_whole && parts[at] != nullptr;
    PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(at), parts[at]);
  }
  return is_whole ? made.release().ptr() : nullptr;
}

std::string joined(const std::string* names, std::size_t count, const char* open, const char* close) {
  std::string text = open;
  for (std::size_t at = 0; at < count; ++at) text += (at == 0 ? "" : ", ") + names[at];
  return text + close;
}

namespace {

PyObject* called_with_torchs_errors(const Function& function, PyObject* const* arguments, const bool* may_convert) {
  HANDLE_TH_ERRORS
  return function.call(function.function, arguments, may_convert);
  END_HANDLE_TH_ERRORS_PYBIND
}

class BoundFunction : public py::cpp_function {
 public:
  BoundFunction(py::handle module, Function&& function) {
    auto record = make_function_record();
    record->name = const_cast<char*>(function.name);
    record->doc = const_cast<char*>(function.documentation);
    record->scope = module;
    const py::object earlier = py::getattr(module, function.name, py::none());
    record->sibling = earlier;
    record->nargs = static_cast<std::uint16_t>(function.arity);
    record->nargs_pos = record->nargs;
    record->impl = &answer;
    auto* const own = new Function(std::move(function));
    record->data[0] = own;
    record->free_data = [](py::detail::function_record* ended) { delete static_cast<Function*>(ended->data[0]); };
    static const std::type_info* const none_by_number[] = {nullptr};
    initialize_generic(std::move(record), own->signature.c_str(), none_by_number, own->arity);
  }

 private:
  static py::handle answer(py::detail::function_call& call) {
    const auto& function = *static_cast<const Function*>(call.func.data[0]);
    const auto arguments = std::make_unique<PyObject*[]>(function.arity);
    const auto may_convert = std::make_unique<bool[]>(function.arity);
    for (std::size_t at = 0; at < function.arity; ++at) {
      arguments[at] = call.args[at].ptr();
      may_convert[at] = call.args_convert[at];
    }
    return function.has_torchs_errors ? called_with_torchs_errors(function, arguments.get(), may_convert.get())
                                      : function.call(function.function, arguments.get(), may_convert.get());
  }
};

}  // namespace

void Module::add(Function&& function) {
  const char* const name = function.name;
  py::reinterpret_borrow<py::module_>(module_).add_object(name, BoundFunction(module_, std::move(function)), true);
}

PyObject* module(const char* name, void (*fill)(Module&)) {
  try {
    // Python keeps the definition for as long as it lives.
    auto made = py::module_::create_extension_module(name, nullptr, new py::module_::module_def);
    Module filled(made.ptr());
    fill(filled);
    return made.release().ptr();
  } catch (py::error_already_set& error) {
    py::raise_from(error, PyExc_ImportError, "initialization failed");
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}

}  // namespace cuemu::python
