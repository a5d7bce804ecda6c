// The CUDA runtime's host interface over plain memory.
#include "cuemu/host_api.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "device_heap.h"
#include "guard.h"
#include "worker.h"

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define NAMED(error) error, #error
constexpr ErrorText kErrors[] = {
    {NAMED(cudaSuccess), "no error"},
    {NAMED(cudaErrorInvalidValue), "invalid argument"},
    {NAMED(cudaErrorMemoryAllocation), "out of memory"},
    {NAMED(cudaErrorInitializationError), "initialization error"},
    {NAMED(cudaErrorInvalidConfiguration), "invalid configuration argument"},
    {NAMED(cudaErrorInvalidPitchValue), "invalid pitch argument"},
    {NAMED(cudaErrorInvalidSymbol), "invalid device symbol"},
    {NAMED(cudaErrorInvalidMemcpyDirection), "invalid copy direction for memcpy"},
    {NAMED(cudaErrorInsufficientDriver), "CUDA driver version is insufficient for CUDA runtime version"},
    {NAMED(cudaErrorInvalidDeviceFunction), "invalid device function"},
    {NAMED(cudaErrorNoDevice), "no CUDA-capable device is detected"},
    {NAMED(cudaErrorInvalidDevice), "invalid device ordinal"},
    {NAMED(cudaErrorInvalidResourceHandle), "invalid resource handle"},
    {NAMED(cudaErrorSymbolNotFound), "named symbol not found"},
    {NAMED(cudaErrorNotReady), "device not ready"},
    {NAMED(cudaErrorIllegalAddress), "an illegal memory access was encountered"},
    {NAMED(cudaErrorLaunchOutOfResources), "too many resources requested for launch"},
    {NAMED(cudaErrorPeerAccessAlreadyEnabled), "peer access is already enabled"},
    {NAMED(cudaErrorAssert), "device-side assert triggered"},
    {NAMED(cudaErrorIllegalInstruction), "an illegal instruction was encountered"},
    {NAMED(cudaErrorMisalignedAddress), "misaligned address"},
    {NAMED(cudaErrorLaunchFailure), "unspecified launch failure"},
    {NAMED(cudaErrorCooperativeLaunchTooLarge), "too many blocks in cooperative launch"},
    {NAMED(cudaErrorNotSupported), "operation not supported"},
    {NAMED(cudaErrorInvalidClusterSize), "cluster misconfiguration"},
    {NAMED(cudaErrorUnknown), "unknown error"},
};
#undef NAMED

std::atomic<int> sticky{cudaSuccess};
thread_local cudaError_t last_error = cudaSuccess;

constexpr int kMultiprocessors = 132;
constexpr int kBlocksPerMultiprocessor = 32;

// Whether memory is certainly the device's alone. A tensor's may be the host's, too.
bool is_device_only(const void* data) {
  const char* const what = cuemu::guarded_extent(static_cast<const char*>(data)).what;
  return what != nullptr && cuemu::is_device_only(what);
}

std::size_t physical_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point recorded;
  bool is_recorded;
};

namespace cuemu {

cudaError_t set_last_error(cudaError_t error) {
  last_error = error;
  return error;
}

cudaError_t sticky_error() { return static_cast<cudaError_t>(sticky.load()); }

void set_sticky_error(int error) {
  int none = cudaSuccess;
  sticky.compare_exchange_strong(none, error);
}

cudaError_t allocate(void** data, std::size_t bytes, const char* what) {
  if (sticky_error() != cudaSuccess) return sticky_error();
  if (data == nullptr) return set_last_error(cudaErrorInvalidValue);
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  *data = bytes > physical_bytes() ? nullptr : guarded_allocate(bytes, what);
  return *data != nullptr ? cudaSuccess : set_last_error(cudaErrorMemoryAllocation);
}

Limits& limits() {
  static Limits current = {kMostShared, 2048, 228 * 1024};
  return current;
}

int blocks_per_multiprocessor(int threads, std::size_t shared_bytes) {
  if (threads < 1 || threads > 1024) return 0;
  const int whole_warps = (threads + 31) / 32 * 32;
  int blocks = std::min(kBlocksPerMultiprocessor, limits().threads_per_multiprocessor / whole_warps);
  if (shared_bytes > 0) blocks = std::min(blocks, static_cast<int>(limits().shared_bytes_per_multiprocessor / (shared_bytes + 1024)));
  return blocks;
}

std::uint64_t most_resident_blocks(const Config& config) {
  const int threads = static_cast<int>(config.block.x * config.block.y * config.block.z);
  return static_cast<std::uint64_t>(kMultiprocessors) * blocks_per_multiprocessor(threads, config.shared_bytes);
}

}  // namespace cuemu

using cuemu::set_last_error;
using cuemu::sticky_error;

extern "C" {

// Makes the device usable again after a failed launch. A real device needs a new process for that.
void cuemu_clear_error(void) {
  sticky = cudaSuccess;
  last_error = cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return sticky_error() != cudaSuccess ? sticky_error() : last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return known.name;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return known.text;
  }
  return "unrecognized error code";
}

cudaError_t cudaDeviceSynchronize() { return sticky_error(); }

cudaError_t cudaDeviceReset() {
  cuemu_clear_error();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

// Tensors of the emulated device report a device index of -1.
cudaError_t cudaSetDevice(int device) {
  return device == 0 || device == -1 ? cudaSuccess : set_last_error(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0 && device != -1) return set_last_error(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "CPU emulator");
  properties->totalGlobalMem = physical_bytes();
  properties->sharedMemPerBlock = cuemu::kDefaultSharedLimit;
  properties->sharedMemPerBlockOptin = cuemu::limits().shared_bytes;
  properties->sharedMemPerMultiprocessor = cuemu::limits().shared_bytes_per_multiprocessor;
  properties->reservedSharedMemPerBlock = 1024;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->memPitch = 0x7fffffff;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->clockRate = 1410000;
  properties->totalConstMem = 65536;
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = kMultiprocessors;
  properties->maxThreadsPerMultiProcessor = cuemu::limits().threads_per_multiprocessor;
  properties->maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  properties->concurrentKernels = properties->unifiedAddressing = properties->managedMemory = 1;
  properties->cooperativeLaunch = properties->canMapHostMemory = properties->clusterLaunch = 1;
  properties->streamPrioritiesSupported = properties->asyncEngineCount = 1;
  properties->globalL1CacheSupported = properties->localL1CacheSupported = 1;
  properties->memoryClockRate = 1215000;
  properties->memoryBusWidth = 5120;
  properties->l2CacheSize = 40 * 1024 * 1024;
  return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  if (limit == cudaLimitMallocHeapSize) cuemu::set_heap_limit(value);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  *value = limit == cudaLimitMallocHeapSize ? cuemu::heap_limit() : 64 * 1024;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp all;
  const cudaError_t error = cudaGetDeviceProperties(&all, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = all.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = all.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = all.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = all.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = all.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = all.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = all.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(all.sharedMemPerBlock); break;
    case cudaDevAttrTotalConstantMemory: *value = static_cast<int>(all.totalConstMem); break;
    case cudaDevAttrWarpSize: *value = all.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = all.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = all.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *value = all.multiProcessorCount; break;
    case cudaDevAttrIntegrated: *value = 0; break;
    case cudaDevAttrCanMapHostMemory: *value = all.canMapHostMemory; break;
    case cudaDevAttrComputeMode: *value = cudaComputeModeDefault; break;
    case cudaDevAttrConcurrentKernels: *value = all.concurrentKernels; break;
    case cudaDevAttrMemoryClockRate: *value = all.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = all.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = all.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = all.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrUnifiedAddressing: *value = all.unifiedAddressing; break;
    case cudaDevAttrComputeCapabilityMajor: *value = all.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = all.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(all.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = all.regsPerMultiprocessor; break;
    case cudaDevAttrManagedMemory: *value = all.managedMemory; break;
    case cudaDevAttrCooperativeLaunch: *value = all.cooperativeLaunch; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(all.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = all.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = static_cast<int>(all.reservedSharedMemPerBlock); break;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    case cudaDevAttrClusterLaunch: *value = all.clusterLaunch; break;
    default: return set_last_error(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 12080;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = physical_bytes();
  *free_bytes = static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  if (data != nullptr && !cuemu::guarded_free(data)) return set_last_error(cudaErrorInvalidValue);
  return sticky_error();
}

cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (sticky_error() != cudaSuccess) return sticky_error();
  if (bytes == 0) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return set_last_error(cudaErrorInvalidMemcpyDirection);
  const bool is_from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  const bool is_to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  if ((is_from_host && is_device_only(from)) || (is_to_host && is_device_only(to))) {
    return set_last_error(cudaErrorInvalidValue);
  }
  if (to == nullptr || from == nullptr || cuemu::leaves_allocation(to, bytes) || cuemu::leaves_allocation(from, bytes)) {
    return set_last_error(cudaErrorInvalidValue);
  }
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return set_last_error(cudaErrorInvalidPitchValue);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = cudaMemcpy(static_cast<char*>(to) + row * to_pitch,
                                         static_cast<const char*>(from) + row * from_pitch, width, kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  if (sticky_error() != cudaSuccess) return sticky_error();
  if (bytes == 0) return cudaSuccess;
  if (data == nullptr || cuemu::leaves_allocation(data, bytes)) return set_last_error(cudaErrorInvalidValue);
  std::memset(data, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset2D(void* data, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = cudaMemset(static_cast<char*>(data) + row * pitch, value, width);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  void* const both = const_cast<void*>(pointer);
  *attributes = {cudaMemoryTypeDevice, 0, both, both};
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    return set_last_error(cudaErrorInvalidResourceHandle);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st{};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (event == nullptr) return set_last_error(cudaErrorInvalidResourceHandle);
  event->recorded = std::chrono::steady_clock::now();
  event->is_recorded = true;
  return sticky_error();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (start == nullptr || end == nullptr || !start->is_recorded || !end->is_recorded) {
    return set_last_error(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->recorded - start->recorded).count();
  return cudaSuccess;
}

}  // extern "C"
