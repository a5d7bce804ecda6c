// The CUDA runtime's host interface. Everything is done when a call returns; streams are names without effect.
#pragma once

#include <cstddef>
#include <type_traits>

#include "runtime.h"

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidPitchValue = 12,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorSymbolNotFound = 500,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorAssert = 710,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorNotSupported = 801,
  cudaErrorInvalidClusterSize = 912,
  cudaErrorUnknown = 999,
};
typedef enum cudaError cudaError_t;

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(0x1))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(0x2))
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventInterprocess 0x04
#define cudaEventRecordDefault 0x00
#define cudaEventWaitDefault 0x00
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaHostRegisterDefault 0x00
#define cudaHostRegisterPortable 0x01
#define cudaHostRegisterMapped 0x02
#define cudaHostRegisterReadOnly 0x08
#define cudaMemAttachGlobal 0x01
#define cudaMemAttachHost 0x02
#define cudaOccupancyDefault 0x00
#define cudaCpuDeviceId (-1)

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeClusterDimMustBeSet = 10,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
  cudaFuncAttributeClusterSchedulingPolicyPreference = 15,
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig {
  cudaSharedMemBankSizeDefault,
  cudaSharedMemBankSizeFourByte,
  cudaSharedMemBankSizeEightByte,
};
enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxShared = 100,
  cudaSharedmemCarveoutMaxL1 = 0,
};
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitPersistingL2CacheSize = 6 };
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly,
  cudaMemAdviseSetPreferredLocation,
  cudaMemAdviseUnsetPreferredLocation,
  cudaMemAdviseSetAccessedBy,
  cudaMemAdviseUnsetAccessedBy,
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxBlockDimY = 3,
  cudaDevAttrMaxBlockDimZ = 4,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxGridDimY = 6,
  cudaDevAttrMaxGridDimZ = 7,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrTotalConstantMemory = 9,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrCanMapHostMemory = 19,
  cudaDevAttrComputeMode = 20,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
  cudaDevAttrMemoryPoolsSupported = 115,
  cudaDevAttrClusterLaunch = 120,
};

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int clockRate;
  std::size_t totalConstMem;
  int major, minor, multiProcessorCount, integrated, canMapHostMemory, computeMode, concurrentKernels, ECCEnabled;
  int pciBusID, pciDeviceID, pciDomainID, asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth;
  int l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
  int globalL1CacheSupported, localL1CacheSupported;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, concurrentManagedAccess, cooperativeLaunch;
  std::size_t sharedMemPerBlockOptin, reservedSharedMemPerBlock;
  int maxBlocksPerMultiProcessor, clusterLaunch;
};
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
  int preferredShmemCarveout;
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

// A torch that is built for CUDA has the CUDA runtime's symbols in the process, and those come first. The emulator's
// functions have the same names in source code and other ones in libraries.
#define CUEMU_PRAGMA(text) _Pragma(#text)
#define CUEMU_OWN_SYMBOL(name) CUEMU_PRAGMA(redefine_extname name cuemu_##name)
CUEMU_OWN_SYMBOL(cudaGetLastError)
CUEMU_OWN_SYMBOL(cudaPeekAtLastError)
CUEMU_OWN_SYMBOL(cudaGetErrorName)
CUEMU_OWN_SYMBOL(cudaGetErrorString)
CUEMU_OWN_SYMBOL(cudaDeviceSynchronize)
CUEMU_OWN_SYMBOL(cudaDeviceReset)
CUEMU_OWN_SYMBOL(cudaDeviceSetLimit)
CUEMU_OWN_SYMBOL(cudaDeviceGetLimit)
CUEMU_OWN_SYMBOL(cudaGetDevice)
CUEMU_OWN_SYMBOL(cudaSetDevice)
CUEMU_OWN_SYMBOL(cudaGetDeviceCount)
CUEMU_OWN_SYMBOL(cudaDeviceGetAttribute)
CUEMU_OWN_SYMBOL(cudaGetDeviceProperties)
CUEMU_OWN_SYMBOL(cudaRuntimeGetVersion)
CUEMU_OWN_SYMBOL(cudaDriverGetVersion)
CUEMU_OWN_SYMBOL(cudaMemGetInfo)
CUEMU_OWN_SYMBOL(cudaDeviceGetStreamPriorityRange)
CUEMU_OWN_SYMBOL(cudaFree)
CUEMU_OWN_SYMBOL(cudaFreeHost)
CUEMU_OWN_SYMBOL(cudaMemcpy)
CUEMU_OWN_SYMBOL(cudaMemcpy2D)
CUEMU_OWN_SYMBOL(cudaMemset)
CUEMU_OWN_SYMBOL(cudaMemset2D)
CUEMU_OWN_SYMBOL(cudaPointerGetAttributes)
CUEMU_OWN_SYMBOL(cudaStreamCreateWithPriority)
CUEMU_OWN_SYMBOL(cudaStreamDestroy)
CUEMU_OWN_SYMBOL(cudaEventCreateWithFlags)
CUEMU_OWN_SYMBOL(cudaEventDestroy)
CUEMU_OWN_SYMBOL(cudaEventRecord)
CUEMU_OWN_SYMBOL(cudaEventElapsedTime)
#undef CUEMU_OWN_SYMBOL
#undef CUEMU_PRAGMA

extern "C" {
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value);
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);

cudaError_t cudaFree(void* data);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* data, int value, std::size_t bytes);
cudaError_t cudaMemset2D(void* data, std::size_t pitch, int value, std::size_t width, std::size_t height);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
}

namespace cuemu {

cudaError_t set_last_error(cudaError_t error);  // returns it
cudaError_t sticky_error();
cudaError_t allocate(void** data, std::size_t bytes, const char* what);
// Notes host memory that kernels may access, and that they no longer may.
void lend_host_memory(const void* data, std::size_t bytes);
void take_back_host_memory(const void* data);
int blocks_per_multiprocessor(int threads, std::size_t shared_bytes);
std::uint64_t most_resident_blocks(const Config& config);
cudaError_t func_set_attribute(const Kernel& kernel, cudaFuncAttribute attribute, int value);
cudaError_t func_get_attributes(cudaFuncAttributes* attributes, const Kernel& kernel);
// These note a kernel's own cluster (__cluster_dims__) and its most threads in a block (__launch_bounds__). They return
// true, for the initialiser of a variable.
bool note_cluster(const Kernel& kernel, dim3 sizes);
bool note_launch_bounds(const Kernel& kernel, int threads);
// The same for what launches a kernel whose address alone is known, with the addresses of its parameters.
using Launcher = void (*)(const Kernel& kernel, int line, const Config& config, void** parameters);
bool note_launcher(const Kernel& kernel, Launcher launcher);
cudaError_t launch_at(const void* address, int line, const Config& config, void** parameters);
int most_threads(const Kernel& kernel);  // in a block
cudaError_t most_active_clusters(int* clusters, const Kernel& kernel, const Config& config);
int largest_cluster(const Kernel& kernel);  // in blocks

inline cudaError_t occupancy_max_active_blocks(int* blocks, const Kernel& kernel, int threads,
                                               std::size_t shared_bytes) {
  *blocks = threads > most_threads(kernel) ? 0 : blocks_per_multiprocessor(threads, shared_bytes);
  return cudaSuccess;
}

inline cudaError_t occupancy_max_potential_block_size(int* grid, int* block, const Kernel& kernel,
                                                      std::size_t shared_bytes = 0, int limit = 0) {
  const int most = most_threads(kernel);
  *block = limit > 0 && limit < most ? limit : most;
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  *grid = properties.multiProcessorCount * blocks_per_multiprocessor(*block, shared_bytes);
  return cudaSuccess;
}

template <typename Function>
const void* address_of(Function* function) {
  if constexpr (std::is_function_v<Function>) return reinterpret_cast<const void*>(function);
  else return function;
}

// The place of a pointer, which may point to constants, as CUDA's own headers cast it.
template <typename T>
void** place_of(T** data) {
  return reinterpret_cast<void**>(const_cast<std::remove_cv_t<T>**>(data));
}

}  // namespace cuemu

template <typename T>
inline cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  return ::cuemu::allocate(::cuemu::place_of(data), bytes, "cudaMalloc allocation");
}
template <typename T>
inline cudaError_t cudaMallocAsync(T** data, std::size_t bytes, cudaStream_t) {
  return ::cuemu::allocate(::cuemu::place_of(data), bytes, "cudaMallocAsync allocation");
}
template <typename T>
inline cudaError_t cudaMallocManaged(T** data, std::size_t bytes, unsigned = cudaMemAttachGlobal) {
  return ::cuemu::allocate(::cuemu::place_of(data), bytes, "cudaMallocManaged allocation");
}
template <typename T>
inline cudaError_t cudaMallocHost(T** data, std::size_t bytes, unsigned = 0) {
  return ::cuemu::allocate(::cuemu::place_of(data), bytes, "cudaMallocHost allocation");
}
template <typename T>
inline cudaError_t cudaHostAlloc(T** data, std::size_t bytes, unsigned) {
  return ::cuemu::allocate(::cuemu::place_of(data), bytes, "cudaHostAlloc allocation");
}
template <typename T>
inline cudaError_t cudaMallocPitch(T** data, std::size_t* pitch, std::size_t width, std::size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return ::cuemu::allocate(::cuemu::place_of(data), *pitch * height, "cudaMallocPitch allocation");
}
template <typename T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
  *device = static_cast<T*>(host);
  return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return cudaFree(data); }
inline cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  ::cuemu::lend_host_memory(data, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void* data) {
  ::cuemu::take_back_host_memory(data);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                     std::size_t width, std::size_t height, cudaMemcpyKind kind,
                                     cudaStream_t = nullptr) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
inline cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(data, value, bytes);
}
inline cudaError_t cudaMemset2DAsync(void* data, std::size_t pitch, int value, std::size_t width, std::size_t height,
                                     cudaStream_t = nullptr) {
  return cudaMemset2D(data, pitch, value, width, height);
}
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, int) { return cudaSuccess; }

// A symbol is the variable itself, or (in C style) its address.
namespace cuemu {
template <typename Symbol>
inline char* symbol_address(const Symbol& symbol) {
  if constexpr (std::is_same_v<Symbol, const void*> || std::is_same_v<Symbol, void*>) {
    return static_cast<char*>(const_cast<void*>(static_cast<const void*>(symbol)));
  } else {
    return reinterpret_cast<char*>(const_cast<std::remove_cv_t<Symbol>*>(&symbol));
  }
}
template <typename Symbol>
inline bool fits_symbol(std::size_t bytes, std::size_t offset) {
  return std::is_same_v<Symbol, const void*> || std::is_same_v<Symbol, void*> ||
         (offset <= sizeof(Symbol) && bytes <= sizeof(Symbol) - offset);
}
}  // namespace cuemu
template <typename Symbol>
inline cudaError_t cudaMemcpyToSymbol(const Symbol& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  if (!::cuemu::fits_symbol<Symbol>(bytes, offset)) return ::cuemu::set_last_error(cudaErrorInvalidValue);
  return cudaMemcpy(::cuemu::symbol_address(symbol) + offset, from, bytes, kind);
}
template <typename Symbol>
inline cudaError_t cudaMemcpyFromSymbol(void* to, const Symbol& symbol, std::size_t bytes, std::size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  if (!::cuemu::fits_symbol<Symbol>(bytes, offset)) return ::cuemu::set_last_error(cudaErrorInvalidValue);
  return cudaMemcpy(to, ::cuemu::symbol_address(symbol) + offset, bytes, kind);
}
template <typename Symbol>
inline cudaError_t cudaMemcpyToSymbolAsync(const Symbol& symbol, const void* from, std::size_t bytes,
                                           std::size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                           cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <typename Symbol>
inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, const Symbol& symbol, std::size_t bytes, std::size_t offset = 0,
                                             cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t = nullptr) {
  return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
template <typename Symbol>
inline cudaError_t cudaGetSymbolAddress(void** address, const Symbol& symbol) {
  *address = ::cuemu::symbol_address(symbol);
  return cudaSuccess;
}
template <typename Symbol>
inline cudaError_t cudaGetSymbolSize(std::size_t* bytes, const Symbol&) {
  *bytes = sizeof(Symbol);
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { *priority = 0; return cudaSuccess; }
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) { *flags = 0; return cudaSuccess; }
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags = 0) {
  return cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr, unsigned = 0) {
  return cudaEventRecord(event, stream);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaDeviceSynchronize(); }

// In a C++ source the kernel is a pointer; in a CUDA source the rewriter replaces these.
template <typename Function>
inline cudaError_t cudaFuncSetAttribute(Function* kernel, cudaFuncAttribute attribute, int value) {
  return ::cuemu::func_set_attribute({"kernel", ::cuemu::address_of(kernel)}, attribute, value);
}
template <typename Function>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Function* kernel) {
  return ::cuemu::func_get_attributes(attributes, {"kernel", ::cuemu::address_of(kernel)});
}
template <typename Function>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* kernel, int threads,
                                                                 std::size_t shared_bytes) {
  return ::cuemu::occupancy_max_active_blocks(blocks, {"kernel", ::cuemu::address_of(kernel)}, threads, shared_bytes);
}
template <typename Function>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Function* kernel,
                                                      std::size_t shared_bytes = 0, int limit = 0) {
  return ::cuemu::occupancy_max_potential_block_size(grid, block, {"kernel", ::cuemu::address_of(kernel)}, shared_bytes,
                                                     limit);
}

inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
template <typename Function>
inline cudaError_t cudaFuncSetCacheConfig(Function&&, cudaFuncCache) { return cudaSuccess; }
template <typename Function>
inline cudaError_t cudaFuncSetSharedMemConfig(Function&&, cudaSharedMemConfig) { return cudaSuccess; }
