// Barriers, warp operations, bit functions and memory accesses of device code.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "line.h"
#include "runtime.h"

inline void __syncthreads(int line = __builtin_LINE()) {
  ::cuemu::wait_at_barrier(::cuemu::Barrier::plain, 0, line);
}
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return ::cuemu::wait_at_barrier(::cuemu::Barrier::count, predicate, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return ::cuemu::wait_at_barrier(::cuemu::Barrier::conjunction, predicate, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return ::cuemu::wait_at_barrier(::cuemu::Barrier::disjunction, predicate, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  ::cuemu::warp_operation(::cuemu::WarpOp::sync, mask, 0, 0, 32, line);
}
inline void __barrier_sync_count(unsigned number, unsigned threads, int line = __builtin_LINE()) {
  if (number == 0 && threads == blockDim.x * blockDim.y * blockDim.z) __syncthreads(line);
  else ::cuemu::named_barrier(number, threads, true, line);
}
inline void __barrier_sync(unsigned number, int line = __builtin_LINE()) {
  __barrier_sync_count(number, blockDim.x * blockDim.y * blockDim.z, line);
}
inline unsigned __activemask(int line = __builtin_LINE()) { return ::cuemu::active_lanes(line); }
inline void __threadfence() { ::cuemu::fence(true); }
inline void __threadfence_block() { ::cuemu::fence(false); }
inline void __threadfence_system() { ::cuemu::fence(true); }
inline void __nanosleep(unsigned) { ::cuemu::yield(); }
[[noreturn]] inline void __trap(int line = __builtin_LINE()) { ::cuemu::trap(line); }
inline void __brkpt() {}
inline void __prof_trigger(int) {}
// A kernel begins when the one before it in the stream has ended, so that nothing is left to wait for.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

namespace cuemu {

template <typename Value>
std::uint64_t to_bits(const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= 8);
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename Value>
Value from_bits(std::uint64_t bits) {
  Value value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

template <typename Value>
Value shuffle(WarpOp operation, unsigned mask, Value value, int parameter, int width, int line) {
  return from_bits<Value>(warp_operation(operation, mask, to_bits(value), parameter, width, line));
}

}  // namespace cuemu

// All functions that exchange values of one type. Other types (half) use this macro too.
#define CUEMU_SHUFFLES(type)                                                                                       \
  inline type __shfl_sync(unsigned mask, type value, int lane, int width = 32, int line = __builtin_LINE()) {      \
    return ::cuemu::shuffle(::cuemu::WarpOp::shuffle, mask, value, lane, width, line);                             \
  }                                                                                                                \
  inline type __shfl_up_sync(unsigned mask, type value, unsigned delta, int width = 32,                            \
                             int line = __builtin_LINE()) {                                                        \
    return ::cuemu::shuffle(::cuemu::WarpOp::shuffle_up, mask, value, static_cast<int>(delta), width, line);       \
  }                                                                                                                \
  inline type __shfl_down_sync(unsigned mask, type value, unsigned delta, int width = 32,                          \
                               int line = __builtin_LINE()) {                                                      \
    return ::cuemu::shuffle(::cuemu::WarpOp::shuffle_down, mask, value, static_cast<int>(delta), width, line);     \
  }                                                                                                                \
  inline type __shfl_xor_sync(unsigned mask, type value, int lane_mask, int width = 32,                            \
                              int line = __builtin_LINE()) {                                                       \
    return ::cuemu::shuffle(::cuemu::WarpOp::shuffle_xor, mask, value, lane_mask, width, line);                    \
  }
#define CUEMU_MATCHES(type)                                                                                        \
  inline unsigned __match_any_sync(unsigned mask, type value, int line = __builtin_LINE()) {                       \
    return static_cast<unsigned>(                                                                                  \
        ::cuemu::warp_operation(::cuemu::WarpOp::match_any, mask, ::cuemu::to_bits(value), 0, 32, line));          \
  }                                                                                                                \
  inline unsigned __match_all_sync(unsigned mask, type value, int* all_same, int line = __builtin_LINE()) {        \
    const unsigned lanes = static_cast<unsigned>(                                                                  \
        ::cuemu::warp_operation(::cuemu::WarpOp::match_all, mask, ::cuemu::to_bits(value), 0, 32, line));          \
    *all_same = lanes != 0;                                                                                        \
    return lanes;                                                                                                  \
  }
#define CUEMU_FOR_SHUFFLED_TYPES(macro)                                                       \
  macro(int) macro(unsigned int) macro(long) macro(unsigned long) macro(long long)            \
  macro(unsigned long long) macro(float) macro(double)
CUEMU_FOR_SHUFFLED_TYPES(CUEMU_SHUFFLES)
CUEMU_FOR_SHUFFLED_TYPES(CUEMU_MATCHES)
#undef CUEMU_FOR_SHUFFLED_TYPES
#undef CUEMU_MATCHES

#define CUEMU_WARP_FUNCTION(result, name, value_type, operation)                              \
  inline result name(unsigned mask, value_type value, int line = __builtin_LINE()) {          \
    return static_cast<result>(::cuemu::warp_operation(::cuemu::WarpOp::operation, mask,      \
                                                       ::cuemu::to_bits(value), 0, 32, line)); \
  }
CUEMU_WARP_FUNCTION(unsigned, __ballot_sync, int, ballot)
CUEMU_WARP_FUNCTION(int, __any_sync, int, any)
CUEMU_WARP_FUNCTION(int, __all_sync, int, all)
inline int __uni_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  const unsigned votes = __ballot_sync(mask, predicate, line);
  return votes == 0 || votes == mask;
}
CUEMU_WARP_FUNCTION(int, __reduce_add_sync, int, reduce_add)
CUEMU_WARP_FUNCTION(unsigned, __reduce_add_sync, unsigned, reduce_add)
CUEMU_WARP_FUNCTION(int, __reduce_min_sync, int, reduce_min)
CUEMU_WARP_FUNCTION(unsigned, __reduce_min_sync, unsigned, reduce_min_unsigned)
CUEMU_WARP_FUNCTION(int, __reduce_max_sync, int, reduce_max)
CUEMU_WARP_FUNCTION(unsigned, __reduce_max_sync, unsigned, reduce_max_unsigned)
CUEMU_WARP_FUNCTION(unsigned, __reduce_and_sync, unsigned, reduce_and)
CUEMU_WARP_FUNCTION(unsigned, __reduce_or_sync, unsigned, reduce_or)
CUEMU_WARP_FUNCTION(unsigned, __reduce_xor_sync, unsigned, reduce_xor)
#undef CUEMU_WARP_FUNCTION

// Cached, streaming and volatile-like accesses are plain accesses here. Only the checking mode knows constant memory, which
// nothing writes during a launch.
namespace cuemu {
#ifdef CUEMU_CHECKED
CUEMU_INLINE void note_constant_read(const void* address, std::size_t bytes) { check_constant_read(address, bytes); }
#else
CUEMU_INLINE void note_constant_read(const void*, std::size_t) {}
#endif
}  // namespace cuemu
template <typename T> CUEMU_INLINE T __ldg(const T* address) {
  const T value = *address;
  ::cuemu::note_constant_read(address, sizeof(T));
  return value;
}
template <typename T> CUEMU_INLINE T __ldca(const T* address) { return *address; }
template <typename T> CUEMU_INLINE T __ldcg(const T* address) { return *address; }
template <typename T> CUEMU_INLINE T __ldcs(const T* address) { return *address; }
template <typename T> CUEMU_INLINE T __ldlu(const T* address) { return *address; }
template <typename T> CUEMU_INLINE T __ldcv(const T* address) {
  ::cuemu::changed_nothing();
  return *const_cast<const volatile T*>(address);
}
template <typename T> CUEMU_INLINE void __stwb(T* address, std::type_identity_t<T> value) { *address = value; }
template <typename T> CUEMU_INLINE void __stcg(T* address, std::type_identity_t<T> value) { *address = value; }
template <typename T> CUEMU_INLINE void __stcs(T* address, std::type_identity_t<T> value) { *address = value; }
template <typename T> CUEMU_INLINE void __stwt(T* address, std::type_identity_t<T> value) { *address = value; }

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __popcll(unsigned long long bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __clzll(long long bits) { return std::countl_zero(static_cast<unsigned long long>(bits)); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline unsigned long long __brevll(unsigned long long bits) {
  unsigned long long reversed = 0;
  for (int i = 0; i < 64; ++i) reversed |= (bits >> i & 1) << (63 - i);
  return reversed;
}
inline unsigned __brev(unsigned bits) { return static_cast<unsigned>(__brevll(bits) >> 32); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  unsigned permuted = 0;
  for (int i = 0; i < 4; ++i) {
    permuted |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return permuted;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits << (shift & 31) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits << (shift < 32 ? shift : 32) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits >> (shift & 31));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(bits >> (shift < 32 ? shift : 32));
}
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  if (offset == 0) return mask >> base & 1 ? base : ~0u;
  int left = offset < 0 ? -offset : offset;
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += offset < 0 ? -1 : 1) {
    if ((mask >> at & 1) != 0 && --left == 0) return static_cast<unsigned>(at);
  }
  return ~0u;
}

inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
inline unsigned long long __globaltimer() { return static_cast<unsigned long long>(clock64()); }
inline unsigned __isShared(const void* address) { return ::cuemu::is_shared(address); }
inline unsigned __isLocal(const void* address) { return ::cuemu::is_local(address); }
inline unsigned __isGlobal(const void* address) { return !::cuemu::is_shared(address) && !::cuemu::is_local(address); }
#define CUEMU_ADDRESS_OF(space)                                                       \
  template <typename T> inline std::size_t __cvta_generic_to_##space(T* pointer) {    \
    return reinterpret_cast<std::size_t>(pointer);                                    \
  }
#define CUEMU_ADDRESSES_OF(space)                                                     \
  CUEMU_ADDRESS_OF(space)                                                             \
  inline void* __cvta_##space##_to_generic(std::size_t address) { return reinterpret_cast<void*>(address); }
CUEMU_ADDRESS_OF(shared)
CUEMU_ADDRESSES_OF(global)
CUEMU_ADDRESSES_OF(local)
CUEMU_ADDRESSES_OF(constant)
CUEMU_ADDRESSES_OF(grid_constant)
#undef CUEMU_ADDRESSES_OF
#undef CUEMU_ADDRESS_OF
inline void* __cvta_shared_to_generic(std::size_t address) {
  return address >> 32 != 0 ? reinterpret_cast<void*>(address)
                            : static_cast<void*>(::cuemu::shared_pointer(static_cast<std::uint32_t>(address)));
}

// What sm_90_rt.h declares of clusters.
inline unsigned __isCtaShared(const void* address) { return ::cuemu::is_shared_of_block(address); }
inline unsigned __isClusterShared(const void* address) { return ::cuemu::is_shared(address); }
inline unsigned __clusterDimIsSpecified() { return ::cuemu::is_explicit_cluster(); }
inline dim3 __clusterDim() { return ::cuemu::cluster_place().size; }
inline dim3 __clusterRelativeBlockIdx() { return ::cuemu::cluster_place().index; }
inline dim3 __clusterGridDimInClusters() { return ::cuemu::cluster_place().count; }
inline dim3 __clusterIdx() { return ::cuemu::cluster_place().id; }
inline unsigned __clusterRelativeBlockRank() { return ::cuemu::cluster_place().rank; }
inline unsigned __clusterSizeInBlocks() { return ::cuemu::cluster_place().blocks; }
inline void __cluster_barrier_arrive(CUEMU_LINE) { ::cuemu::arrive_at_cluster_barrier(true, line.number); }
inline void __cluster_barrier_arrive_relaxed(CUEMU_LINE) { ::cuemu::arrive_at_cluster_barrier(false, line.number); }
inline void __cluster_barrier_wait(CUEMU_LINE) { ::cuemu::wait_at_cluster_barrier(true, line.number); }
inline void* __cluster_map_shared_rank(const void* address, unsigned rank, CUEMU_LINE) {
  char* const own = const_cast<char*>(static_cast<const char*>(address));
  return ::cuemu::shared_of_rank(own, rank, line.number);
}
inline unsigned __cluster_query_shared_rank(const void* address, CUEMU_LINE) {
  return ::cuemu::rank_of_shared(static_cast<const char*>(address), line.number);
}
inline void __threadfence_cluster() { ::cuemu::fence_cluster(true); }
