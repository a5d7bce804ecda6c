// Tensors of CPU torch in guarded, poisoned memory, and the CUDA symbols that a CPU build of torch lacks.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>

extern "C" {
void* cuemu_guarded_allocate(std::size_t bytes, const char* what);
int cuemu_guarded_free(void* data);
}

namespace {

void free_tensor(void* data) {
  if (data != nullptr) cuemu_guarded_free(data);
}

class GuardedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0) {
      data = cuemu_guarded_allocate(bytes, "tensor");
      TORCH_CHECK(data != nullptr, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes,
                  " bytes.");
    }
    return {data, data, &free_tensor, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

extern "C" {

// From now on new CPU tensors lie between red zones. Repeated calls change nothing.
void cuemu_install_allocator(void) {
  static GuardedAllocator* installed = nullptr;
  if (installed != nullptr) return;
  installed = new GuardedAllocator;
  constexpr std::uint8_t kHighestPriority = 255;
  c10::SetCPUAllocator(installed, kHighestPriority);
}

// Weak, so that a build of torch with its own definitions keeps them. All streams are the same one,
// which waits for each launch.
#define CUEMU_WEAK __attribute__((weak, visibility("default")))

CUEMU_WEAK std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t, void** stream) {
  *stream = nullptr;
  return 0;
}

CUEMU_WEAK std::int32_t aoti_torch_create_cuda_guard(std::int32_t, void** guard) {
  *guard = nullptr;
  return 0;
}

CUEMU_WEAK std::int32_t aoti_torch_delete_cuda_guard(void*) { return 0; }

CUEMU_WEAK std::int32_t aoti_torch_cuda_guard_set_index(void*, std::int32_t) { return 0; }

CUEMU_WEAK std::int32_t aoti_torch_create_cuda_stream_guard(void*, std::int32_t, void** guard) {
  *guard = nullptr;
  return 0;
}

CUEMU_WEAK std::int32_t aoti_torch_delete_cuda_stream_guard(void*) { return 0; }

}  // extern "C"
