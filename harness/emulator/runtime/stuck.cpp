// Reports threads that wait for something that will never come.
#include <cstdio>

#include "report.h"
#include "worker.h"

namespace cuemu {
namespace {

const char* barrier_name(Barrier kind) {
  switch (kind) {
    case Barrier::count: return "__syncthreads_count()";
    case Barrier::conjunction: return "__syncthreads_and()";
    case Barrier::disjunction: return "__syncthreads_or()";
    case Barrier::grid: return "the grid's sync()";
    case Barrier::plain: break;
  }
  return "__syncthreads()";
}

uint3 index_of(const Block& block, const Thread& thread) {
  return index_in(thread.linear, block.launch().config.block);
}

Access waiting(const Block& block, const Thread& thread) {
  return {index_of(block, thread), block.index(), thread.line, "waits at " + waits_for(thread)};
}

// Whether the two threads lie in one warp and name each other, but in different operations.
bool lanes_disagree(const Thread& left, const Thread& right) {
  if (left.linear / kLanes != right.linear / kLanes) return false;
  if (left.state != State::at_warp_operation || right.state != State::at_warp_operation) return false;
  const bool name_each_other =
      (left.mask >> right.linear % kLanes & 1) != 0 && (right.mask >> left.linear % kLanes & 1) != 0;
  return name_each_other && !(left.operation == right.operation && left.mask == right.mask);
}

}  // namespace

std::string waits_for(const Thread& thread) {
  if (thread.state == State::at_barrier) return barrier_name(static_cast<Barrier>(thread.operation));
  if (thread.state == State::at_cluster_barrier) return "barrier.cluster.wait";
  if (thread.state == State::at_named_barrier) return "bar.sync " + std::to_string(thread.operation);
  char mask[16];
  std::snprintf(mask, sizeof mask, "0x%08x", thread.mask);
  return std::string(warp_operation_name(static_cast<WarpOp>(thread.operation))) + " with mask " + mask;
}

void report_barrier_mismatch(const Block& block, const Thread& thread) {
  const Thread& other = block.first_at_barrier();
  const std::string message = "threads of block " + coordinates(block.index()) + " wait at different barriers: " +
                              coordinates(index_of(block, other)) + " at " + waits_for(other) + " in line " +
                              std::to_string(other.line) + ", " + coordinates(index_of(block, thread)) + " at " +
                              waits_for(thread) + " in line " + std::to_string(thread.line);
  add_report({"divergence", block.launch().kernel, thread.line, message,
              "Let every thread of the block reach the same barrier: move it out of the branch.",
              {waiting(block, other), waiting(block, thread)}});
}

void report_stuck(const Block& block) {
  constexpr std::size_t kMostShown = 4;
  struct Group {
    const Thread* example;
    unsigned count;
  };
  std::vector<Group> groups;
  std::vector<const Thread*> seen;
  bool warps_disagree = false;
  block.for_each_unfinished([&](const Thread& thread) {
    bool known = false;
    for (Group& group : groups) {
      if (!waits_alike(*group.example, thread)) continue;
      ++group.count;
      known = true;
    }
    if (!known) groups.push_back({&thread, 1});
    for (const Thread* other : seen) warps_disagree = warps_disagree || lanes_disagree(thread, *other);
    seen.push_back(&thread);
  });
  std::string message = "block " + coordinates(block.index()) + " cannot go on: ";
  std::vector<Access> accesses;
  for (const Group& group : groups) {
    if (accesses.size() == kMostShown) break;
    const Thread& thread = *group.example;
    if (!accesses.empty()) message += "; ";
    message += std::to_string(group.count) + (group.count == 1 ? " thread, " : " threads, the first ") +
               coordinates(index_of(block, thread)) + (group.count == 1 ? ", waits at " : ", wait at ") +
               waits_for(thread) + " in line " + std::to_string(thread.line);
    accesses.push_back(waiting(block, thread));
  }
  add_report({warps_disagree ? "mask" : "deadlock", block.launch().kernel, groups.front().example->line, message,
              "Let all threads of the block reach every barrier, and all lanes of a mask the same warp operation; "
              "move these calls out of branches that only some threads take.",
              std::move(accesses)});
}

void report_grid_stuck(const Launch& launch, const std::vector<Block*>& waiting_blocks, std::uint64_t ended,
                       uint3 first_ended) {
  const Block& block = *waiting_blocks.front();
  const Thread& thread = block.first_at_barrier();
  const std::size_t count = waiting_blocks.size();
  const std::string message = "the grid cannot go on: " + std::to_string(count) +
                              (count == 1 ? " block, " : " blocks, the first ") + coordinates(block.index()) +
                              (count == 1 ? ", waits at " : ", wait at ") + waits_for(thread) + " in line " +
                              std::to_string(thread.line) + "; " + std::to_string(ended) +
                              (ended == 1 ? " block has" : " blocks have") + " ended without it, the first " +
                              coordinates(first_ended);
  add_report({"deadlock", launch.kernel, thread.line, message,
              "Let every block of the grid reach each of the grid's barriers: no block may return before.",
              {waiting(block, thread)}});
}

}  // namespace cuemu
