// Thrust's algorithms, as programs call them: with pointers of the device, policies, vectors, and iterators that compute.
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/find.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/reverse_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/logical.h>
#include <thrust/memory.h>
#include <thrust/pair.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/replace.h>
#include <thrust/reverse.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/tabulate.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

#define TEST extern "C"

struct Square {
  __host__ __device__ float operator()(float x) const { return x * x; }
};
struct IsNegative {
  __host__ __device__ bool operator()(float x) const { return x < 0; }
};
struct Saxpy {
  float a;
  template <typename Tuple>
  __host__ __device__ void operator()(Tuple t) const {
    thrust::get<2>(t) = a * thrust::get<0>(t) + thrust::get<1>(t);
  }
};

TEST int reductions(const float* x, int n, float* out) {
  thrust::device_ptr<const float> first(x);
  thrust::device_vector<float> v(first, first + n);
  out[0] = thrust::reduce(v.begin(), v.end());
  out[1] = thrust::reduce(thrust::device, x, x + n, -1.0f, thrust::maximum<float>());
  out[2] = thrust::transform_reduce(thrust::cuda::par.on(0), x, x + n, Square(), 0.0f, thrust::plus<float>());
  out[3] = thrust::inner_product(v.begin(), v.end(), v.begin(), 1.0f);
  out[4] = thrust::max_element(v.begin(), v.end()) - v.begin();
  out[5] = thrust::distance(x, thrust::min_element(thrust::device, x, x + n));
  out[6] = *thrust::max_element(v.begin(), v.end(), thrust::greater<float>());
  out[7] = thrust::count_if(v.begin(), v.end(), IsNegative());
  const auto ends = thrust::minmax_element(v.begin(), v.end());
  out[8] = *ends.second - *ends.first;
  out[9] = thrust::any_of(v.begin(), v.end(), IsNegative()) + 2 * thrust::all_of(v.begin(), v.end(), IsNegative());
  out[10] = thrust::find(v.begin(), v.end(), x[n - 1]) - v.begin();
  out[11] = thrust::reduce(thrust::make_transform_iterator(v.begin(), Square()), thrust::make_transform_iterator(v.end(), Square()));
  return cudaGetLastError();
}
TEST int elementwise(const float* x, const float* y, int n, float* out) {
  thrust::transform(thrust::device, x, x + n, out, Square());
  thrust::transform(thrust::device, x, x + n, y, out + n, thrust::minus<float>());
  thrust::device_ptr<float> o(out);
  auto both = thrust::make_zip_iterator(thrust::make_tuple(thrust::device_pointer_cast(x), thrust::device_pointer_cast(y), o + 2 * n));
  thrust::for_each(both, both + n, Saxpy{2.0f});
  float* more = out + 3 * n;
  thrust::for_each_n(thrust::device, thrust::counting_iterator<int>(0), n, [=] __device__(int i) { more[i] = x[n - 1 - i]; });
  thrust::fill(o + 4 * n, o + 5 * n, 0.5f);
  thrust::sequence(o + 5 * n, o + 6 * n, 3.0f, 2.0f);
  thrust::copy(thrust::device, thrust::make_reverse_iterator(x + n), thrust::make_reverse_iterator(x), out + 6 * n);
  thrust::tabulate(thrust::device, out + 7 * n, out + 8 * n, [] __device__(int i) { return i / 2; });
  return cudaGetLastError();
}
TEST int scans(const int* x, int n, int* out) {
  thrust::inclusive_scan(thrust::device, x, x + n, out);
  thrust::exclusive_scan(thrust::device, x, x + n, out + n);
  thrust::inclusive_scan(thrust::device, x, x + n, out + 2 * n, thrust::maximum<int>());
  const auto end = thrust::exclusive_scan(thrust::device, x, x + n, out + 3 * n, 10);
  return end == out + 4 * n ? cudaGetLastError() : -1;
}
TEST int sorts(float* keys, int* order, float* alone, int n) {
  thrust::device_ptr<float> k(keys);
  thrust::sequence(thrust::device, order, order + n);
  thrust::stable_sort_by_key(k, k + n, thrust::device_pointer_cast(order));
  thrust::sort(thrust::device, alone, alone + n, thrust::greater<float>());
  return thrust::is_sorted(k, k + n) ? cudaGetLastError() : -1;
}
TEST int selections(const int* x, int n, int* out, int* counts) {
  const auto is_odd = [] __device__(int one) { return one % 2 != 0; };
  counts[0] = thrust::copy_if(thrust::device, x, x + n, out, is_odd) - out;
  thrust::device_vector<int> v(n);
  thrust::copy(thrust::device, x, x + n, v.begin());
  v.erase(thrust::remove_if(v.begin(), v.end(), is_odd), v.end());
  counts[1] = v.size();
  thrust::copy(thrust::device, v.begin(), v.end(), out + n);
  thrust::copy(thrust::device, x, x + n, out + 2 * n);
  counts[2] = thrust::unique(thrust::device, out + 2 * n, out + 3 * n) - (out + 2 * n);
  return cudaGetLastError();
}
TEST int by_key(const int* keys, const int* x, int n, int* unique, int* sums) {
  const auto ends = thrust::reduce_by_key(thrust::device, keys, keys + n, x, unique, sums);
  thrust::reduce_by_key(thrust::device, keys, keys + n, thrust::constant_iterator<int>(1), thrust::make_discard_iterator(), sums + n);
  return ends.first - unique;
}
TEST int indexed(const int* map, const int* x, int n, int* out) {
  thrust::gather(thrust::device, map, map + n, x, out);
  thrust::scatter(thrust::device, x, x + n, map, out + n);
  thrust::copy(thrust::device, thrust::make_permutation_iterator(x, map), thrust::make_permutation_iterator(x, map + n), out + 2 * n);
  thrust::lower_bound(thrust::device, out + 3 * n, out + 4 * n, x, x + n, out + 4 * n);
  thrust::upper_bound(thrust::device, out + 3 * n, out + 4 * n, x, x + n, out + 5 * n);
  thrust::reverse(thrust::device, out, out + n);
  return cudaGetLastError();
}
// Thrust takes functions that change themselves, and compares neighbours with them.
struct SameQuotient {
  int by, calls;
  __host__ __device__ bool operator()(int a, int b) {
    ++calls;
    return a / by == b / by;
  }
};
TEST int runs(const int* keys, int n, int* out, int* places, int* counts) {
  const SameQuotient same{10, 0};
  counts[0] = thrust::unique_copy(thrust::device, keys, keys + n, out, same) - out;
  thrust::copy(thrust::device, keys, keys + n, out + n);
  counts[1] = thrust::unique(thrust::device, out + n, out + 2 * n, same) - (out + n);
  thrust::copy(thrust::device, keys, keys + n, out + 2 * n);
  thrust::sequence(thrust::device, places, places + n);
  counts[2] = thrust::unique_by_key(thrust::device, out + 2 * n, out + 3 * n, places).second - places;
  const auto ends = thrust::unique_by_key_copy(thrust::device, keys, keys + n, thrust::counting_iterator<int>(0),
                                               thrust::make_discard_iterator(), places + n, same);
  counts[3] = ends.second - (places + n);
  counts[4] = thrust::reduce_by_key(thrust::device, keys, keys + n, keys, out + 3 * n, places + 2 * n, same, thrust::maximum<int>()).first -
              (out + 3 * n);
  return cudaGetLastError();
}
TEST int scans_by_key(const int* keys, const int* x, int n, int* out) {
  thrust::inclusive_scan_by_key(thrust::device, keys, keys + n, x, out);
  thrust::exclusive_scan_by_key(thrust::device, keys, keys + n, x, out + n);
  thrust::inclusive_scan_by_key(thrust::device, keys, keys + n, x, out + 2 * n, SameQuotient{10, 0}, thrust::maximum<int>());
  const auto end = thrust::exclusive_scan_by_key(thrust::device, keys, keys + n, x, out + 3 * n, 7);
  return end == out + 4 * n ? cudaGetLastError() : -1;
}
struct Compose {  // of functions a * x + b
  using Line = thrust::tuple<int, int>;
  __host__ __device__ Line operator()(const Line& f, const Line& g) const {
    return thrust::make_tuple(thrust::get<0>(f) * thrust::get<0>(g), thrust::get<1>(f) * thrust::get<0>(g) + thrust::get<1>(g));
  }
};
TEST int scan_of_pairs_from_the_end(const int* slopes, const int* x, int n, int* product, int* out) {
  const auto in = thrust::make_zip_iterator(thrust::make_tuple(thrust::device_pointer_cast(slopes), thrust::device_pointer_cast(x)));
  const auto to = thrust::make_zip_iterator(thrust::make_tuple(thrust::device_pointer_cast(product), thrust::device_pointer_cast(out)));
  thrust::inclusive_scan(thrust::make_reverse_iterator(in + n), thrust::make_reverse_iterator(in), thrust::make_reverse_iterator(to + n),
                         Compose());
  return cudaGetLastError();
}
TEST int differences(const int* x, int n, int* out) {
  thrust::adjacent_difference(thrust::device, x, x + n, out);
  thrust::adjacent_difference(thrust::device, x, x + n, out + n, thrust::not_equal_to<int>());
  thrust::copy(thrust::device, x, x + n, out + 2 * n);
  const auto end = thrust::adjacent_difference(thrust::device, out + 2 * n, out + 3 * n, out + 2 * n, thrust::plus<int>());
  return end == out + 3 * n ? cudaGetLastError() : -1;
}
TEST int searches(const int* falling, int n, int x, int* found) {
  found[0] = thrust::lower_bound(thrust::device, falling, falling + n, x, thrust::greater<int>()) - falling;
  found[1] = thrust::upper_bound(thrust::device, falling, falling + n, x, thrust::greater<int>()) - falling;
  found[2] = thrust::binary_search(thrust::device, falling, falling + n, x, thrust::greater<int>());
  found[3] = thrust::is_sorted(thrust::device, falling, falling + n, thrust::greater<int>());
  return cudaGetLastError();
}
TEST int memory_of_a_policy(int n) {
  const auto raw = thrust::malloc<int>(thrust::device, n);
  thrust::sequence(thrust::device, raw, raw + n);
  thrust::device_vector<int> v(n);
  thrust::copy(thrust::device, raw.get(), raw.get() + n, v.begin());
  thrust::free(thrust::device, raw);
  const int last = v[n - 1];
  return last == n - 1 ? cudaGetLastError() : -1;
}
TEST int vectors(int n) {
  thrust::host_vector<int> h(n);
  for (int i = 0; i < n; ++i) h[i] = i;
  thrust::device_vector<int> d = h;
  d.push_back(n);
  d[0] = 5;
  d.resize(n + 3, 7);
  thrust::sort(h.begin(), h.end(), thrust::greater<int>());  // by the host
  const thrust::host_vector<int> back = d;
  const int* raw = thrust::raw_pointer_cast(d.data());
  int last = 0;
  cudaMemcpy(&last, raw + n, sizeof last, cudaMemcpyDeviceToHost);
  const int first = d[0];
  return back.size() == n + 3u && back[n] == n && back[n + 2] == 7 && last == n && first == 5 && h[0] == n - 1 ? cudaGetLastError() : -1;
}
TEST int sum_of_more_than_there_is(int n) {
  thrust::device_vector<float> v(n);
  return thrust::reduce(v.begin(), v.end() + 1) == 0 ? 0 : -1;
}
// Plain pointers without a policy are the host's.
TEST int sort_without_a_policy(int n) {
  thrust::device_vector<float> v(n, 2.0f);
  float* const raw = thrust::raw_pointer_cast(v.data());
  thrust::replace_if(raw, raw + n, IsNegative(), 0.0f);
  return 0;
}

__global__ void sort_rows(float* x, int n) {
  float* const row = x + n * threadIdx.x;
  thrust::sort(thrust::seq, row, row + n);
  x[n * (blockDim.x + threadIdx.x)] = thrust::reduce(thrust::seq, row, row + n);
}
TEST int in_a_kernel(float* x, int rows, int n) {
  float* own;
  cudaMalloc(&own, 2 * rows * n * sizeof(float));
  cudaMemcpy(own, x, 2 * rows * n * sizeof(float), cudaMemcpyHostToDevice);
  sort_rows<<<1, rows>>>(own, n);
  cudaMemcpy(x, own, 2 * rows * n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(own);
  return cudaGetLastError();
}
TEST float halves_from_an_integer(const float* x, int n, float* out) {
  thrust::exclusive_scan(thrust::device, x, x + n, out, 0);
  return thrust::reduce(thrust::device, x, x + n, 0);
}
