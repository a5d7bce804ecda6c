// CUB's algorithms of the whole device.
#include <cub/cub.cuh>

#include <utility>

#define TEST extern "C"

// What CUDA 13 no longer has.
#if __has_include(<cub/iterator/counting_input_iterator.cuh>)
using Plus = cub::Sum;
using Most = cub::Max;
template <typename T>
using Counting = cub::CountingInputIterator<T>;
template <typename T, typename Function>
using Mapped = cub::TransformInputIterator<T, Function, Counting<int>>;
#else
#include <cuda/functional>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
using Plus = cuda::std::plus<>;
using Most = cuda::maximum<>;
template <typename T>
using Counting = thrust::counting_iterator<T>;
template <typename T, typename Function>
using Mapped = thrust::transform_iterator<Function, Counting<int>, T, T>;
#endif

// Calls an algorithm as programs do: first for the size of its storage, then with it.
template <typename Call>
int call(Call algorithm, std::size_t less = 0) {
  void* storage = nullptr;
  std::size_t bytes = 0;
  if (cudaError_t error = algorithm(storage, bytes)) return error;
  cudaMalloc(&storage, bytes);
  bytes -= less;
  const cudaError_t error = algorithm(storage, bytes);
  cudaFree(storage);
  return error;
}
#define CUB(name, ...) call([&](void* storage, std::size_t& bytes) { return cub::name(storage, bytes, __VA_ARGS__); })

struct Larger {
  __host__ __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};
struct IsOdd {
  __host__ __device__ bool operator()(int x) const { return x % 2 != 0; }
};

TEST int reductions(const float* x, int n, float* out, int* place) {
  using Best = cub::KeyValuePair<int, float>;
  Best* best;
  cudaMalloc(&best, 2 * sizeof(Best));
  int error = CUB(DeviceReduce::Sum, x, out, n) | CUB(DeviceReduce::Min, x, out + 1, n) | CUB(DeviceReduce::Max, x, out + 2, n) |
              CUB(DeviceReduce::Reduce, x, out + 3, n, Larger(), 0.25f) | CUB(DeviceReduce::ArgMin, x, best, n) |
              CUB(DeviceReduce::ArgMax, x, best + 1, n, cudaStream_t(0));
  Best found[2];
  cudaMemcpy(found, best, sizeof found, cudaMemcpyDeviceToHost);
  cudaFree(best);
  for (int i = 0; i < 2; ++i) place[i] = found[i].key;
  return error;
}
TEST int by_key(const int* keys, const float* x, int n, int* unique, float* sums, int* runs) {
  return CUB(DeviceReduce::ReduceByKey, keys, unique, x, sums, runs, Plus(), n);
}
TEST int scans(int* x, int n, int* out) {
  return CUB(DeviceScan::ExclusiveSum, x, out, n) | CUB(DeviceScan::InclusiveSum, x, out + n, n) |
         CUB(DeviceScan::InclusiveScan, x, out + 2 * n, Most(), n) | CUB(DeviceScan::ExclusiveScan, x, out + 3 * n, Most(), 7, n) |
         CUB(DeviceScan::ExclusiveSum, x, n);
}
TEST int sorts(const float* keys, const int* values, int n, float* sorted, int* order) {
  return CUB(DeviceRadixSort::SortKeys, keys, sorted, n) | CUB(DeviceRadixSort::SortKeysDescending, keys, sorted + n, n) |
         CUB(DeviceRadixSort::SortPairs, keys, sorted + 2 * n, values, order, n) |
         CUB(DeviceRadixSort::SortPairsDescending, keys, sorted + 2 * n, values, order + n, n);
}
TEST int sorts_some_bits(int* keys, int n, int* other) {
  cub::DoubleBuffer<int> both(keys, other);
  const int error = CUB(DeviceRadixSort::SortKeys, both, n, 4, 8);
  return error != 0 ? error : both.Current() == other ? 0 : -1;
}
TEST int segments(const float* x, int n, const int* offsets, int count, float* sums, float* sorted) {
  return CUB(DeviceSegmentedReduce::Sum, x, sums, count, offsets, offsets + 1) |
         CUB(DeviceSegmentedReduce::Max, x, sums + count, count, offsets, offsets + 1) |
         CUB(DeviceSegmentedRadixSort::SortKeys, x, sorted, n, count, offsets, offsets + 1);
}
TEST int selections(const int* x, const char* flags, int n, int* out, int* counts) {
  return CUB(DeviceSelect::If, x, out, counts, n, IsOdd()) | CUB(DeviceSelect::Flagged, x, flags, out + n, counts + 1, n) |
         CUB(DeviceSelect::Unique, x, out + 2 * n, counts + 2, n);
}
struct Nearer {
  __host__ __device__ bool operator()(float a, float b) const { return a * a < b * b; }
};
TEST int merge_sorts(float* keys, int* values, float* alone, int n) {
  return CUB(DeviceMergeSort::StableSortPairs, keys, values, n, Nearer()) | CUB(DeviceMergeSort::SortKeys, alone, n, Nearer());
}
struct Times {
  int factor;
  __host__ __device__ float operator()(int i) const { return i * factor + 0.75f; }
};
TEST int segments_of_equal_size(const float* keys, const int* values, int rows, int size, float* sorted, int* order) {
  const Mapped<int, Times> offsets(Counting<int>(0), Times{size});  // whole numbers
  return CUB(DeviceSegmentedRadixSort::SortPairsDescending, keys, sorted, values, order, rows * size, rows, offsets, offsets + 1) |
         CUB(DeviceSegmentedSort::StableSortPairs, keys, sorted + rows * size, values, order + rows * size, rows * size, rows,
             offsets, offsets + 1, cudaStream_t(0)) |
         CUB(DeviceSegmentedSort::SortKeysDescending, keys, sorted + 2 * rows * size, rows * size, rows, offsets, offsets + 1);
}
TEST int histograms(const short* x, const float* y, int n, int* bins) {
  const float levels[] = {-1.0f, 0.0f, 0.25f, 1.0f};
  float* bounds;
  cudaMalloc(&bounds, sizeof levels);
  cudaMemcpy(bounds, levels, sizeof levels, cudaMemcpyHostToDevice);
  const int error = CUB(DeviceHistogram::HistogramEven, x, bins, 11, 0, 30, n) |
                    CUB(DeviceHistogram::HistogramEven, y, bins + 10, 5, -1.0f, 1.0f, n, cudaStream_t(0)) |
                    CUB(DeviceHistogram::HistogramRange, y, bins + 14, 4, bounds, n);
  cudaFree(bounds);
  return error;
}
TEST int runs(const int* x, int n, int* unique, long long* lengths, int* offsets, int* counts) {
  return CUB(DeviceRunLengthEncode::Encode, x, unique, lengths, counts, n) |
         CUB(DeviceRunLengthEncode::NonTrivialRuns, x, offsets, lengths + n, counts + 1, n, cudaStream_t(0));
}
struct SameTens {
  __host__ __device__ bool operator()(int a, int b) const { return a / 10 == b / 10; }
};
TEST int unique_by_key(const int* keys, const float* x, int n, int* unique, float* first, int* counts) {
  return CUB(DeviceSelect::UniqueByKey, keys, x, unique, first, counts, n, cudaStream_t(0)) |
         CUB(DeviceSelect::UniqueByKey, keys, x, unique + n, first + n, counts + 1, n, SameTens());
}
TEST int scans_by_key(const int* keys, const int* x, int n, int* out) {
  return CUB(DeviceScan::InclusiveSumByKey, keys, x, out, n) | CUB(DeviceScan::ExclusiveSumByKey, keys, x, out + n, n) |
         CUB(DeviceScan::InclusiveScanByKey, keys, x, out + 2 * n, Most(), n, SameTens()) |
         CUB(DeviceScan::ExclusiveScanByKey, keys, x, out + 3 * n, Most(), 50, n);
}
TEST int partitions(const int* x, const char* flags, int n, int* out, int* counts) {
  return CUB(DevicePartition::If, x, out, counts, n, IsOdd()) | CUB(DevicePartition::Flagged, x, flags, out + n, counts + 1, n);
}
// Sums have the type of the operation's result.
TEST int of_flags(const unsigned char* flags, int n, int* out) {
  const int offsets[2] = {0, n};
  int* ends;
  cudaMalloc(&ends, sizeof offsets);
  cudaMemcpy(ends, offsets, sizeof offsets, cudaMemcpyHostToDevice);
  const bool* truths = reinterpret_cast<const bool*>(flags);
  const int error = CUB(DeviceReduce::Sum, truths, out, n) | CUB(DeviceReduce::Sum, flags, out + 1, n) |
                    CUB(DeviceSegmentedReduce::Sum, flags, out + 2, 1, ends, ends + 1) |
                    CUB(DeviceScan::ExclusiveSum, flags, out + 3, n) | CUB(DeviceScan::InclusiveSum, flags, out + 3 + n, n);
  cudaFree(ends);
  return error;
}
TEST int halves_from_an_integer(const float* x, int n, float* out) {
  return CUB(DeviceReduce::Reduce, x, out, n, cub::Sum(), 0) | CUB(DeviceScan::ExclusiveScan, x, out + 1, cub::Sum(), 0, n);
}
TEST int too_little_storage(const float* x, int n, float* out) {
  return call([&](void* storage, std::size_t& bytes) { return cub::DeviceRadixSort::SortKeys(storage, bytes, x, out, n); }, 1);
}
TEST int sum_of_more_than_there_is(int n) {
  float *x, *sum;
  cudaMalloc(&x, n * sizeof(float));
  cudaMemset(x, 0, n * sizeof(float));
  cudaMalloc(&sum, sizeof(float));
  const int error = CUB(DeviceReduce::Sum, x, sum, n + 1);
  cudaFree(x);
  cudaFree(sum);
  return error;
}
