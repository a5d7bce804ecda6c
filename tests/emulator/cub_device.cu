// CUB's algorithms of the whole device.
#include <cub/cub.cuh>

#include <utility>

#define TEST extern "C"

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
  return CUB(DeviceReduce::ReduceByKey, keys, unique, x, sums, runs, cub::Sum(), n);
}
TEST int scans(int* x, int n, int* out) {
  return CUB(DeviceScan::ExclusiveSum, x, out, n) | CUB(DeviceScan::InclusiveSum, x, out + n, n) |
         CUB(DeviceScan::InclusiveScan, x, out + 2 * n, cub::Max(), n) | CUB(DeviceScan::ExclusiveScan, x, out + 3 * n, cub::Max(), 7, n) |
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
