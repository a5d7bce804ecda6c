// wgmma: descriptors of matrices in shared memory, and the products.
#include "warpgroup.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "cuemu/small_float_bits.h"
#include "tensor_core.h"
#include "worker.h"

namespace cuemu {
namespace {

constexpr int kRows = 16;  // of a warp
constexpr int kMostColumns = 256;
constexpr int kMostDepth = 32;
constexpr std::uint32_t kChunkBytes = 16;
constexpr std::uint32_t kWindow = 1u << 18;  // of addresses in descriptors

const std::vector<float>& half_values() {
  static const std::vector<float> values = [] {
    std::vector<float> all(1 << 16);
    for (unsigned bits = 0; bits < all.size(); ++bits) all[bits] = HalfBits::widen(static_cast<unsigned short>(bits));
    return all;
  }();
  return values;
}

// Reads `count` elements that lie one after the other.
template <typename Number>
void decode(Element element, const char* from, int count, Number* to, int step) {
  const auto each = [&](auto word, auto value) {
    for (int i = 0; i < count; ++i) {
      std::memcpy(&word, from + static_cast<std::size_t>(i) * sizeof word, sizeof word);
      to[i * step] = static_cast<Number>(value(word));
    }
  };
  const float* const halves = half_values().data();
  switch (element) {
    case Element::half: return each(std::uint16_t(), [=](std::uint16_t bits) { return halves[bits]; });
    case Element::bfloat16: return each(std::uint16_t(), [](std::uint16_t bits) { return BfloatBits::widen(bits); });
    case Element::tf32:
      return each(std::uint32_t(), [](std::uint32_t bits) { return bit_cast<float>(bits & 0xffffe000u); });
    case Element::e4m3:
    case Element::e5m2: return each(std::uint8_t(), [&](std::uint8_t bits) { return small_float(element, bits); });
    case Element::int8: return each(std::int8_t(), [](std::int8_t value) { return value; });
    case Element::uint8: return each(std::uint8_t(), [](std::uint8_t value) { return value; });
    default: return;
  }
}

// Reads a matrix from shared memory by rows: `first` and `count` are rows of the left matrix, or columns of the right
// one. Element (across, depth) lies at matrix[across * across_step + depth * depth_step].
template <typename Number>
void read(const SharedArena& arena, const WarpgroupProduct& product, bool is_left, int first, int count, Number* matrix,
          int across_step, int depth_step) {
  const Element element = is_left ? product.left : product.right;
  const bool is_transposed = is_left ? product.transposes_left : product.transposes_right;
  const MatrixPlace place(is_left ? product.left_at : product.right_at);
  const int in_chunk = static_cast<int>(kChunkBytes) / bytes_of(element);
  const int across_chunk = is_transposed ? in_chunk : 1, depth_chunk = is_transposed ? 1 : in_chunk;
  for (int across = 0; across < count; across += across_chunk) {
    for (int depth = 0; depth < product.k; depth += depth_chunk) {
      const std::uint32_t address = place.chunk(static_cast<std::uint32_t>((first + across) / across_chunk),
                                                static_cast<std::uint32_t>(depth / depth_chunk), is_transposed);
      decode(element, descriptor_pointer(arena, address), in_chunk, matrix + across * across_step + depth * depth_step,
             is_transposed ? across_step : depth_step);
    }
  }
}

// Where element i of a lane stands among the sums of a warp.
int sum_place(int n, unsigned lane, int i) {
  const int row = static_cast<int>(lane) / 4 + i / 2 % 2 * 8;
  return row * n + i / 4 * 8 + static_cast<int>(lane) % 4 * 2 + i % 2;
}

// Computes sums += left x right, integers stored by rows. The sums of two rows and of two vectors' columns stay in
// registers meanwhile; n is a multiple of eight.
void add_integers(int n, int k, const std::int64_t* left, const std::int64_t* right, std::int64_t* sums) {
  using Number = std::int64_t;
  typedef Number Vector __attribute__((vector_size(16)));
  constexpr int kColumns = 16 / sizeof(Number);
  const auto load = [](const Number* from) {
    Vector values;
    std::memcpy(&values, from, sizeof values);
    return values;
  };
  for (int row = 0; row < kRows; row += 2) {
    const Number* const upper = left + row * k;
    for (int column = 0; column < n; column += 2 * kColumns) {
      Number* const above = sums + row * n + column;
      Number* const below = above + n;
      Vector first = load(above), second = load(above + kColumns), third = load(below), fourth = load(below + kColumns);
      for (int depth = 0; depth < k; ++depth) {
        const Vector near = load(right + depth * n + column), far = load(right + depth * n + column + kColumns);
        first += upper[depth] * near;
        second += upper[depth] * far;
        third += upper[k + depth] * near;
        fourth += upper[k + depth] * far;
      }
      std::memcpy(above, &first, sizeof first);
      std::memcpy(above + kColumns, &second, sizeof second);
      std::memcpy(below, &third, sizeof third);
      std::memcpy(below + kColumns, &fourth, sizeof fourth);
    }
  }
}

// Two sums as registers hold them: floats, or integers of 32 bits.
template <typename Number>
void take_pair(Number* pair, const char* from) {
  std::conditional_t<std::is_same_v<Number, float>, float, std::int32_t> held[2];
  std::memcpy(held, from, sizeof held);
  pair[0] = held[0];
  pair[1] = held[1];
}

template <typename Number, bool saturates>
void give_pair(const Number* pair, char* to) {
  if constexpr (std::is_same_v<Number, float>) {
    std::memcpy(to, pair, 2 * sizeof(float));
  } else {
    std::uint32_t held[2];
    for (int i = 0; i < 2; ++i) {
      held[i] = static_cast<std::uint32_t>(saturates ? std::clamp<std::int64_t>(pair[i], INT32_MIN, INT32_MAX) : pair[i]);
    }
    std::memcpy(to, held, sizeof held);
  }
}

template <typename Number>
void give_halves(const Number* pair, char* to) {
  const unsigned short held[2] = {HalfBits::narrow(static_cast<float>(pair[0])), HalfBits::narrow(static_cast<float>(pair[1]))};
  std::memcpy(to, held, sizeof held);
}

template <typename Number>
void multiply(const SharedArena& arena, unsigned warp, const WarpgroupProduct* const (&lanes)[kLanes]) {
  const WarpgroupProduct& one = *lanes[0];
  // Once for each OS thread, and not among its few thread-local bytes.
  thread_local const auto memory = std::make_unique<Number[]>(kRows * kMostDepth + (kMostDepth + kRows) * kMostColumns);
  Number* const left = memory.get();
  Number* const right = left + kRows * kMostDepth;
  Number* const sums = right + kMostDepth * kMostColumns;
  if (one.left_registers == nullptr) {
    read(arena, one, true, static_cast<int>(warp % 4) * kRows, kRows, left, one.k, 1);
  } else {
    const int in_register = 4 / bytes_of(one.left);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = static_cast<int>(lane) / 4 + i % 2 * 8;
        const int depth = (i / 2 * 4 + static_cast<int>(lane) % 4) * in_register;
        decode(one.left, reinterpret_cast<const char*>(lanes[lane]->left_registers + i), in_register,
               left + row * one.k + depth, 1);
      }
    }
  }
  read(arena, one, false, 0, one.n, right, 1, one.n);
  if (one.negates_left != one.negates_right) {
    for (int i = 0; i < kRows * one.k; ++i) left[i] = -left[i];
  }
  // Two sums of a lane that lie side by side in the matrix, too, and their registers.
  const auto each_pair = [&](auto visit) {
    const int bytes = bytes_of(one.sum);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      char* const registers = static_cast<char*>(lanes[lane]->sums);
      for (int i = 0; i < one.n / 2; i += 2) visit(sums + sum_place(one.n, lane, i), registers + i * bytes);
    }
  };
  if (!one.keeps) std::fill_n(sums, kRows * one.n, Number());
  else if (one.sum == Element::half) each_pair([](Number* pair, const char* from) { decode(Element::half, from, 2, pair, 1); });
  else each_pair(take_pair<Number>);
  if constexpr (std::is_same_v<Number, float>) {
    add_tensor_products(tensor_core(one.left, one.right, one.sum, true), kRows, one.n, one.k, left, right, sums);
  } else {
    add_integers(one.n, one.k, left, right, sums);
  }
  if (one.sum == Element::half) each_pair(give_halves<Number>);
  else if (one.saturates) each_pair(give_pair<Number, true>);
  else each_pair(give_pair<Number, false>);
}

bool alike(const WarpgroupProduct& one, const WarpgroupProduct& other) {
  return one.n == other.n && one.left == other.left && one.right == other.right && one.sum == other.sum &&
         (one.left_registers == nullptr) == (other.left_registers == nullptr) && one.left_at == other.left_at &&
         one.right_at == other.right_at && one.keeps == other.keeps && one.negates_left == other.negates_left &&
         one.negates_right == other.negates_right && one.transposes_left == other.transposes_left &&
         one.transposes_right == other.transposes_right;
}

// Calls visit(address) for every 16 bytes of shared memory that a warp reads.
template <typename Visit>
void each_chunk(const SharedArena& arena, const WarpgroupProduct& product, unsigned warp, Visit visit) {
  const auto matrix = [&](std::uint64_t descriptor, Element element, bool is_transposed, int first, int count) {
    const MatrixPlace place(descriptor);
    const int in_chunk = static_cast<int>(kChunkBytes) / bytes_of(element);
    const int rows = is_transposed ? in_chunk : 1, depths = is_transposed ? 1 : in_chunk;
    for (int across = first / rows; across < (first + count) / rows; ++across) {
      for (int depth = 0; depth < product.k / depths; ++depth) {
        const auto address = place.chunk(static_cast<std::uint32_t>(across), static_cast<std::uint32_t>(depth), is_transposed);
        visit(descriptor_pointer(arena, address));
      }
    }
  };
  if (product.left_registers == nullptr) {
    matrix(product.left_at, product.left, product.transposes_left, static_cast<int>(warp % 4) * kRows, kRows);
  }
  matrix(product.right_at, product.right, product.transposes_right, 0, product.n);
}

}  // namespace

MatrixPlace::MatrixPlace(std::uint64_t descriptor)
    : start(static_cast<std::uint32_t>(descriptor & 0x3fff) << 4), leading(static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) << 4),
      stride(static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) << 4), base(static_cast<std::uint32_t>(descriptor >> 49 & 7)),
      swizzle(static_cast<Swizzle>(descriptor >> 62)) {}

// The canonical layouts of the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
std::uint32_t MatrixPlace::chunk(std::uint32_t across, std::uint32_t along, bool is_transposed) const {
  const std::uint32_t log = swizzle == Swizzle::none ? 0 : 4 - static_cast<std::uint32_t>(swizzle);
  const std::uint32_t chunks = 1u << log;  // that lie side by side
  const std::uint32_t line = is_transposed ? along : across, column = is_transposed ? across : along;
  std::uint32_t offset = line % 8 * chunks * kChunkBytes;
  if (swizzle == Swizzle::none && is_transposed) offset += line / 8 * leading + column * stride;
  else if (swizzle == Swizzle::none) offset += line / 8 * stride + column * leading;
  else if (is_transposed) offset += line / 8 * stride + column / chunks * leading + column % chunks * kChunkBytes;
  else offset += line / 8 * stride + column * kChunkBytes;
  const std::uint32_t address = start + offset;
  return (address ^ (((address >> 7) - base) & (chunks - 1)) << 4) & (kWindow - 1);
}

const char* descriptor_pointer(const SharedArena& arena, std::uint32_t address) {
  const auto begin = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(arena.begin()));
  const char* const low = arena.begin() + ((address - begin) & (kWindow - 1));
  return arena.is_static(low) ? low : low + kWindow;
}

MatrixOutcome multiply_warpgroup(Block& block, Thread* const (&threads)[kLanes]) {
  const WarpgroupProduct* lanes[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = reinterpret_cast<const WarpgroupProduct*>(threads[lane]->value);
    if (!alike(*lanes[0], *lanes[lane])) return MatrixOutcome::lanes_differ;
  }
  const unsigned warp = threads[0]->linear / kLanes;
  if (lanes[0]->sum == Element::int32) multiply<std::int64_t>(block.arena(), warp, lanes);
  else multiply<float>(block.arena(), warp, lanes);
  return MatrixOutcome::done;
}

void ProductsInFlight::add(Block& block, const Thread& leader, const WarpgroupProduct& product) {
  const unsigned warp = leader.linear / kLanes;
  block.clock().use_thread_order();
  products_.push_back({product, block.clock().begin_copy(leader.linear), warp, committed(leader.linear)});
  const Product& added = products_.back();
  each_chunk(block.arena(), product, warp, [&](const char* address) {
    check_product_begin(block, added.view, product, address, kChunkBytes);
  });
}

std::uint32_t& ProductsInFlight::committed(unsigned thread) {
  if (committed_.size() <= thread) committed_.resize(thread + 1, 0);
  return committed_[thread];
}

void ProductsInFlight::commit(unsigned thread) { ++committed(thread); }

void ProductsInFlight::wait(Block& block, const Thread& leader, std::uint32_t pending) {
  const unsigned warp = leader.linear / kLanes;
  const std::uint32_t all = committed(leader.linear);
  const auto is_due = [&](const Product& one) { return one.warp == warp && one.group + pending < all; };
  for (Product& one : products_) {
    if (!is_due(one)) continue;
    one.view.clock = block.clock().lane_clock(leader.linear);  // whoever comes behind the wait comes behind the reads
    each_chunk(block.arena(), one.product, warp, [&](const char* address) {
      check_product_read(block, one.view, one.product, address, kChunkBytes);
    });
  }
  std::erase_if(products_, is_due);
}

void ProductsInFlight::note_registers(unsigned thread, const char* begin, std::size_t bytes, int line) {
  if (registers_.size() <= thread) registers_.resize(thread + 1);
  std::vector<Registers>& own = registers_[thread];
  const std::uint32_t group = committed(thread);
  if (!own.empty() && own.back().end == begin && own.back().group == group && own.back().line == line) {
    own.back().end += bytes;
  } else {
    own.push_back({begin, begin + bytes, group, line});
  }
}

const ProductsInFlight::Registers* ProductsInFlight::registers_at(unsigned thread, const char* address, std::size_t bytes) const {
  if (is_ignored_ || thread >= registers_.size()) return nullptr;
  for (const Registers& one : registers_[thread]) {
    if (address < one.end && address + bytes > one.begin) return &one;
  }
  return nullptr;
}

void ProductsInFlight::wait_registers(unsigned thread, std::uint32_t pending) {
  if (thread >= registers_.size()) return;
  const std::uint32_t all = committed(thread);
  std::erase_if(registers_[thread], [&](const Registers& one) { return one.group + pending < all; });
}

void warpgroup_multiply(const WarpgroupProduct& given, int line) {
  WarpgroupProduct own = given;
  own.code = __builtin_return_address(0);
  own.line = line;
  Worker& worker = this_worker();
  const unsigned first = worker.thread().linear / (4 * kLanes) * (4 * kLanes);
  if (first + 4 * kLanes > worker.block().size()) {
    worker.fail("divergence", line, "wgmma.mma_async in " + worker.position() + ": a warpgroup is four warps, the first of which has a " +
                "number that 4 divides, and the block ends before",
                "Launch 128 threads for each warpgroup.", kLaunchFailure);
  }
  if (is_checking() && !worker.block().conduct(worker.thread().linear).has_fenced_registers) check_product_fence(own);
  worker.matrix_operation(WarpOp::warpgroup_multiply, &own, 1, 0, line);
}

void fence_registers() {
  if (!is_checking()) return;
  Worker& worker = this_worker();
  worker.block().conduct(worker.thread().linear).has_fenced_registers = true;
}

void commit_products() {
  if (!is_checking()) return;
  Worker& worker = this_worker();
  worker.block().products().commit(worker.thread().linear);
}

void wait_for_products(std::uint32_t pending, int line) {
  if (!is_checking()) return;
  Worker& worker = this_worker();
  worker.warp_operation(WarpOp::warpgroup_wait, ~0u, pending, 0, 32, line);
  worker.block().products().wait_registers(worker.thread().linear, pending);
}

void note_product_registers(const void* begin, std::size_t bytes, int line) {
  if (!is_checking()) return;
  Worker& worker = this_worker();
  worker.block().products().note_registers(worker.thread().linear, static_cast<const char*>(begin), bytes, line);
}

void hand_over_registers(bool begins) {
  if (is_checking()) this_worker().block().products().ignore(begins);
}

}  // namespace cuemu
