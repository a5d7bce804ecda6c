// Counts torch's operators that compute something, whoever calls them and whatever dispatch keys
// are excluded; and adds the operator that torch has for GPUs alone.
#ifndef NDEBUG
#define NDEBUG  // as in torch's own build; otherwise its headers give RecordFunction another member
#endif
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

extern "C" {
void cuemu_lend_tensor(const void* data, std::size_t bytes);
void cuemu_give_to_host(const void* data);
}

namespace {

struct Use {
  std::uint64_t calls = 0;
  std::uint64_t elements = 0;  // of the largest tensor in each call that contains no other computing call
};

std::mutex counting;
std::map<std::string, Use>& uses() {
  static auto* const all = new std::map<std::string, Use>;  // torch's threads may outlive static destructors
  return *all;
}
std::set<std::string>& idle() {
  static auto* const names = new std::set<std::string>;
  return *names;
}

std::uint64_t elements_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided ? static_cast<std::uint64_t>(tensor.numel()) : 0;
}

// Tells the checker of a tensor in memory that torch did not allocate, such as NumPy's. On a GPU an
// operator such as `to` copies it to the device; here it stays where it is.
void lend(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.is_cpu()) return;
  cuemu_lend_tensor(tensor.storage().data(), tensor.storage().nbytes());
}

// Tells the checker of a tensor that `to` gives to the host. On a GPU that makes a copy; here it may be the same memory.
void give(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  if (std::strcmp(function.name(), "aten::to") != 0 || inputs.empty()) return;
  const auto names_place = [](const c10::IValue& value) { return value.isDevice() || value.isTensor(); };
  if (std::none_of(inputs.begin() + 1, inputs.end(), names_place)) return;
  const at::Tensor& tensor = inputs[0].toTensor();
  if (tensor.has_storage() && tensor.is_cpu()) cuemu_give_to_host(tensor.const_data_ptr());
}

// A running call on this thread. Of nested operators, the innermost that computes gets the
// elements.
struct Open final : at::ObserverContext {
  Open* outer = nullptr;
  bool has_counted = false;
  std::uint64_t elements = 1;
};

thread_local Open* innermost = nullptr;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto open = std::make_unique<Open>();
  for (const c10::IValue& value : function.inputs()) {
    if (value.isTensor()) {
      open->elements = std::max(open->elements, elements_of(value.toTensor()));
      lend(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        open->elements = std::max(open->elements, elements_of(tensor));
        lend(tensor);
      }
    }
  }
  give(function);
  open->outer = innermost;
  innermost = open.get();
  return open;
}

bool computes(const std::string& name) {
  for (const char* const library : {"aten::", "mkl::", "mkldnn::", "onednn::", "quantized::"}) {
    if (name.rfind(library, 0) == 0) return idle().count(name.substr(name.find("::") + 2)) == 0;
  }
  return false;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* const open = static_cast<Open*>(context);
  if (open == nullptr) return;
  innermost = open->outer;
  const std::string name = function.name();
  bool counts = open->has_counted;
  {
    const std::lock_guard<std::mutex> lock(counting);
    if (computes(name)) {
      Use& use = uses()[name];
      ++use.calls;
      if (!counts) use.elements += open->elements;
      counts = true;
    }
  }
  if (counts && open->outer != nullptr) open->outer->has_counted = true;
}

std::string json;  // the caller of the last take still reads it

}  // namespace

extern "C" {

// Starts counting, for all threads. Repeated calls change nothing. `names` lists the operators,
// without their namespace, that only create, move or describe memory, each followed by a newline.
void cuemu_watch_operators(const char* names) {
  const std::lock_guard<std::mutex> lock(counting);
  if (!idle().empty()) return;
  for (const char* start = names; *start != '\0';) {
    const char* stop = std::find(start, start + std::char_traits<char>::length(start), '\n');
    idle().emplace(start, stop);
    start = *stop == '\0' ? stop : stop + 1;
  }
  at::addGlobalCallback(
      at::RecordFunctionCallback(&begin, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

// Returns the operators since the last take, as JSON: name to [calls, elements].
const char* cuemu_take_operators(void) {
  const std::lock_guard<std::mutex> lock(counting);
  json = "{";
  for (const auto& [name, use] : uses()) {
    if (json.size() > 1) json += ", ";
    json += '"' + name + "\": [" + std::to_string(use.calls) + ", " + std::to_string(use.elements) + ']';
  }
  json += '}';
  uses().clear();
  return json.c_str();
}

}  // extern "C"

// Memory is used in the order of the host's calls, whichever stream they name.
TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("record_stream", [](at::Tensor&, c10::Stream) {}); }
