// Products of matrices that a warpgroup begins and waits for later (wgmma), each warp with its 16 of 64 rows.
#pragma once

#include <cstdint>
#include <vector>

#include "cuemu/runtime.h"
#include "thread_order.h"

namespace cuemu {

class Block;
class SharedArena;
struct Thread;

// What a descriptor of a matrix in shared memory says; distances in bytes.
struct MatrixPlace {
  enum class Swizzle : unsigned { none, by_128, by_64, by_32 };
  std::uint32_t start, leading, stride, base;
  Swizzle swizzle;

  explicit MatrixPlace(std::uint64_t descriptor);
  // The address, of which a descriptor has 18 bits, of 16 bytes of the matrix: `across` counts rows (or columns of a
  // right matrix), `along` the depth. One of them counts chunks of 16 bytes: `along`, or `across` if the matrix is
  // transposed, so that depth does not run along memory.
  std::uint32_t chunk(std::uint32_t across, std::uint32_t along, bool is_transposed) const;
};

// The place in a block's shared memory at which a descriptor's address points.
const char* descriptor_pointer(const SharedArena& arena, std::uint32_t address);

// The products of a block that the checking mode has seen begin and not end, by warp.
class ProductsInFlight {
 public:
  void begin() {
    products_.clear();
    registers_.clear();
    committed_.clear();
    is_ignored_ = false;
  }
  void add(Block& block, const Thread& leader, const WarpgroupProduct& product);
  void commit(unsigned thread);
  // Ends the products of all but the last groups of a warp: their reads of shared memory come before what follows.
  void wait(Block& block, const Thread& leader, std::uint32_t pending);

  // Registers of threads that products in flight write.
  struct Registers {
    const char* begin;
    const char* end;
    std::uint32_t group;
    int line;
  };
  void note_registers(unsigned thread, const char* begin, std::size_t bytes, int line);
  bool has_registers() const { return !registers_.empty() && !is_ignored_; }
  const Registers* registers_at(unsigned thread, const char* address, std::size_t bytes) const;
  void wait_registers(unsigned thread, std::uint32_t pending);
  // While a thread's own wgmma hands over its registers.
  void ignore(bool is_ignored) { is_ignored_ = is_ignored; }

 private:
  struct Product {
    WarpgroupProduct product;
    CopyView view;
    unsigned warp;
    std::uint32_t group;
  };
  std::uint32_t& committed(unsigned thread);

  std::vector<Product> products_;
  std::vector<std::uint32_t> committed_;           // groups by thread
  std::vector<std::vector<Registers>> registers_;  // by thread
  bool is_ignored_ = false;
};

}  // namespace cuemu
