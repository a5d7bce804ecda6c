// CUDA's cooperative groups: the grid, the cluster, the block, tiles of up to 32 threads, and coalesced groups.
#pragma once

#include "cuda_runtime.h"
#include "cuemu/lanes.h"

namespace cooperative_groups {

// The base of every group, with the operations that all groups have.
class thread_group {
 public:
  void sync(int line = __builtin_LINE()) const {
    switch (kind_) {
      case Kind::grid: return ::cuemu::wait_at_grid_barrier(line);
      case Kind::cluster:
        ::cuemu::arrive_at_cluster_barrier(true, line);
        return ::cuemu::wait_at_cluster_barrier(true, line);
      case Kind::block: return __syncthreads(line);
      case Kind::lanes: return __syncwarp(lanes_.mask(), line);
    }
  }
  unsigned long long num_threads() const {
    if (kind_ == Kind::lanes) return lanes_.size();
    const unsigned long long in_block = ::cuemu::volume(blockDim);
    if (kind_ == Kind::cluster) return in_block * ::cuemu::cluster_place().blocks;
    return kind_ == Kind::block ? in_block : in_block * ::cuemu::volume(gridDim);
  }
  unsigned long long size() const { return num_threads(); }
  unsigned long long thread_rank() const {
    if (kind_ == Kind::lanes) return lanes_.rank();
    const unsigned long long in_block = ::cuemu::position_in(threadIdx, blockDim);
    if (kind_ == Kind::block) return in_block;
    const unsigned long long block =
        kind_ == Kind::cluster ? ::cuemu::cluster_place().rank : ::cuemu::position_in(blockIdx, gridDim);
    return block * ::cuemu::volume(blockDim) + in_block;
  }

 protected:
  enum class Kind { grid, cluster, block, lanes };
  explicit thread_group(Kind kind, ::cuemu::Lanes lanes = ::cuemu::Lanes(0)) : kind_(kind), lanes_(lanes) {}

  Kind kind_;
  ::cuemu::Lanes lanes_;

  friend thread_group tiled_partition(const thread_group& parent, unsigned size);
};

class grid_group : public thread_group {
 public:
  struct arrival_token {};
  grid_group() : thread_group(Kind::grid) {}
  arrival_token barrier_arrive() const { return {}; }
  void barrier_wait(arrival_token&&, int line = __builtin_LINE()) const { sync(line); }
  bool is_valid() const { return ::cuemu::in_cooperative_launch(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 dim_threads() {
    return {gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z};
  }
  static dim3 block_index() { return blockIdx; }
  static dim3 thread_index() {
    return {blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
            blockIdx.z * blockDim.z + threadIdx.z};
  }
  static unsigned long long num_blocks() { return ::cuemu::volume(gridDim); }
  static unsigned long long block_rank() { return ::cuemu::position_in(blockIdx, gridDim); }
};

class cluster_group : public thread_group {
 public:
  struct arrival_token {};
  cluster_group() : thread_group(Kind::cluster) {}
  static arrival_token barrier_arrive(int line = __builtin_LINE()) {
    ::cuemu::arrive_at_cluster_barrier(true, line);
    return {};
  }
  static void barrier_wait(int line = __builtin_LINE()) { ::cuemu::wait_at_cluster_barrier(true, line); }
  static void barrier_wait(arrival_token&&, int line = __builtin_LINE()) { ::cuemu::wait_at_cluster_barrier(true, line); }
  static unsigned block_rank() { return ::cuemu::cluster_place().rank; }
  static unsigned num_blocks() { return ::cuemu::cluster_place().blocks; }
  static dim3 block_index() { return ::cuemu::cluster_place().index; }
  static dim3 dim_blocks() { return ::cuemu::cluster_place().size; }
  static dim3 group_dim() { return dim_blocks(); }
  static dim3 dim_threads() {
    const dim3 blocks = dim_blocks();
    return {blocks.x * blockDim.x, blocks.y * blockDim.y, blocks.z * blockDim.z};
  }
  // Where a shared variable of this block lies in the block of another rank.
  template <typename T>
  static T* map_shared_rank(T* own, unsigned rank, int line = __builtin_LINE()) {
    return reinterpret_cast<T*>(
        ::cuemu::shared_of_rank(const_cast<char*>(reinterpret_cast<const volatile char*>(own)), rank, line));
  }
  static unsigned query_shared_rank(const void* address, int line = __builtin_LINE()) {
    return ::cuemu::rank_of_shared(static_cast<const char*>(address), line);
  }
};

class thread_block : public thread_group {
 public:
  struct arrival_token {};
  thread_block() : thread_group(Kind::block) {}
  // Arriving does not wait here. All threads meet in the wait that follows.
  arrival_token barrier_arrive() const { return {}; }
  void barrier_wait(arrival_token&&, int line = __builtin_LINE()) const { sync(line); }
  static void sync(int line = __builtin_LINE()) { __syncthreads(line); }
  static unsigned num_threads() { return ::cuemu::volume(blockDim); }
  static unsigned size() { return num_threads(); }
  static unsigned thread_rank() { return ::cuemu::position_in(threadIdx, blockDim); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};

// Lanes of one warp, with the operations on their values.
class coalesced_group : public thread_group {
 public:
  explicit coalesced_group(::cuemu::Lanes lanes, unsigned meta_rank = 0, unsigned meta_size = 1)
      : thread_group(Kind::lanes, lanes), meta_rank_(meta_rank), meta_size_(meta_size) {}

  unsigned num_threads() const { return lanes_.size(); }
  unsigned size() const { return lanes_.size(); }
  unsigned thread_rank() const { return lanes_.rank(); }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

  template <typename Value>
  Value shfl(Value value, unsigned source, int line = __builtin_LINE()) const {
    return lanes_.from_rank(source % lanes_.size(), value, line);
  }
  template <typename Value>
  Value shfl_up(Value value, unsigned delta, int line = __builtin_LINE()) const {
    const unsigned rank = lanes_.rank();
    return lanes_.from_rank(delta <= rank ? rank - delta : rank, value, line);
  }
  template <typename Value>
  Value shfl_down(Value value, unsigned delta, int line = __builtin_LINE()) const {
    const unsigned rank = lanes_.rank();
    return lanes_.from_rank(delta < lanes_.size() - rank ? rank + delta : rank, value, line);
  }
  int any(int predicate, int line = __builtin_LINE()) const { return __any_sync(lanes_.mask(), predicate, line); }
  int all(int predicate, int line = __builtin_LINE()) const { return __all_sync(lanes_.mask(), predicate, line); }
  unsigned ballot(int predicate, int line = __builtin_LINE()) const {
    return lanes_.packed(__ballot_sync(lanes_.mask(), predicate, line));
  }
  template <typename Value>
  unsigned match_any(Value value, int line = __builtin_LINE()) const {
    return lanes_.packed(__match_any_sync(lanes_.mask(), value, line));
  }
  template <typename Value>
  unsigned match_all(Value value, int& all_same, int line = __builtin_LINE()) const {
    return lanes_.packed(__match_all_sync(lanes_.mask(), value, &all_same, line));
  }

  // The group of the threads with the same label as the calling one.
  template <typename Label>
  coalesced_group split(Label label, int line) const {
    return coalesced_group(::cuemu::Lanes(__match_any_sync(lanes_.mask(), label, line)));
  }
  // The group of `size` consecutive ranks that contains this thread.
  coalesced_group part(unsigned size) const {
    const unsigned number = lanes_.rank() / size;
    return coalesced_group(lanes_.ranks(number * size, size), number, (lanes_.size() + size - 1) / size);
  }

 private:
  unsigned meta_rank_;
  unsigned meta_size_;
};

template <unsigned Size, typename Parent = void>
class thread_block_tile : public coalesced_group {
  static_assert(Size <= 32,
                "cuemu-unsupported: tiles of more than 32 threads: combine the results of tiles of 32 in shared memory");
  static_assert(Size > 0 && (Size & (Size - 1)) == 0, "the size of a tile is a power of two");

 public:
  explicit thread_block_tile(const coalesced_group& lanes) : coalesced_group(lanes) {}
  template <typename Other>
  thread_block_tile(const thread_block_tile<Size, Other>& other) : coalesced_group(other) {}

  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  template <typename Value>
  Value shfl_xor(Value value, unsigned mask, int line = __builtin_LINE()) const {
    const unsigned rank = thread_rank();
    return lanes_.from_rank((rank ^ mask) < Size ? rank ^ mask : rank, value, line);
  }
};

inline grid_group this_grid() { return {}; }
inline cluster_group this_cluster() { return {}; }
inline thread_block this_thread_block() { return {}; }
inline coalesced_group coalesced_threads(int line = __builtin_LINE()) {
  return coalesced_group(::cuemu::Lanes(__activemask(line)));
}

template <unsigned Size>
thread_block_tile<Size, thread_block> tiled_partition(const thread_block& block) {
  const unsigned rank = block.thread_rank();
  const unsigned first_lane = rank % 32 / Size * Size;
  return thread_block_tile<Size, thread_block>(coalesced_group(::cuemu::Lanes::range(first_lane, Size), rank / Size,
                                                               (block.num_threads() + Size - 1) / Size));
}
template <unsigned Size, unsigned ParentSize, typename Parent>
thread_block_tile<Size, thread_block_tile<ParentSize, Parent>> tiled_partition(
    const thread_block_tile<ParentSize, Parent>& parent) {
  static_assert(Size < ParentSize, "a tile's parts are smaller than the tile");
  return thread_block_tile<Size, thread_block_tile<ParentSize, Parent>>(parent.part(Size));
}
inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) { return parent.part(size); }
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
  if (parent.kind_ == thread_group::Kind::lanes) return coalesced_group(parent.lanes_).part(size);
  return coalesced_group(::cuemu::Lanes::range(thread_block::thread_rank() % 32 / size * size, size));
}

template <typename Label>
coalesced_group labeled_partition(const coalesced_group& parent, Label label, int line = __builtin_LINE()) {
  return parent.split(label, line);
}
inline coalesced_group binary_partition(const coalesced_group& parent, bool predicate, int line = __builtin_LINE()) {
  return parent.split(static_cast<int>(predicate), line);
}

template <typename Group>
void sync(const Group& group, int line = __builtin_LINE()) {
  group.sync(line);
}
template <typename Group>
auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <typename Group>
auto group_size(const Group& group) {
  return group.num_threads();
}

template <typename Group, typename Function, typename... Arguments>
void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
  if (group.thread_rank() == 0) std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
}
template <typename Group, typename Function, typename... Arguments>
auto invoke_one_broadcast(const Group& group, Function&& function, Arguments&&... arguments) {
  decltype(function(arguments...)) result{};
  if (group.thread_rank() == 0) result = std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
  return group.shfl(result, 0);
}

}  // namespace cooperative_groups
