// The targets of the rewriter for launches, __shared__ variables and calls that name a kernel.
#pragma once

#include <new>
#include <tuple>
#include <utility>

#include "host_api.h"
#include "runtime.h"

// Of a launch's attributes the cooperative one and the cluster's sizes have an effect here.
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeClusterSchedulingPolicyPreference = 5,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8,
  cudaLaunchAttributePreferredSharedMemoryCarveout = 14,
};
enum cudaClusterSchedulingPolicy {
  cudaClusterSchedulingPolicyDefault,
  cudaClusterSchedulingPolicySpread,
  cudaClusterSchedulingPolicyLoadBalancing,
};
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  int priority;
  int programmaticStreamSerializationAllowed;
  unsigned sharedMemCarveout;
  cudaClusterSchedulingPolicy clusterSchedulingPolicyPreference;
  struct {
    unsigned x, y, z;
  } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace cuemu {

// Its address tells libraries apart, since each has its own.
inline __attribute__((visibility("hidden"))) const char library_mark = 0;

// A kernel whose parameters are known before its arguments are.
template <typename... Parameters>
struct TypedKernel : Kernel {
  using Kernel::Kernel;
};
template <typename... Parameters>
TypedKernel<Parameters...> kernel_of(int, const char* name, const void* library, void (*function)(Parameters...)) {
  return {name, reinterpret_cast<const void*>(function), library};
}
inline Kernel kernel_of(int, const char* name, const void* library, const void* code) { return {name, code, library}; }

// The kernel that an expression names, without its code if only arguments could choose it from several. Generic, so that
// the compiler looks for them before it decides.
#define CUEMU_KERNEL_OF(captures, name, ...)                                                            \
  captures<typename Tag>(Tag cuemu_tag) {                                                               \
    if constexpr (requires { ::cuemu::kernel_of(cuemu_tag, name, nullptr, __VA_ARGS__); }) {            \
      return ::cuemu::kernel_of(cuemu_tag, name, &::cuemu::library_mark, __VA_ARGS__);                  \
    } else {                                                                                            \
      return ::cuemu::Kernel(name, nullptr, &::cuemu::library_mark);                                    \
    }                                                                                                   \
  }(0)
#define CUEMU_KERNEL(name, ...) CUEMU_KERNEL_OF([&], name, __VA_ARGS__)
// The same outside functions, where a lambda has nothing to capture.
#define CUEMU_GLOBAL_KERNEL(name, ...) CUEMU_KERNEL_OF([], name, __VA_ARGS__)

static inline bool note_cluster(const char* name, dim3 sizes) {
  return note_cluster(Kernel(name, nullptr, &library_mark), sizes);
}

// Runs when the library is loaded.
template <typename Note>
struct AtLoad {
  static inline const bool is_done = Note()();
};

void exceeds_launch_bounds(unsigned threads);  // ends the launch
inline void check_launch_bounds(unsigned threads) {
  if (blockDim.x * blockDim.y * blockDim.z > threads) exceeds_launch_bounds(threads);
}
// C10_LAUNCH_BOUNDS_1 and _2 take no number beyond CUDA's limit.
constexpr unsigned torchs_bound(unsigned threads) { return threads <= 1024 ? threads : 256; }

// The beginning of a kernel with __launch_bounds__. The second macro also notes the bound of the kernel that the
// expression names, so that host code can ask for it.
#define CUEMU_LAUNCH_BOUNDS(threads) ::cuemu::check_launch_bounds(threads);
#define CUEMU_NAMED_LAUNCH_BOUNDS(threads, name, ...)                                                                 \
  CUEMU_LAUNCH_BOUNDS(threads)                                                                                        \
  {                                                                                                                   \
    const auto cuemu_note = [] {                                                                                      \
      return ::cuemu::note_launch_bounds(CUEMU_GLOBAL_KERNEL(name, __VA_ARGS__), threads);                            \
    };                                                                                                                \
    static_cast<void>(&::cuemu::AtLoad<std::remove_cv_t<decltype(cuemu_note)>>::is_done);                              \
  }

template <typename Stream = cudaStream_t>
Config config(dim3 grid, dim3 block, std::size_t shared_bytes = 0, Stream = Stream{}) {
  static_assert(std::is_convertible_v<Stream, cudaStream_t> || std::is_integral_v<Stream>,
                "the fourth launch argument is a cudaStream_t");
  return {grid, block, shared_bytes};
}

// An argument whose parameter is a reference. Kernels get its address, as a GPU does.
template <typename Value>
struct Reference {
  Value* value;
  Reference(Value& referred) : value(&referred) {}
  operator Value&() const { return *value; }
};

// What a launch holds of a parameter.
template <typename Parameter>
struct HeldType {
  using Type = Parameter;
};
template <typename Value>
struct HeldType<Value&> {
  using Type = Reference<Value>;
};
template <typename Parameter>
using Held = typename HeldType<Parameter>::Type;

#ifdef CUEMU_CHECKED
#define CUEMU_OWN_FRAME __attribute__((noinline))
#else
#define CUEMU_OWN_FRAME
#endif

// A launch that awaits its arguments, and runs `call(arguments...)` for every CUDA thread. It converts an argument to the
// type of its parameter once. Without such types, or with fewer arguments, it holds them as they are.
template <typename Call, typename... Parameters>
class ReadyLaunch {
 public:
  ReadyLaunch(const Kernel& kernel, int line, const Config& config, Call call)
      : kernel_(kernel), line_(line), config_(config), call_(std::move(call)) {}

  CUEMU_OWN_FRAME void operator()(Held<Parameters>... arguments) const { run(arguments...); }
  template <typename... Arguments>
    requires(sizeof...(Arguments) != sizeof...(Parameters))
  CUEMU_OWN_FRAME void operator()(Arguments... arguments) const {
    run(arguments...);
  }

 private:
  template <typename... Arguments>
  __attribute__((always_inline)) void run(const Arguments&... arguments) const {
    static_assert((std::size_t{0} + ... + sizeof(Arguments)) <= 32764,
                  "the parameters of a kernel take more than 32764 bytes: "
                  "copy large ones to the device, and pass a pointer");
    const auto bound = [&] { call_(arguments...); };
#ifdef CUEMU_CHECKED
    const char* end = static_cast<const char*>(__builtin_frame_address(0));
    const auto include = [&end](const char* past) { end = past > end ? past : end; };
    (include(reinterpret_cast<const char*>(&arguments) + sizeof arguments), ...);
    note_launch_frame(end, &call_, sizeof call_);
#endif
    run_launch(
        kernel_, line_, config_, [](const void* held) { (*static_cast<decltype(bound)*>(held))(); }, &bound);
  }

  const Kernel kernel_;
  const int line_;
  const Config config_;
  const Call call_;
};

template <typename Call>
ReadyLaunch<Call> launch(const Kernel& kernel, int line, const Config& config, Call call) {
  return {kernel, line, config, std::move(call)};
}
template <typename... Parameters, typename Call>
ReadyLaunch<Call, Parameters...> launch(const TypedKernel<Parameters...>& kernel, int line, const Config& config, Call call) {
  return {kernel, line, config, std::move(call)};
}

template <typename... Parameters, std::size_t... Positions>
void launch_with(const char* kernel, int line, void (*function)(Parameters...), const Config& config, void** parameters,
                 std::index_sequence<Positions...>) {
  launch(kernel_of(0, kernel, &library_mark, function), line, config,
         [function](auto const&... values) { function(values...); })(
      *static_cast<std::remove_reference_t<Parameters>*>(parameters[Positions])...);
}

template <typename... Parameters>
void launch_address(const Kernel& kernel, int line, const Config& config, void** parameters) {
  launch_with(kernel.name, line, reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(kernel.code)), config,
              parameters, std::index_sequence_for<Parameters...>());
}
template <typename... Parameters>
bool note_kernel(int, const char* name, void (*function)(Parameters...)) {
  return note_launcher(kernel_of(0, name, &library_mark, function), &launch_address<Parameters...>);
}

// At the beginning of a kernel, of a build that launches kernels by their address. Of several kernels of one name none
// is noted.
#define CUEMU_NOTE_KERNEL(name, ...)                                                                                  \
  {                                                                                                                   \
    const auto cuemu_note = [] {                                                                                      \
      return []<typename Tag>(Tag cuemu_tag) {                                                                        \
        if constexpr (requires { ::cuemu::note_kernel(cuemu_tag, name, __VA_ARGS__); }) {                             \
          return ::cuemu::note_kernel(cuemu_tag, name, __VA_ARGS__);                                                  \
        } else {                                                                                                      \
          return false;                                                                                               \
        }                                                                                                             \
      }(0);                                                                                                           \
    };                                                                                                                \
    static_cast<void>(&::cuemu::AtLoad<std::remove_cv_t<decltype(cuemu_note)>>::is_done);                              \
  }

template <typename... Parameters>
cudaError_t launch_kernel(const char* kernel, int line, void (*function)(Parameters...), dim3 grid, dim3 block,
                          void** parameters, std::size_t shared_bytes = 0, cudaStream_t = nullptr) {
  launch_with(kernel, line, function, {grid, block, shared_bytes}, parameters,
              std::index_sequence_for<Parameters...>());
  return cudaPeekAtLastError();
}

template <typename... Parameters>
cudaError_t launch_cooperative_kernel(const char* kernel, int line, void (*function)(Parameters...), dim3 grid,
                                      dim3 block, void** parameters, std::size_t shared_bytes = 0,
                                      cudaStream_t = nullptr) {
  launch_with(kernel, line, function, {grid, block, shared_bytes, true}, parameters,
              std::index_sequence_for<Parameters...>());
  return cudaPeekAtLastError();
}

// A kernel that is a void pointer.
inline cudaError_t launch_kernel(const char*, int line, const void* kernel, dim3 grid, dim3 block, void** parameters,
                                 std::size_t shared_bytes = 0, cudaStream_t = nullptr) {
  return launch_at(kernel, line, {grid, block, shared_bytes}, parameters);
}
inline cudaError_t launch_cooperative_kernel(const char*, int line, const void* kernel, dim3 grid, dim3 block,
                                             void** parameters, std::size_t shared_bytes = 0, cudaStream_t = nullptr) {
  return launch_at(kernel, line, {grid, block, shared_bytes, true}, parameters);
}

inline Config config_of(const cudaLaunchConfig_t& given) {
  Config config{given.gridDim, given.blockDim, given.dynamicSmemBytes};
  for (unsigned i = 0; i < given.numAttrs; ++i) {
    const cudaLaunchAttributeValue& value = given.attrs[i].val;
    if (given.attrs[i].id == cudaLaunchAttributeCooperative) config.cooperative = value.cooperative != 0;
    if (given.attrs[i].id == cudaLaunchAttributeClusterDimension) {
      config.cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
    }
  }
  return config;
}

inline cudaError_t occupancy_max_active_clusters(int* clusters, const Kernel& kernel, const cudaLaunchConfig_t* given) {
  return most_active_clusters(clusters, kernel, config_of(*given));
}
inline cudaError_t occupancy_max_potential_cluster_size(int* blocks, const Kernel& kernel, const cudaLaunchConfig_t*) {
  *blocks = largest_cluster(kernel);
  return cudaSuccess;
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel_ex(const cudaLaunchConfig_t* given, const char* kernel, int line,
                             void (*function)(Parameters...), Arguments&&... arguments) {
  launch(kernel_of(0, kernel, &library_mark, function), line, config_of(*given),
         [function](auto const&... values) { function(values...); })(std::forward<Arguments>(arguments)...);
  return cudaPeekAtLastError();
}

template <typename... Parameters>
cudaError_t launch_kernel_exc(const cudaLaunchConfig_t* given, const char* kernel, int line,
                              void (*function)(Parameters...), void** parameters) {
  launch_with(kernel, line, function, config_of(*given), parameters, std::index_sequence_for<Parameters...>());
  return cudaPeekAtLastError();
}

inline cudaError_t launch_kernel_exc(const cudaLaunchConfig_t* given, const char*, int line, const void* kernel,
                                     void** parameters) {
  return launch_at(kernel, line, config_of(*given), parameters);
}

// Chooses the operators below, which tell the checker what a kernel allocates.
struct OnHeap {};
void* noted_allocation(void* data, std::size_t bytes);  // returns `data`
void note_heap_free(const void* data);
bool has_heap_room(std::size_t bytes);

template <typename Variable>
Variable& shared_slot(const char* key, std::size_t alignment, const char* name, int line) {
  const std::size_t wanted = alignment > alignof(Variable) ? alignment : alignof(Variable);
  return *static_cast<Variable*>(shared_bytes(key, sizeof(Variable), wanted, name, line));
}

template <typename Element>
Element* dynamic_shared(std::size_t alignment) {
  return static_cast<Element*>(dynamic_shared_bytes(alignment > alignof(Element) ? alignment : alignof(Element)));
}

}  // namespace cuemu

// Launches in a C++ source, where the rewriter replaces nothing. A function is any pointer to one.
template <typename Function>
cudaError_t cudaLaunchKernel(Function* kernel, dim3 grid, dim3 block, void** parameters, std::size_t shared_bytes = 0,
                             cudaStream_t = nullptr, int line = __builtin_LINE()) {
  return ::cuemu::launch_at(::cuemu::address_of(kernel), line, {grid, block, shared_bytes}, parameters);
}
template <typename Function>
cudaError_t cudaLaunchCooperativeKernel(Function* kernel, dim3 grid, dim3 block, void** parameters,
                                        std::size_t shared_bytes = 0, cudaStream_t = nullptr,
                                        int line = __builtin_LINE()) {
  return ::cuemu::launch_at(::cuemu::address_of(kernel), line, {grid, block, shared_bytes, true}, parameters);
}
template <typename Function>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* given, Function* kernel, void** parameters,
                                int line = __builtin_LINE()) {
  return ::cuemu::launch_at(::cuemu::address_of(kernel), line, ::cuemu::config_of(*given), parameters);
}

// noexcept, because a full heap of the device gives null.
inline void* operator new(std::size_t bytes, ::cuemu::OnHeap) noexcept {
  return ::cuemu::has_heap_room(bytes) ? ::cuemu::noted_allocation(::operator new(bytes), bytes) : nullptr;
}
inline void* operator new[](std::size_t bytes, ::cuemu::OnHeap) noexcept {
  return ::cuemu::has_heap_room(bytes) ? ::cuemu::noted_allocation(::operator new[](bytes), bytes) : nullptr;
}
