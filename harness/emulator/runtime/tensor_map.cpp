// Tensor maps: the driver's checks of their arguments, and the boxes that copies move.
#include "cuemu/tensor_map.h"

#include <cstring>
#include <string>

#include "worker.h"

namespace cuemu {
namespace {

constexpr std::uint64_t kMark = 0x70616d726f736e74;  // of a map that was made here
constexpr std::uint64_t kMostSize = std::uint64_t{1} << 32;
constexpr std::uint64_t kMostStride = std::uint64_t{1} << 40;
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

struct Type {
  unsigned bytes;
  std::uint64_t nan;  // as an H200 fills it in; 0 for integers
};

bool find_type(CUtensorMapDataType type, Type& found) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: found = {1, 0}; return true;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16: found = {2, 0}; return true;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32: found = {4, 0}; return true;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64: found = {8, 0}; return true;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: found = {2, 0x7ff7}; return true;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: found = {4, 0x7ff77ff7}; return true;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: found = {8, 0x7ff77ff77ff77ff7}; return true;
  }
  return false;
}

bool is_aligned(const void* address, std::uintptr_t to) { return reinterpret_cast<std::uintptr_t>(address) % to == 0; }

}  // namespace

TensorBox tensor_box(const char* address, const std::int32_t* at, int rank, bool stores, int line) {
  check_alignment(address, 64, "cp.async.bulk.tensor", line);
  TensorBox box{};
  std::memcpy(&box.map, address, sizeof box.map);
  if (box.map.mark != kMark || box.map.rank != rank) {
    Worker& worker = this_worker();
    worker.fail("uninitialised", line, "cp.async.bulk.tensor in " + worker.position() + ": " +
                (box.map.mark != kMark ? std::string("the address holds no tensor map")
                                       : "the tensor map has " + std::to_string(box.map.rank) + " dimensions, the instruction " +
                                             std::to_string(rank)),
                "Pass the kernel a CUtensorMap that cuTensorMapEncodeTiled has filled, as const __grid_constant__.",
                kLaunchFailure);
  }
  std::uint32_t bytes = static_cast<std::uint32_t>(box.map.strides[0]);
  const int hidden = box.map.dimensions - rank;
  for (int i = 0; i < box.map.dimensions; ++i) {
    box.at[i] = i < hidden ? 0 : at[i - hidden];
    const unsigned step = i == 0 ? 1 : box.map.steps[i];
    box.extents[i] = (box.map.box[i] + step - 1) / step;
    bytes *= box.extents[i];
    if (stores && box.at[i] < 0) {
      Worker& worker = this_worker();
      worker.fail("out-of-bounds", line, "cp.async.bulk.tensor in " + worker.position() + ": it stores a box that begins at " +
                  std::to_string(box.at[i]) + " in dimension " + std::to_string(i - hidden),
                  "Begin the box inside the tensor: only a load may begin before it.", kIllegalInstruction);
    }
  }
  box.bytes = bytes;
  return box;
}

void read_box(const AsyncCopy& copy, TensorBox& box) { box = *copy.box; }

}  // namespace cuemu

using cuemu::TensorMap;

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  cuemu::Type element{};
  if (map == nullptr || data == nullptr || sizes == nullptr || box == nullptr || steps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (rank < 1 || rank > 5 || (rank > 1 && strides == nullptr) || !cuemu::find_type(type, element)) return CUDA_ERROR_INVALID_VALUE;
  if (!cuemu::is_aligned(map, 64) || !cuemu::is_aligned(data, 16)) return CUDA_ERROR_INVALID_VALUE;
  if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B || promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B) return CUDA_ERROR_INVALID_VALUE;
  if (fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA || (fill != 0 && element.nan == 0)) return CUDA_ERROR_INVALID_VALUE;
  if (interleave > CU_TENSOR_MAP_INTERLEAVE_32B) return CUDA_ERROR_INVALID_VALUE;
  const bool is_interleaved = interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
  const unsigned slice = interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
  if (!cuemu::is_aligned(data, slice) || (is_interleaved && rank < 3)) return CUDA_ERROR_INVALID_VALUE;
  TensorMap made{};
  made.mark = cuemu::kMark;
  made.data = static_cast<char*>(data);
  made.rank = static_cast<unsigned char>(rank);
  made.dimensions = static_cast<unsigned char>(rank + (is_interleaved ? 1 : 0));
  made.swizzle = static_cast<unsigned char>(swizzle);
  made.fill = fill != 0 ? element.nan : 0;
  made.strides[0] = element.bytes;
  if (is_interleaved) {
    made.box[0] = static_cast<unsigned short>(slice / element.bytes);
    made.last[0] = made.box[0] - 1u;
    made.strides[1] = slice;
  }
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0 || sizes[i] > cuemu::kMostSize || box[i] == 0 || box[i] > 256 || steps[i] == 0 || steps[i] > 8) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const cuuint32_t dimension = i + made.dimensions - rank;
    made.last[dimension] = static_cast<std::uint32_t>(sizes[i] - 1);
    // An H200 copies one slice of channels, whatever the box says.
    made.box[dimension] = is_interleaved && i + 2 == rank ? 1 : static_cast<unsigned short>(box[i]);
    made.steps[dimension] = static_cast<unsigned char>(steps[i]);
    if (i == 0) continue;
    if (strides[i - 1] % slice != 0 || strides[i - 1] >= cuemu::kMostStride) return CUDA_ERROR_INVALID_VALUE;
    made.strides[dimension] = strides[i - 1];
  }
  const unsigned row = box[0] * element.bytes;
  const unsigned most = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? ~0u : 16u << swizzle;
  if (row % 16 != 0 || (!is_interleaved && row > most)) return CUDA_ERROR_INVALID_VALUE;
  *map = {};
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* data) {
  TensorMap made;
  if (map == nullptr || data == nullptr || !cuemu::is_aligned(data, 16)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&made, map, sizeof made);
  if (made.mark != cuemu::kMark || (made.dimensions > made.rank && !cuemu::is_aligned(data, made.strides[1]))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  made.data = static_cast<char*>(data);
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  if (symbol == nullptr || function == nullptr) return cuemu::set_last_error(cudaErrorInvalidValue);
  *function = nullptr;
  if (std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0) *function = reinterpret_cast<void*>(cuTensorMapEncodeTiled);
  if (std::strcmp(symbol, "cuTensorMapReplaceAddress") == 0) *function = reinterpret_cast<void*>(cuTensorMapReplaceAddress);
  if (result != nullptr) {
    *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
  }
  return *function == nullptr ? cuemu::set_last_error(cudaErrorSymbolNotFound) : cudaSuccess;
}

}  // extern "C"
