// Hopper's instructions by name: clusters of blocks, bulk copies to several of them, products of tiles by a warpgroup.

// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Where a shared variable of this block lies in another block of the cluster.
__device__ __forceinline__ uint32_t address_in(const void* pointer, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

__device__ __forceinline__ void barrier_arrive_in(uint32_t address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}

// Copies to the same place in each of the kBlocks blocks that `mask` names; the bytes count at each one's barrier.
template <int kBlocks>
__device__ __forceinline__ void bulk_share(void* to, const uint8_t* from, uint32_t bytes, uint64_t* barrier,
                                           uint16_t mask) {
  if constexpr (kBlocks == 1) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
        "%4;" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(mask)
        : "memory");
  }
}

// Rows of 128 swizzled bytes, eight of them 1024 bytes apart from the next eight; the address is in units of 16 bytes.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
  return static_cast<uint64_t>(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until no more than kLeft groups of products are under way.
template <int kLeft>
__device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// sums (64, 128) = left (64, 16) times right (128, 16) transposed, plus the sums before if `keeps`; both operands in
// shared memory, depth along memory.
__device__ __forceinline__ void multiply_halves(float (&sums)[64], uint64_t left, uint64_t right, int keeps) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
{% for first in range(0, 64, 16) %}
      "{% for i in range(first, first + 16) %}%{{ i }}{{ ", " if i < 63 else "}, " }}{% endfor %}"
{% endfor %}
      "%64, %65, keeps, 1, 1, 0, 0;\n"
      "}\n"
{% for first in range(0, 64, 4) %}
      {{ ": " if first == 0 else "  " }}{% for i in range(first, first + 4) %}"+f"(sums[{{ i }}]){{ ", " if i < 63 and i % 4 < 3 else ("," if i < 63 else "") }}{% endfor %}

{% endfor %}
      : "l"(left), "l"(right), "r"(keeps));
}
