// Stands before the emulator's cudaMemcpy (cuemu_cudaMemcpy in libraries) and keeps a digest of what a program copies back from the device: its result.
#include <cstddef>
#include <cstdint>

namespace {
constexpr int kDeviceToHost = 2;
int (*copy)(void*, const void*, std::size_t, int) = nullptr;
std::uint64_t digest = 14695981039346656037u;  // FNV-1a
}  // namespace

extern "C" {

void use_copy(void* emulators) { copy = reinterpret_cast<decltype(copy)>(emulators); }

std::uint64_t digest_of_copies() { return digest; }

int cuemu_cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  const int error = copy(to, from, bytes, kind);
  if (kind != kDeviceToHost || error != 0) return error;
  for (std::size_t i = 0; i < bytes; ++i) {
    digest = (digest ^ static_cast<const unsigned char*>(to)[i]) * 1099511628211u;
  }
  return error;
}

}  // extern "C"
