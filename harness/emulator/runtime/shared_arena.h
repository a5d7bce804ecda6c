// A block's shared memory: variables and the dynamic part, with red zones between. The start of a
// block poisons it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cuemu {

constexpr std::size_t kDefaultSharedLimit = 48 * 1024;
constexpr std::size_t kMostShared = 227 * 1024;  // the largest of any architecture

class SharedArena {
 public:
  SharedArena();
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  void begin_launch(std::size_t dynamic_bytes);
  void begin_block();

  // Returns the variable's memory, or null if it does not fit. The address stays the same during a
  // launch.
  void* slot(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line);
  // Gives a new arena the variables that another one has, at the same places.
  void lay_out_as(const SharedArena& other);
  void* dynamic() {
    is_dynamic_known_ = true;
    return dynamic_;
  }
  std::size_t static_bytes() const { return static_bytes_; }

  // Whether an address is the arena's, red zones included.
  bool holds(const char* address) const { return address >= memory_ && address < end_; }
  const char* begin() const { return memory_; }
  // Whether an address lies among the variables, or there is nothing else. A descriptor of wgmma has 18 bits of an
  // address, and these parts of the arena never share them.
  bool is_static(const char* address) const { return address < free_ || dynamic_bytes_ == 0; }
  // The variable at an address of the arena, or the nearest one.
  struct Place {
    const char* data;
    std::size_t bytes;
    const char* name;  // null for the dynamic part, empty if the kernel has no shared memory
    bool is_inside;    // whether all requested bytes lie inside
  };
  Place place(const char* address, std::size_t bytes) const;

  struct Damage {
    int line;  // of the variable's declaration, 0 for the dynamic part
    std::string message;
  };
  // Returns the writes outside the variables since the block began. It names each variable once a
  // launch.
  std::vector<Damage> damage();

 private:
  struct Slot {
    const void* key;
    char* address;
    std::size_t bytes;
    const char* name;
    int line;
    bool damaged;
  };
  char* memory_;
  char* end_;
  char* dynamic_;
  std::size_t dynamic_bytes_ = 0;
  std::size_t static_bytes_ = 0;
  char* free_;
  bool dynamic_damaged_ = false;
  bool is_dynamic_known_ = false;  // whether a kernel of this launch knows the dynamic part
  std::vector<Slot> slots_;
  mutable std::size_t last_place_ = 0;  // the slot of the last request
};

}  // namespace cuemu
