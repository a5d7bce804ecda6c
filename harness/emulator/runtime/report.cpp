#include "report.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

namespace cuemu {
namespace {

constexpr std::ptrdiff_t kMostReports = 64;  // of faults, and of notes on orders

// Whether a report only says how many orders have run.
bool is_note(const Report& report) { return report.kind == "explored" || report.kind == "incomplete"; }

struct Reports {
  std::mutex mutex;
  std::vector<Report> kept;
  std::string json;  // the caller of the last take still reads it
};

// Never destroyed: the process frees, and so checks, allocations until its very end.
Reports& reports() {
  static Reports* const all = [] {
    pthread_atfork([] { reports().mutex.lock(); }, [] { reports().mutex.unlock(); },
                   [] { reports().mutex.unlock(); });
    return new Reports;
  }();
  return *all;
}

// Returns the length of the valid UTF-8 sequence at `byte`; 0 if there is none.
int sequence_length(const unsigned char* byte) {
  const int length = byte[0] < 0x80 ? 1 : byte[0] >= 0xC2 && byte[0] < 0xE0 ? 2 : byte[0] >= 0xE0 && byte[0] < 0xF0 ? 3
                     : byte[0] >= 0xF0 && byte[0] < 0xF5 ? 4 : 0;
  for (int i = 1; i < length; ++i) {
    if ((byte[i] & 0xC0) != 0x80) return 0;
  }
  if (length == 3 && ((byte[0] == 0xE0 && byte[1] < 0xA0) || (byte[0] == 0xED && byte[1] > 0x9F))) return 0;
  if (length == 4 && ((byte[0] == 0xF0 && byte[1] < 0x90) || (byte[0] == 0xF4 && byte[1] > 0x8F))) return 0;
  return length;
}

void append_index(std::string& json, const char* name, uint3 index) {
  json += std::string("\"") + name + "\": [" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
          std::to_string(index.z) + "], ";
}

// Appends the place of a code address: the library's file and the offset in it.
void append_code(std::string& json, const void* code) {
  Dl_info about;
  if (code == nullptr || dladdr(code, &about) == 0 || about.dli_fname == nullptr) return;
  json += ", \"code\": [";
  append_quoted(json, about.dli_fname);
  json += ", " + std::to_string(static_cast<const char*>(code) - static_cast<const char*>(about.dli_fbase)) + "]";
}

void append_report(std::string& json, const Report& report) {
  json += "{\"kind\": ";
  append_quoted(json, report.kind);
  json += ", \"kernel\": ";
  append_quoted(json, report.kernel);
  json += ", \"line\": " + std::to_string(report.line) + ", \"message\": ";
  append_quoted(json, report.message);
  json += ", \"remedy\": ";
  append_quoted(json, report.remedy);
  json += ", \"accesses\": [";
  for (std::size_t i = 0; i < report.accesses.size(); ++i) {
    const Access& access = report.accesses[i];
    json += i == 0 ? "{" : ", {";
    append_index(json, "thread", access.thread);
    append_index(json, "block", access.block);
    json += "\"line\": " + std::to_string(access.line) + ", \"what\": ";
    append_quoted(json, access.what);
    append_code(json, access.code);
    json += '}';
  }
  json += report.is_suspicion ? "], \"is_suspicion\": true}" : "]}";
}

}  // namespace

void append_quoted(std::string& json, const std::string& text) {
  json += '"';
  const unsigned char* byte = reinterpret_cast<const unsigned char*>(text.c_str());
  while (*byte != 0) {
    const int length = sequence_length(byte);
    if (length == 0) {
      json += '?';
      ++byte;
      continue;
    }
    if (*byte == '"' || *byte == '\\') {
      json += '\\';
      json += static_cast<char>(*byte);
    } else if (*byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", *byte);
      json += escape;
    } else {
      json.append(reinterpret_cast<const char*>(byte), length);
    }
    byte += length;
  }
  json += '"';
}

void add_report(Report report) {
  Reports& all = reports();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto alike = [&](const Report& kept) { return is_note(kept) == is_note(report); };
  if (std::count_if(all.kept.begin(), all.kept.end(), alike) >= kMostReports) return;
  for (const Report& kept : all.kept) {
    const auto same = [](const Access& a, const Access& b) { return a.code == b.code; };
    if (kept.kind == report.kind && kept.kernel == report.kernel && kept.line == report.line && kept.message == report.message &&
        std::equal(kept.accesses.begin(), kept.accesses.end(), report.accesses.begin(), report.accesses.end(), same)) {
      return;
    }
  }
  all.kept.push_back(std::move(report));
}

std::size_t faults_reported() {
  Reports& all = reports();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return static_cast<std::size_t>(std::count_if(all.kept.begin(), all.kept.end(), [](const Report& report) {
    return !report.is_suspicion && !is_note(report);
  }));
}

std::string coordinates(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

}  // namespace cuemu

extern "C" {

void cuemu_report(const char* kind, const char* kernel, int line, const char* message, const char* remedy) {
  cuemu::add_report({kind, kernel, line, message, remedy, {}});
}

const char* cuemu_take_reports(void) {
  cuemu::Reports& all = cuemu::reports();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.json = "[";
  for (std::size_t i = 0; i < all.kept.size(); ++i) {
    if (i != 0) all.json += ", ";
    cuemu::append_report(all.json, all.kept[i]);
  }
  all.json += ']';
  all.kept.clear();
  return all.json.c_str();
}

}  // extern "C"
