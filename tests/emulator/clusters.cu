// Clusters of blocks, and copies of boxes of tensors.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

namespace {

__device__ unsigned shared_address(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }

__device__ void init(unsigned long long* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void expect(unsigned long long* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(unsigned long long* barrier, unsigned parity) {
  asm volatile("{\n.reg .pred over;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra AGAIN;\n}" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

// What each block says of its place: rank, blocks, place in the cluster, cluster in the grid, clusters.
__global__ void places(unsigned* target) {
  unsigned values[14];
  asm("mov.u32 %0, %%cluster_ctarank;\nmov.u32 %1, %%cluster_nctarank;" : "=r"(values[0]), "=r"(values[1]));
  asm("mov.u32 %0, %%cluster_ctaid.x;\nmov.u32 %1, %%cluster_ctaid.y;\nmov.u32 %2, %%cluster_ctaid.z;" : "=r"(values[2]), "=r"(values[3]), "=r"(values[4]));
  asm("mov.u32 %0, %%cluster_nctaid.x;\nmov.u32 %1, %%cluster_nctaid.y;\nmov.u32 %2, %%cluster_nctaid.z;" : "=r"(values[5]), "=r"(values[6]), "=r"(values[7]));
  asm("mov.u32 %0, %%clusterid.x;\nmov.u32 %1, %%clusterid.y;\nmov.u32 %2, %%clusterid.z;" : "=r"(values[8]), "=r"(values[9]), "=r"(values[10]));
  asm("mov.u32 %0, %%nclusterid.x;\nmov.u32 %1, %%nclusterid.y;\nmov.u32 %2, %%nclusterid.z;" : "=r"(values[11]), "=r"(values[12]), "=r"(values[13]));
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  for (int i = 0; i < 14; ++i) target[block * 14 + i] = values[i];
}

// Blocks of a cluster add up what each of them holds, one after the other, over several rounds.
__global__ void __cluster_dims__(4, 1, 1) rounds(int* target) {
  __shared__ int own, unused;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) own = static_cast<int>(blockIdx.x) + 1;
  if (blockIdx.x % 2 == 0 && threadIdx.x == 1) unused = 0;
  for (int round = 0; round < 3; ++round) {
    cluster.sync();
    int sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) sum += *cluster.map_shared_rank(&own, rank);
    cluster.sync();
    if (threadIdx.x == 0) own = sum;
  }
  if (threadIdx.x == 0) target[blockIdx.x] = own * 10 + static_cast<int>(cluster.block_rank());
  __syncthreads();
  if (cluster.thread_rank() + 1 == cluster.num_threads()) target[blockIdx.x] += 1000000;
}

// Rank 1 fills rank 0's array by a copy from its own shared memory, and tells it by an arrival.
__global__ void __cluster_dims__(2, 1, 1) across(int* target) {
  __shared__ __align__(16) int box[32], source[32];
  __shared__ unsigned long long full, told;
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    init(&full, 1);
    init(&told, 32);
  }
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
  if (rank == 0 && threadIdx.x == 0) expect(&full, sizeof box);
  if (rank == 1) {
    unsigned there, barrier, arrivals;
    asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(shared_address(box)));
    asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(barrier) : "r"(shared_address(&full)));
    asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(arrivals) : "r"(shared_address(&told)));
    source[threadIdx.x] = 3 * threadIdx.x;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there), "r"(shared_address(source)), "r"(128), "r"(barrier) : "memory");
    }
    unsigned whose;
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(whose) : "r"(there));
    if (whose == 0) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(arrivals) : "memory");
  } else {
    wait(&full, 0);
    wait(&told, 0);
    target[threadIdx.x] = box[threadIdx.x];
  }
  cg::this_cluster().sync();
}

template <int kRank>
__device__ void begin_box(void* to, const CUtensorMap* map, const int (&at)[5], unsigned long long* full) {
  const unsigned there = shared_address(to), barrier = shared_address(full);
  if constexpr (kRank == 1) {
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(there), "l"(map), "r"(at[0]), "r"(barrier) : "memory");
  } else if constexpr (kRank == 2) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(there), "l"(map), "r"(at[0]), "r"(at[1]), "r"(barrier) : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(there), "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(barrier) : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(there), "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier), "l"(0ull) : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(there), "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier) : "memory");
  }
}

struct Place {
  int at[5];
};

// Copies a box to shared memory and writes down what is there.
template <int kRank>
__global__ void load_box(const __grid_constant__ CUtensorMap map, Place place, unsigned bytes, unsigned char* target) {
  extern __shared__ __align__(1024) unsigned char tile[];
  __shared__ unsigned long long full;
  if (threadIdx.x == 0) {
    init(&full, 1);
    expect(&full, bytes);
    begin_box<kRank>(tile, &map, place.at, &full);
  }
  __syncthreads();
  wait(&full, 0);
  for (unsigned i = threadIdx.x; i < bytes; i += 32) target[i] = tile[i];
}

// Copies what is in memory to a box of two dimensions.
__global__ void store_box(const __grid_constant__ CUtensorMap map, int x, int y, unsigned bytes, const unsigned char* source) {
  extern __shared__ __align__(1024) unsigned char tile[];
  for (unsigned i = threadIdx.x; i < bytes; i += 32) tile[i] = source[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y), "r"(shared_address(tile)) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

CUtensorMap last_map;

}  // namespace

extern "C" {

int run_places(unsigned* target, int x, int y, int z, int gx, int gy, int gz) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(gx, gy, gz);
  config.blockDim = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, places, target);
}

void run_rounds(int* target, int blocks) { rounds<<<blocks, 64>>>(target); }
void run_across(int* target) { across<<<2, 32>>>(target); }

int allow_any_cluster(int is_allowed) {
  return cudaFuncSetAttribute(places, cudaFuncAttributeNonPortableClusterSizeAllowed, is_allowed);
}

int active_clusters(int size, int shared_bytes) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = size;
  config.blockDim = 1024;
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = -1;
  return cudaOccupancyMaxActiveClusters(&clusters, places, &config) == cudaSuccess ? clusters : -1;
}

// Describes a tensor through the driver's entry point.
int encode(int type, int rank, char* data, const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
           const cuuint32_t* steps, int interleave, int swizzle, int fill) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result) != cudaSuccess) return -1;
  return reinterpret_cast<Encode>(found)(&last_map, static_cast<CUtensorMapDataType>(type), rank, data, sizes, strides,
                                         box, steps, static_cast<CUtensorMapInterleave>(interleave),
                                         static_cast<CUtensorMapSwizzle>(swizzle), CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                         static_cast<CUtensorMapFloatOOBfill>(fill));
}

int entry_point_of(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion(name, &found, 12080, cudaEnableDefault, &result);
  return found != nullptr ? -1 : static_cast<int>(result);
}

void run_load_box(int rank, int x, int y, int z, int v, int w, unsigned bytes, unsigned char* target) {
  const Place place{{x, y, z, v, w}};
  if (rank == 1) load_box<1><<<1, 32, bytes>>>(last_map, place, bytes, target);
  if (rank == 2) load_box<2><<<1, 32, bytes>>>(last_map, place, bytes, target);
  if (rank == 3) load_box<3><<<1, 32, bytes>>>(last_map, place, bytes, target);
  if (rank == 4) load_box<4><<<1, 32, bytes>>>(last_map, place, bytes, target);
  if (rank == 5) load_box<5><<<1, 32, bytes>>>(last_map, place, bytes, target);
}

void run_store_box(int x, int y, unsigned bytes, const unsigned char* source) {
  store_box<<<1, 32, bytes>>>(last_map, x, y, bytes, source);
}

}  // extern "C"
