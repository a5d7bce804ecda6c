// What the emulator found wrong, kept until the host program asks for it.
#pragma once

#include <string>
#include <vector>

#include "cuemu/vector_types.h"

namespace cuemu {

// One thread's part in a finding.
struct Access {
  uint3 thread;
  uint3 block;
  int line;
  std::string what;
  const void* code = nullptr;  // a return address in the kernel, where the line is still to be found
};

// `{0}` in the message stands for the line of the first access, where only its code is known; a line of 0 is that one.
struct Report {
  std::string kind;
  std::string kernel;
  int line;
  std::string message;
  std::string remedy;
  std::vector<Access> accesses;
  // Counts only where the result is wrong, too: what was read may not have been used.
  bool is_suspicion = false;
};

// Keeps a report; repeated ones and those beyond the first 64 are dropped.
void add_report(Report report);

// Appends text as a string of JSON; what is no UTF-8 becomes question marks.
void append_quoted(std::string& json, const std::string& text);

// "(x,y,z)"
std::string coordinates(uint3 index);

}  // namespace cuemu
