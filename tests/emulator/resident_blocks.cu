// Blocks that wait for each other: the grid's barrier, and flags that another block sets.
#include <cooperative_groups.h>

#define TEST extern "C"
namespace cg = cooperative_groups;

// Each step sums what all blocks wrote in the step before.
__global__ void steps(int* sums, int count) {
  __shared__ int part;
  for (int step = 1; step < count; ++step) {
    if (threadIdx.x == 0) part = 0;
    __syncthreads();
    if (threadIdx.x < gridDim.x) atomicAdd(&part, sums[(step - 1) * gridDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) sums[step * gridDim.x + blockIdx.x] = part % 1000 + blockIdx.x;
    cg::this_grid().sync();
  }
}
TEST int run_steps(int* sums, int count, int blocks, int threads) {
  void* arguments[] = {&sums, &count};
  return cudaLaunchCooperativeKernel((void*)steps, dim3(blocks), dim3(threads), arguments, 0, nullptr);
}

__global__ void leaves(int* out, int first_to_leave) {
  if (static_cast<int>(blockIdx.x) >= first_to_leave) return;
  if (threadIdx.x == 0) out[blockIdx.x] = 1;
  cg::this_grid().sync();
  if (threadIdx.x == 0) out[blockIdx.x] = 2;
}
TEST int run_leaves(int* out, int first_to_leave, int blocks) {
  void* arguments[] = {&out, &first_to_leave};
  return cudaLaunchCooperativeKernel(leaves, blocks, 64, arguments);
}
TEST void run_ordinary(int* out, int blocks) { leaves<<<blocks, 64>>>(out, blocks); }

__global__ void threads_leave(int* out) {
  if (threadIdx.x % 3 == 0) return;
  cg::this_grid().sync();
  atomicAdd(out, 1);
}
TEST int run_threads_leave(int* out) {
  void* arguments[] = {&out};
  return cudaLaunchCooperativeKernel((const void*)threads_leave, 3, 60, arguments);
}

__global__ void two_barriers(int) {
  if (threadIdx.x < 7) {
    __syncthreads();
  } else {
    cg::this_grid().sync();
  }
}
TEST int run_two_barriers() {
  int unused = 0;
  void* arguments[] = {&unused};
  return cudaLaunchCooperativeKernel(two_barriers, 2, 32, arguments);
}

__global__ void idle(int* ran) {
  extern __shared__ int dynamic[];
  if (threadIdx.x == 0) dynamic[0] = 1;
  if (threadIdx.x == 0) atomicAdd(ran, dynamic[0]);
}
TEST int run_idle(int* ran, int blocks, int threads, int shared_bytes) {
  cudaFuncSetAttribute(idle, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  void* arguments[] = {&ran};
  return cudaLaunchCooperativeKernel(idle, blocks, threads, arguments, shared_bytes);
}
TEST int most_blocks(int threads, int shared_bytes) {
  int each = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, idle, threads, shared_bytes);
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  int multiprocessors = 0, cooperative = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0);
  return cooperative == 1 && multiprocessors == properties.multiProcessorCount ? each * multiprocessors : -1;
}

// Every block waits for the flag of its neighbour; `by` says how it looks at the flag.
__global__ void chain(int* flags, int* order, int step, int by) {
  const int block = blockIdx.x, neighbour = block + step;
  if (threadIdx.x == 0) {
    if (neighbour >= 0 && neighbour < static_cast<int>(gridDim.x)) {
      if (by == 0) {
        while (atomicCAS(&flags[neighbour], 1, 1) != 1) {}
      } else if (by == 1) {
        while (atomicAdd(&flags[neighbour], 0) == 0) {}
      } else if (by == 2) {
        while (static_cast<volatile int*>(flags)[neighbour] == 0) __nanosleep(20);
      } else if (by == 3) {
        while (static_cast<volatile int*>(flags)[neighbour] == 0) __threadfence();
      } else {
        volatile int* const seen = flags;
        while (seen[neighbour] == 0) {}
        while (seen[neighbour] == 0);
        do {} while (seen[neighbour] == 0);
        do ++by; while (seen[neighbour] == 0);
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    order[block] = neighbour >= 0 && neighbour < static_cast<int>(gridDim.x) ? order[neighbour] + 1 : 0;
    __threadfence();
    atomicExch(&flags[block], 1);
  }
}
TEST void run_chain(int* flags, int* order, int blocks, int threads, int step, int by) {
  chain<<<blocks, threads>>>(flags, order, step, by);
}

// The same with all threads in the loop that waits, from barrier to barrier or from vote to vote.
__global__ void chain_of_all(int* flags, int* order, int step, int by) {
  __shared__ int told;
  const int block = blockIdx.x, neighbour = block + step;
  const bool waits = neighbour >= 0 && neighbour < static_cast<int>(gridDim.x);
  volatile int* const seen = flags + (waits ? neighbour : block);
  if (waits && by == 0) {
    while (__syncthreads_or(*seen == 0)) {}
  } else if (waits && by == 1) {
    int flag = 0;
    do { flag = *seen; } while (__any_sync(0xffffffffu, flag == 0));
  } else if (waits && by == 2) {
    for (bool is_set = false; !is_set; is_set = __shfl_sync(0xffffffffu, is_set, 0)) {
      if (threadIdx.x % 32 == 0) is_set = atomicAdd(&flags[neighbour], 0) == 1;
    }
  } else if (waits) {
    for (int is_set = 0; is_set == 0;) {
      if (threadIdx.x == 0) told = *seen;
      __syncthreads();
      is_set = told;
      __syncthreads();
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    order[block] = waits ? order[neighbour] + 1 : 0;
    __threadfence();
    atomicExch(&flags[block], 1);
  }
}
TEST void run_chain_of_all(int* flags, int* order, int blocks, int threads, int step, int by) {
  chain_of_all<<<blocks, threads>>>(flags, order, step, by);
}

// The lanes of a branch ask which of them are there.
__global__ void branches(unsigned* out) {
  const int lane = threadIdx.x % 32;
  unsigned active;
  if (lane % 4 == 1) {
    active = __activemask();
    const int first = __ffs(active) - 1;
    if (__shfl_sync(active, lane, first) != first) active = 0;
  } else {
    active = __activemask();
  }
  out[threadIdx.x] = active;
}
TEST void run_branches(unsigned* out, int threads) { branches<<<1, threads>>>(out); }
