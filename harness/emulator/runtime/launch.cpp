// Kernel launches: CUDA's limits, the order of blocks and threads, and the OS threads that run blocks.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuemu/host_api.h"
#include "device_heap.h"
#include "guard.h"
#include "report.h"
#include "worker.h"

namespace cuemu {
namespace {

constexpr unsigned kMostOsThreads = 8;  // each may need 1024 stacks, and guard pages count against a system limit
constexpr std::uint64_t kLeastThreadsToShare = 512;  // below this, waking another OS thread costs more than it saves

unsigned os_threads_wanted() {
  if (const char* given = std::getenv("CUEMU_THREADS")) {
    const long count = std::strtol(given, nullptr, 10);
    if (count >= 1) return static_cast<unsigned>(std::min<long>(count, 64));
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(static_cast<unsigned>(CPU_COUNT(&set)), 1u, kMostOsThreads);
}

// OS threads that wait for launches; the launching thread works too.
class OsThreads {
 public:
  void run(Launch& launch) {
    const bool shared = launch.blocks > 1 && !launch.config.cooperative && !is_checking() &&
                        launch.blocks * launch.config.block.x * launch.config.block.y * launch.config.block.z >=
                            kLeastThreadsToShare;
    if (!shared || !start()) {
      this_worker().run_blocks(launch);
      return;
    }
    const std::uint64_t cluster = launch.blocks / launch.clusters, workers = helpers_ + 1;
    launch.resident_limit = std::max((launch.resident_limit + workers - 1) / workers, cluster);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      launch_ = &launch;
      ++generation_;
      busy_ = helpers_;
    }
    wake_.notify_all();
    this_worker().run_blocks(launch);
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [this] { return busy_ == 0; });
    launch_ = nullptr;
  }

 private:
  // Starts the helpers when they are first needed. Returns false if there are none.
  bool start() {
    if (!started_) {
      started_ = true;
      const unsigned wanted = os_threads_wanted();
      for (unsigned i = 1; i < wanted; ++i) {
        std::thread([this] { help(); }).detach();
        ++helpers_;
      }
    }
    return helpers_ > 0;
  }

  void help() {
    std::uint64_t seen = 0;
    for (;;) {
      Launch* launch = nullptr;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return generation_ != seen; });
        seen = generation_;
        launch = launch_;
      }
      this_worker().run_blocks(*launch);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (--busy_ == 0) idle_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  Launch* launch_ = nullptr;
  std::uint64_t generation_ = 0;
  unsigned helpers_ = 0;
  unsigned busy_ = 0;
  bool started_ = false;
};

// What is known of a kernel before its launch.
struct Traits {
  // The limit for dynamic memory that cudaFuncSetAttribute has set. Static memory does not count
  // against it.
  std::optional<std::size_t> dynamic_limit;
  std::optional<dim3> cluster;  // of __cluster_dims__
  bool is_any_cluster = false;  // whether a cluster may have more blocks than every device allows
  int most_threads = static_cast<int>(kMostThreads);  // in a block, of __launch_bounds__

  std::size_t most_dynamic() const { return dynamic_limit.value_or(kDefaultSharedLimit); }
  // The limit for static and dynamic memory together.
  std::size_t most_shared() const { return dynamic_limit ? limits().shared_bytes : kDefaultSharedLimit; }
};

// The kernels of one name in a library: the instances of a template.
struct Family {
  std::optional<dim3> cluster;             // of all of them
  std::map<const void*, Traits> by_code;  // with the code null, of an unknown one
};
using Families = std::map<std::pair<const void*, std::string>, Family>;

// A kernel that can be launched by its address.
struct Launchable {
  Kernel kernel;
  Launcher launcher;
};

// One for each process: OS threads do not survive a fork, so a child makes its own. Never
// destroyed.
struct Device {
  std::mutex launching;  // launches run one after the other
  OsThreads os_threads;
  Order order = Order::forward;
  std::uint64_t seed = 0;
  Families kernels;
  std::map<const void*, Launchable> launchable;  // by address
  // The launches by kernel, in the order of their first launch since the last take. They are few
  // enough for a linear search.
  std::vector<std::pair<std::string, std::uint64_t>> launches;
  std::string launches_json;  // the caller of the last take still reads it
  std::uint64_t threads = 0;  // of all launches since the last take
  bool explores = false;
  std::set<std::pair<Entry, std::vector<std::uint64_t>>> explored;  // kernels and their sizes
};

Device* device_of_process = nullptr;

Device& device() {
  static const bool once = [] {
    device_of_process = new Device;
    pthread_atfork(nullptr, nullptr, [] {
      Device* const parents = device_of_process;
      device_of_process = new Device;
      device_of_process->order = parents->order;
      device_of_process->seed = parents->seed;
      device_of_process->kernels = parents->kernels;
      device_of_process->launchable = parents->launchable;
    });
    return true;
  }();
  static_cast<void>(once);
  return *device_of_process;
}

// The kernel as its library names it, if that is known; a pointer to it has another name, or none.
Kernel own_name(const Device& here, const Kernel& kernel) {
  const auto found = kernel.code != nullptr ? here.launchable.find(kernel.code) : here.launchable.end();
  return found == here.launchable.end() ? kernel : found->second.kernel;
}

Family& family_of(Device& here, const Kernel& given) {
  const Kernel kernel = own_name(here, given);
  return here.kernels[{kernel.library, kernel.name}];
}

Traits& traits_of(Device& here, const Kernel& kernel) { return family_of(here, kernel).by_code[kernel.code]; }

// What is known of a kernel. Of an unknown instance it is what holds for any of its family.
Traits known_kernel(const Device& here, const Kernel& given) {
  const Kernel kernel = own_name(here, given);
  const auto family = here.kernels.find({kernel.library, kernel.name});
  if (family == here.kernels.end()) return {};
  Traits known;
  if (kernel.code != nullptr) {
    const auto own = family->second.by_code.find(kernel.code);
    if (own != family->second.by_code.end()) known = own->second;
  } else {
    for (const auto& [code, one] : family->second.by_code) {
      if (one.dynamic_limit) known.dynamic_limit = std::max(known.dynamic_limit.value_or(0), *one.dynamic_limit);
      known.is_any_cluster = known.is_any_cluster || one.is_any_cluster;
    }
  }
  known.cluster = family->second.cluster;
  return known;
}

void count_launch(Device& here, const char* kernel) {
  for (auto& [name, count] : here.launches) {
    if (name == kernel) {
      ++count;
      return;
    }
  }
  here.launches.emplace_back(kernel, 1);
}

std::string sizes(const dim3& sizes) { return coordinates(sizes); }

void refuse(const char* kernel, int line, cudaError_t error, const std::string& why, const char* remedy) {
  add_report({"launch", kernel, line,
              std::string(cudaGetErrorString(error)) + ": kernel " + kernel + " was not run: " + why, remedy, {}});
  set_last_error(error);
}

std::uint64_t blocks_of(const dim3& grid) { return std::uint64_t{grid.x} * grid.y * grid.z; }

int largest_cluster(const Traits& known) { return known.is_any_cluster ? 16 : 8; }

// The launch with the cluster that its kernel has by itself.
Config clustered(const Config& given, const Traits& known) {
  Config config = given;
  if (known.cluster && blocks_of(config.cluster) == 1) config.cluster = *known.cluster;
  return config;
}

// Whether CUDA would accept the launch's cluster. Reports it if not.
bool acceptable_cluster(const char* kernel, int line, const Config& config, const Traits& known) {
  const dim3& grid = config.grid;
  const dim3& cluster = config.cluster;
  const std::uint64_t blocks = blocks_of(cluster), most = static_cast<std::uint64_t>(largest_cluster(known));
  if (blocks == 1) return true;
  if (blocks == 0 || blocks > most) {
    refuse(kernel, line, cudaErrorInvalidClusterSize,
           "a cluster of " + sizes(cluster) + " blocks; the limit is " + std::to_string(most) + ", none 0",
           "Use a smaller cluster; cudaFuncAttributeNonPortableClusterSizeAllowed allows 16 blocks on an H100.");
    return false;
  }
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    refuse(kernel, line, cudaErrorInvalidClusterSize,
           "a grid of " + sizes(grid) + " blocks is no whole number of clusters of " + sizes(cluster),
           "Round the grid up to a multiple of the cluster, and let blocks beyond the end do nothing.");
    return false;
  }
  return true;
}

// Whether CUDA would accept the launch. Reports it if not.
bool acceptable(const char* kernel, int line, const Config& config, const Traits& known) {
  const std::size_t dynamic_limit = known.most_dynamic();
  const dim3& grid = config.grid;
  const dim3& block = config.block;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      threads > kMostThreads) {
    refuse(kernel, line, cudaErrorInvalidConfiguration,
           "a block of " + sizes(block) + " threads; the limits are 1024 in all, (1024,1024,64) a dimension, none 0",
           "Use a smaller block and let threads loop.");
    return false;
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    refuse(kernel, line, cudaErrorInvalidConfiguration,
           "a grid of " + sizes(grid) + " blocks; the limits are (2147483647,65535,65535), none 0",
           "Skip the launch for empty tensors; put the longest dimension in x, or loop over the grid.");
    return false;
  }
  if (threads > static_cast<std::uint64_t>(known.most_threads)) {
    const std::string most = std::to_string(known.most_threads);
    refuse(kernel, line, cudaErrorInvalidValue,
           "a block of " + sizes(block) + " threads; the kernel's __launch_bounds__ allow " + most,
           ("Launch at most " + most + " threads in a block, or raise the kernel's __launch_bounds__.").c_str());
    return false;
  }
  if (config.shared_bytes > dynamic_limit) {
    refuse(kernel, line, cudaErrorInvalidValue,
           std::to_string(config.shared_bytes) + " bytes of dynamic shared memory; the limit is " +
               std::to_string(dynamic_limit),
           ("Use less, or raise the limit (to " + std::to_string(limits().shared_bytes) +
            " at most) with cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes).").c_str());
    return false;
  }
  const std::uint64_t resident = most_resident_blocks(config);
  if (config.cooperative && blocks_of(grid) > resident) {
    refuse(kernel, line, cudaErrorCooperativeLaunchTooLarge,
           std::to_string(blocks_of(grid)) + " blocks of " + std::to_string(threads) + " threads with " +
               std::to_string(config.shared_bytes) + " bytes of dynamic shared memory; " + std::to_string(resident) +
               " fit the device at once",
           "Launch at most cudaOccupancyMaxActiveBlocksPerMultiprocessor blocks a multiprocessor and let them loop.");
    return false;
  }
  return true;
}

// Whether this is the first launch of its kernel and sizes, where all orders are asked for.
bool explores(Device& here, const Launch& launch) {
  if (!here.explores || !is_checking()) return false;
  const Config& config = launch.config;
  std::vector<std::uint64_t> sizes{config.shared_bytes};
  for (const dim3& one : {config.grid, config.block, config.cluster}) sizes.insert(sizes.end(), {one.x, one.y, one.z});
  return here.explored.insert({launch.entry, std::move(sizes)}).second;
}

}  // namespace

void run_launch(const Kernel& launched, int line, const Config& given, Entry entry, const void* bound) {
  const char* const kernel = launched.name;
  if (in_kernel()) {
    this_worker().fail("launch", line, std::string("kernel ") + kernel + " was launched from device code",
                       "Launch every kernel from host code: dynamic parallelism is not supported.",
                       cudaErrorNotSupported);
  }
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  if (sticky_error() != cudaSuccess) return;
  const Traits known = known_kernel(here, launched);
  const Config config = clustered(given, known);
  if (!acceptable(kernel, line, config, known)) return;
  if (!acceptable_cluster(kernel, line, config, known)) return;
  Launch launch;
  launch.kernel = kernel;
  launch.line = line;
  launch.config = config;
  launch.entry = entry;
  launch.bound = bound;
  launch.order = here.order;
  launch.seed = here.seed;
  launch.blocks = blocks_of(config.grid);
  launch.clusters = launch.blocks / blocks_of(config.cluster);
  launch.resident_limit = std::max(most_resident_blocks(config), blocks_of(config.cluster));
  launch.shared_limit = known.most_shared();
  if (explores(here, launch)) this_worker().explore(launch);
  if (is_checking()) {
    begin_checked_launch(kernel, launch.config, reinterpret_cast<const void*>(launch.entry));
    begin_heap_of_launch(launch.resident_limit);
  }
  if (sticky_error() == cudaSuccess) here.os_threads.run(launch);
  if (is_checking()) end_checked_launch();
  check_guarded_memory(kernel, line, is_checking() && has_reported_bounds());
  count_launch(here, kernel);
  here.threads += launch.blocks * config.block.x * config.block.y * config.block.z;
}

bool note_launcher(const Kernel& kernel, Launcher launcher) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  here.launchable.insert_or_assign(kernel.code, Launchable{kernel, launcher});
  return true;
}

cudaError_t launch_at(const void* address, int line, const Config& config, void** parameters) {
  Device& here = device();
  std::optional<Launchable> found;
  {
    const std::lock_guard<std::mutex> lock(here.launching);
    const auto own = here.launchable.find(address);
    if (own != here.launchable.end()) found = own->second;
  }
  if (found) {
    found->launcher(found->kernel, line, config, parameters);
  } else {
    refuse("(unknown)", line, cudaErrorInvalidDeviceFunction, "no kernel of a CUDA source is known at its address",
           "Pass the address of a kernel that a CUDA source of this build defines, and that is its name's only one; "
           "give each of its template parameters a name.");
  }
  return cudaPeekAtLastError();
}

cudaError_t func_set_attribute(const Kernel& kernel, cudaFuncAttribute attribute, int value) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) traits_of(here, kernel).is_any_cluster = value != 0;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > limits().shared_bytes) return set_last_error(cudaErrorInvalidValue);
  traits_of(here, kernel).dynamic_limit = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t func_get_attributes(cudaFuncAttributes* attributes, const Kernel& kernel) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  *attributes = cudaFuncAttributes{};
  const Traits known = known_kernel(here, kernel);
  attributes->maxThreadsPerBlock = known.most_threads;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(known.most_dynamic());
  return cudaSuccess;
}

bool note_cluster(const Kernel& kernel, dim3 sizes) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  family_of(here, kernel).cluster = sizes;
  return true;
}

bool note_launch_bounds(const Kernel& kernel, int threads) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  if (kernel.code != nullptr) traits_of(here, kernel).most_threads = std::min(threads, static_cast<int>(kMostThreads));
  return true;
}

int most_threads(const Kernel& kernel) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  return known_kernel(here, kernel).most_threads;
}

cudaError_t most_active_clusters(int* clusters, const Kernel& kernel, const Config& given) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  const Traits known = known_kernel(here, kernel);
  const Config config = clustered(given, known);
  const std::uint64_t blocks = blocks_of(config.cluster);
  *clusters = 0;
  if (blocks == 0 || blocks > static_cast<std::uint64_t>(largest_cluster(known))) {
    return set_last_error(cudaErrorInvalidClusterSize);
  }
  if (config.shared_bytes > known.most_dynamic()) return set_last_error(cudaErrorInvalidValue);
  *clusters = static_cast<int>(most_resident_blocks(config) / blocks);
  return cudaSuccess;
}

int largest_cluster(const Kernel& kernel) {
  Device& here = device();
  const std::lock_guard<std::mutex> lock(here.launching);
  return largest_cluster(known_kernel(here, kernel));
}

}  // namespace cuemu

extern "C" {

void cuemu_set_order(int order, unsigned long long seed) {
  cuemu::Device& here = cuemu::device();
  const std::lock_guard<std::mutex> lock(here.launching);
  here.order = static_cast<cuemu::Order>(std::clamp(order, 0, 2));
  here.seed = seed;
}

void cuemu_set_checking(int on, unsigned memory, unsigned zones) {
  cuemu::Device& here = cuemu::device();
  const std::lock_guard<std::mutex> lock(here.launching);
  cuemu::checking = on != 0;
  const auto two = [](unsigned bytes) {
    return cuemu::TwoBytes{{static_cast<unsigned char>(bytes), static_cast<unsigned char>(bytes >> 8)}};
  };
  cuemu::set_fill(two(memory), two(zones));
}

void cuemu_set_exhaustive(int on) {
  cuemu::Device& here = cuemu::device();
  const std::lock_guard<std::mutex> lock(here.launching);
  here.explores = on != 0;
}

void cuemu_set_limits(int shared_bytes, int threads_per_multiprocessor, int shared_bytes_per_multiprocessor) {
  cuemu::Device& here = cuemu::device();
  const std::lock_guard<std::mutex> lock(here.launching);
  cuemu::limits() = {static_cast<std::size_t>(shared_bytes), threads_per_multiprocessor,
                     static_cast<std::size_t>(shared_bytes_per_multiprocessor)};
}

const char* cuemu_take_launches(void) {
  cuemu::Device& here = cuemu::device();
  const std::lock_guard<std::mutex> lock(here.launching);
  here.launches_json = "{";
  for (const auto& [kernel, count] : here.launches) {
    if (here.launches_json.size() > 1) here.launches_json += ", ";
    cuemu::append_quoted(here.launches_json, kernel);
    here.launches_json += ": " + std::to_string(count);
  }
  here.launches_json += '}';
  here.launches.clear();
  return here.launches_json.c_str();
}

unsigned long long cuemu_take_threads(void) {
  cuemu::Device& here = cuemu::device();
  const std::lock_guard<std::mutex> lock(here.launching);
  return std::exchange(here.threads, 0);
}

}  // extern "C"
