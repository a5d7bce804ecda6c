// The emulator's findings, kept until the host program asks for them.
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
  const void* code = nullptr;  // a return address in the kernel, if the line is still unknown
};

// `{0}` in the message stands for the line of the first access, if only its code is known. A line
// of 0 means that line.
struct Report {
  std::string kind;
  std::string kernel;
  int line;
  std::string message;
  std::string remedy;
  std::vector<Access> accesses;
  // Counts only if the result is wrong, too, because the program may not have used what it read.
  bool is_suspicion = false;
};

// Keeps a report. Drops repeated reports, and all after the first 64.
void add_report(Report report);

// The number of kept reports that are faults, whatever the result.
std::size_t faults_reported();

// Appends text as a JSON string. Bytes that are not UTF-8 become question marks.
void append_quoted(std::string& json, const std::string& text);

// "(x,y,z)"
std::string coordinates(uint3 index);

}  // namespace cuemu
