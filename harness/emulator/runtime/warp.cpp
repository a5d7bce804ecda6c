// Computes the results of a warp operation once all its lanes have arrived.
#include <algorithm>
#include <cstring>

#include "block.h"
#include "guard.h"

namespace cuemu {
namespace {

// Returns the value of a lane that an operation may not read. It is the fill of new memory, so a
// result that depends on it changes with the fill.
std::uint64_t undefined() {
  alignas(2) char bytes[8];
  fill_poison(bytes, sizeof bytes);
  std::uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

unsigned source_lane(WarpOp operation, unsigned lane, int parameter, int width) {
  const unsigned segment = lane & ~static_cast<unsigned>(width - 1);
  const unsigned last = segment + static_cast<unsigned>(width) - 1;
  const unsigned shift = static_cast<unsigned>(parameter) & (kLanes - 1);
  switch (operation) {
    case WarpOp::shuffle: return segment + (static_cast<unsigned>(parameter) & static_cast<unsigned>(width - 1));
    case WarpOp::shuffle_up: return lane >= segment + shift ? lane - shift : lane;
    case WarpOp::shuffle_down: return lane + shift <= last ? lane + shift : lane;
    default: return (lane ^ shift) <= last ? lane ^ shift : lane;
  }
}

template <typename Visit>
void for_each_lane(unsigned lanes, Visit visit) {
  for (unsigned left = lanes; left != 0; left &= left - 1) visit(static_cast<unsigned>(__builtin_ctz(left)));
}

template <typename Value, typename Combine>
void reduce(unsigned lanes, Thread* const (&threads)[kLanes], Value start, Combine combine) {
  Value all = start;
  for_each_lane(lanes, [&](unsigned lane) { all = combine(all, static_cast<Value>(threads[lane]->value)); });
  for_each_lane(lanes, [&](unsigned lane) { threads[lane]->result = static_cast<unsigned>(all); });
}

void match(bool all_needed, unsigned lanes, Thread* const (&threads)[kLanes]) {
  for_each_lane(lanes, [&](unsigned lane) {
    unsigned same = 0;
    for_each_lane(lanes, [&](unsigned other) {
      if (threads[other]->value == threads[lane]->value) same |= 1u << other;
    });
    threads[lane]->result = all_needed && same != lanes ? 0 : same;
  });
}

}  // namespace

bool shuffle_source(const Thread& thread, unsigned& source) {
  const WarpOp operation = static_cast<WarpOp>(thread.operation);
  if (operation > WarpOp::shuffle_xor) return false;
  source = source_lane(operation, thread.linear % kLanes, thread.parameter, thread.width) % kLanes;
  return true;
}

const char* warp_operation_name(WarpOp operation) {
  static const char* const kNames[] = {
      "__shfl_sync()",       "__shfl_up_sync()",    "__shfl_down_sync()",  "__shfl_xor_sync()",  "__ballot_sync()",
      "__any_sync()",        "__all_sync()",        "__match_any_sync()",  "__match_all_sync()", "__reduce_add_sync()",
      "__reduce_min_sync()", "__reduce_max_sync()", "__reduce_min_sync()", "__reduce_max_sync()", "__reduce_and_sync()",
      "__reduce_or_sync()",  "__reduce_xor_sync()", "__syncwarp()",       "__activemask()",
      "load_matrix_sync()",  "store_matrix_sync()", "mma_sync()",
      "wgmma.mma_async",     "wgmma.wait_group"};
  return kNames[static_cast<int>(operation)];
}

void compute_warp_operation(WarpOp operation, unsigned lanes, Thread* const (&threads)[kLanes]) {
  switch (operation) {
    case WarpOp::shuffle:
    case WarpOp::shuffle_up:
    case WarpOp::shuffle_down:
    case WarpOp::shuffle_xor:
      for_each_lane(lanes, [&](unsigned lane) {
        Thread& thread = *threads[lane];
        const unsigned source = source_lane(operation, lane, thread.parameter, thread.width);
        thread.result = source < kLanes && (lanes >> source & 1) != 0 ? threads[source]->value : undefined();
      });
      return;
    case WarpOp::ballot:
    case WarpOp::any:
    case WarpOp::all: {
      unsigned votes = 0;
      for_each_lane(lanes, [&](unsigned lane) { votes |= threads[lane]->value != 0 ? 1u << lane : 0; });
      const unsigned result = operation == WarpOp::ballot ? votes : operation == WarpOp::any ? votes != 0 : votes == lanes;
      for_each_lane(lanes, [&](unsigned lane) { threads[lane]->result = result; });
      return;
    }
    case WarpOp::match_any: return match(false, lanes, threads);
    case WarpOp::match_all: return match(true, lanes, threads);
    case WarpOp::reduce_add:
      return reduce(lanes, threads, 0u, [](unsigned left, unsigned right) { return left + right; });
    case WarpOp::reduce_min:
      return reduce(lanes, threads, 0x7fffffff, [](int left, int right) { return std::min(left, right); });
    case WarpOp::reduce_max:
      return reduce(lanes, threads, -0x7fffffff - 1, [](int left, int right) { return std::max(left, right); });
    case WarpOp::reduce_min_unsigned:
      return reduce(lanes, threads, ~0u, [](unsigned left, unsigned right) { return std::min(left, right); });
    case WarpOp::reduce_max_unsigned:
      return reduce(lanes, threads, 0u, [](unsigned left, unsigned right) { return std::max(left, right); });
    case WarpOp::reduce_and:
      return reduce(lanes, threads, ~0u, [](unsigned left, unsigned right) { return left & right; });
    case WarpOp::reduce_or:
      return reduce(lanes, threads, 0u, [](unsigned left, unsigned right) { return left | right; });
    case WarpOp::reduce_xor:
      return reduce(lanes, threads, 0u, [](unsigned left, unsigned right) { return left ^ right; });
    case WarpOp::sync:
    case WarpOp::active:
    case WarpOp::warpgroup_wait: return;
    case WarpOp::matrix_load:
    case WarpOp::matrix_store:
    case WarpOp::matrix_multiply:
    case WarpOp::warpgroup_multiply: return compute_matrix_operation(operation, lanes, threads);
  }
}

}  // namespace cuemu
