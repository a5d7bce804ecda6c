#include "cluster.h"

#include <string>

#include "report.h"
#include "worker.h"

namespace cuemu {

void Cluster::begin() {
  blocks_.clear();
  phase_ = 0;
  arrived_ = ended_ = 0;
}

void Cluster::add(Block& block) {
  block.join(this, size());
  blocks_.push_back(&block);
}

Block* Cluster::owner_of(const char* address) const {
  for (Block* const block : blocks_) {
    if (block->arena().holds(address)) return block;
  }
  return nullptr;
}

bool Cluster::arrive(Thread& thread, bool releases) {
  if (thread.cluster_arrival != 0) return false;
  if (is_checking() && releases) {
    BlockClock& clock = this_worker().block().clock();
    clock.use_thread_order();
    clock.threads().release(place_of(phase_), clock.place_of(thread.linear));
  }
  if (Exploration* const all = this_worker().exploration()) all->publish(this_worker().fiber(), place_of(phase_));
  thread.cluster_arrival = phase_ + 1;
  ++arrived_;
  settle();
  return true;
}

bool Cluster::has_passed(Thread& thread, bool acquires) {
  if (thread.cluster_arrival == phase_ + 1) return false;
  if (is_checking() && acquires) {
    BlockClock& clock = this_worker().block().clock();
    clock.threads().acquire(place_of(thread.cluster_arrival - 1), clock.place_of(thread.linear));
  }
  if (Exploration* const all = this_worker().exploration()) all->acquire(this_worker().fiber(), place_of(thread.cluster_arrival - 1));
  thread.cluster_arrival = 0;
  return true;
}

void Cluster::forget(Thread& thread) {
  if (thread.cluster_arrival == phase_ + 1) --arrived_;
  settle();
}

// Ends the phase if all threads that live have arrived.
void Cluster::settle() {
  unsigned live = 0;
  for (const Block* block : blocks_) live += block->live();
  if (arrived_ == 0 || arrived_ < live) return;
  arrived_ = 0;
  ++phase_;
  if (is_checking()) this_worker().block().clock().threads().forget(place_of(phase_));  // everybody knows the phase before
  for (Block* const block : blocks_) {
    block->leave_cluster_barrier();
    this_worker().unpark(*block);
  }
}

// Starts all blocks of the launch's next cluster. Returns the one to run first, or null if none is left or no more may
// be alive.
Block* Worker::start_cluster() {
  const dim3& sizes = launch_->config.cluster;
  const dim3& grid = launch_->config.grid;
  const unsigned size = sizes.x * sizes.y * sizes.z;
  if (begun_ + size > free_.size() + launch_->resident_limit) return nullptr;
  const std::uint64_t place = launch_->next_cluster.fetch_add(1, std::memory_order_relaxed);
  if (place >= launch_->clusters) return nullptr;
  const uint3 id = index_in(cluster_at(place), {grid.x / sizes.x, grid.y / sizes.y, grid.z / sizes.z});
  Cluster& cluster = make_cluster();
  std::vector<std::uint64_t> numbers;
  for (unsigned rank = 0; rank < size; ++rank) {
    const uint3 index = index_in(rank, sizes);
    numbers.push_back(((std::uint64_t{id.z} * sizes.z + index.z) * grid.y + id.y * sizes.y + index.y) * grid.x +
                      id.x * sizes.x + index.x);
  }
  if (is_checking()) {
    ClusterClock& clock = cluster.clock();
    clock.blocks.clear();
    for (const std::uint64_t number : numbers) clock.blocks.push_back(static_cast<std::uint32_t>(number % Cell::kMostBlocks) + 1);
    const dim3& block = launch_->config.block;
    clock.order.begin(size * block.x * block.y * block.z);
    clock.order.use(0, {});
  }
  for (unsigned rank = 0; rank < size; ++rank) {
    Block& block = take_block();
    block.begin(numbers[rank], &cluster.clock(), rank);
    cluster.add(block);
    if (launch_->order == Order::reverse) fresh_.push_front(&block);
    else fresh_.push_back(&block);
  }
  idle_turns_ = 0;
  Block* const first = fresh_.front();
  fresh_.pop_front();
  return first;
}

Cluster& Worker::make_cluster() {
  if (free_clusters_.empty()) {
    clusters_.push_back(std::make_unique<Cluster>());
    free_clusters_.push_back(clusters_.back().get());
  }
  Cluster& cluster = *free_clusters_.back();
  free_clusters_.pop_back();
  cluster.begin();
  return cluster;
}

// The running block's cluster. A block that is one by itself gets it now.
Cluster& Worker::own_cluster() {
  if (block_->cluster() == nullptr) make_cluster().add(*block_);
  return *block_->cluster();
}

// Keeps the shared memory of a cluster's blocks until all have ended.
void Worker::free_block(Block& block) {
  Cluster* const cluster = block.cluster();
  if (cluster == nullptr) return free_.push_back(&block);
  if (!cluster->end_block()) return;
  free_.insert(free_.end(), cluster->blocks().begin(), cluster->blocks().end());
  free_clusters_.push_back(cluster);
}

void Worker::unpark(Block& block) {
  if (!block.parked || !block.has_ready()) return;
  block.parked = false;
  runnable_.push_back(&block);
}

// Reports the blocks that still wait for their clusters when nothing can run.
void Worker::report_parked() {
  for (std::size_t i = 0; i < begun_; ++i) {
    if (!blocks_[i]->parked || blocks_[i]->live() == 0) continue;
    report_stuck(*blocks_[i]);
    set_sticky_error(kLaunchFailure);
    return;
  }
}

void Worker::arrive_at_cluster_barrier(bool releases, int line) {
  const bool publishes = releases || (is_checking() && block_->conduct(current_->linear).has_fenced_cluster);
  if (own_cluster().arrive(*current_, publishes)) return;
  fail("barrier", line, position() + " arrives at the cluster's barrier twice without a wait between",
       "Let every barrier.cluster.arrive have its barrier.cluster.wait.", kLaunchFailure);
}

void Worker::wait_at_cluster_barrier(bool acquires, int line) {
  Thread& self = *current_;
  if (self.cluster_arrival == 0) {
    fail("barrier", line, position() + " waits at the cluster's barrier, at which it has not arrived",
         "Put a barrier.cluster.arrive before the wait.", kLaunchFailure);
  }
  Cluster& cluster = own_cluster();
  self.line = line;
  first_yielding_ = nullptr;
  while (!cluster.has_passed(self, acquires)) {
    block_->wait_for_cluster(self);
    suspend();
  }
}

char* Worker::shared_of_rank(char* address, unsigned rank, int line) {
  Cluster* const cluster = block_->cluster();
  const Block* owner = cluster == nullptr ? (block_->arena().holds(address) ? block_ : nullptr) : cluster->owner_of(address);
  const unsigned size = cluster == nullptr ? 1 : cluster->size();
  if (owner == nullptr || rank >= size) {
    fail("out-of-bounds", line, position() + (owner == nullptr ? " maps an address outside shared memory"
                                                               : " maps an address to rank " + std::to_string(rank) +
                                                                     " of a cluster of " + std::to_string(size)) +
         (size == 1 ? " block" : " blocks"), "Give the address of a __shared__ variable, and a rank of the cluster.",
         kLaunchFailure);
  }
  if (cluster == nullptr) return address;
  return const_cast<char*>(cluster->blocks()[rank]->arena().begin()) + (address - owner->arena().begin());
}

ClusterPlace Worker::cluster_place() const {
  const dim3& sizes = launch_->config.cluster;
  const dim3& grid = launch_->config.grid;
  const uint3 block = block_->index();
  ClusterPlace place{{block.x % sizes.x, block.y % sizes.y, block.z % sizes.z}, sizes,
                     {block.x / sizes.x, block.y / sizes.y, block.z / sizes.z},
                     {grid.x / sizes.x, grid.y / sizes.y, grid.z / sizes.z}, 0, sizes.x * sizes.y * sizes.z};
  place.rank = (place.index.z * sizes.y + place.index.y) * sizes.x + place.index.x;
  return place;
}

ClusterPlace cluster_place() { return this_worker().cluster_place(); }
bool is_explicit_cluster() { return this_worker().cluster_place().blocks > 1; }
void arrive_at_cluster_barrier(bool releases, int line) { this_worker().arrive_at_cluster_barrier(releases, line); }
void wait_at_cluster_barrier(bool acquires, int line) { this_worker().wait_at_cluster_barrier(acquires, line); }
char* shared_of_rank(char* address, std::uint32_t rank, int line) {
  return this_worker().shared_of_rank(address, rank, line);
}

std::uint32_t rank_of_shared(const char* address, int line) {
  Worker& worker = this_worker();
  Cluster* const cluster = worker.block().cluster();
  if (cluster == nullptr && worker.block().arena().holds(address)) return 0;
  const Block* const owner = cluster == nullptr ? nullptr : cluster->owner_of(address);
  if (owner != nullptr) return owner->rank();
  worker.fail("out-of-bounds", line, worker.position() + " asks which block has an address outside shared memory",
              "Give an address of the cluster's shared memory.", kLaunchFailure);
}

void fence_cluster(bool of_all) {
  fence(of_all);
  if (is_checking() && in_kernel()) {
    Worker& worker = this_worker();
    worker.block().conduct(worker.thread().linear).has_fenced_cluster = true;
  }
}

char* shared_pointer(std::uint32_t address) {
  const Block& block = this_worker().block();
  const auto in = [address](const SharedArena& arena) {
    // The arena may reach across a multiple of 4 GiB, and is much smaller.
    const auto begin = reinterpret_cast<std::uintptr_t>(arena.begin());
    return reinterpret_cast<char*>(begin + static_cast<std::int32_t>(address - static_cast<std::uint32_t>(begin)));
  };
  char* const own = in(block.arena());
  if (block.cluster() == nullptr || block.arena().holds(own)) return own;
  for (const Block* other : block.cluster()->blocks()) {
    char* const there = in(other->arena());
    if (other->arena().holds(there)) return there;
  }
  return own;
}

}  // namespace cuemu
