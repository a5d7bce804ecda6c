// Hopper's instructions by name: clusters of blocks, bulk copies to several of them, descriptors of tiles.

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
