#include "variables.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shadow.h"

namespace cuemu {
namespace {

constexpr std::size_t kPageBytes = 4096;

std::string source_name(const std::string& symbol) {
  char* const found = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr);
  const std::string name = found == nullptr ? symbol : found;
  std::free(found);
  return name;
}

struct Range {
  const char* begin;
  const char* end;
};

// The data sections of a library, and the variables there by their addresses. A library without a symbol table has none.
struct Variables {
  std::vector<char> file;
  std::vector<Range> sections;
  std::vector<Extent> all;
  std::vector<std::string> names;

  template <typename T>
  const T* at(std::size_t offset, std::size_t count = 1) const {
    const bool fits = offset <= file.size() && count <= (file.size() - offset) / sizeof(T);
    return fits ? reinterpret_cast<const T*>(file.data() + offset) : nullptr;
  }

  void read(const char* path, const char* base) {
    std::ifstream stream(path, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(stream), {});
    const auto* const head = at<ElfW(Ehdr)>(0);
    if (head == nullptr || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return;
    const auto* const headers = at<ElfW(Shdr)>(head->e_shoff, head->e_shnum);
    if (headers == nullptr || head->e_shstrndx >= head->e_shnum) return;
    const std::size_t titles = headers[head->e_shstrndx].sh_offset;
    std::vector<bool> holds_data(head->e_shnum);
    for (std::size_t i = 0; i < head->e_shnum; ++i) {
      const std::string_view title = text(titles + headers[i].sh_name);
      holds_data[i] = title == ".data" || title == ".bss";
      if (!holds_data[i] || headers[i].sh_size == 0) continue;
      const std::size_t end = headers[i].sh_addr + headers[i].sh_size;  // behind the last one lies the rest of a page
      sections.push_back({base + headers[i].sh_addr, base + (end + kPageBytes - 1) / kPageBytes * kPageBytes});
    }
    for (std::size_t i = 0; i < head->e_shnum; ++i) {
      if (headers[i].sh_type == SHT_SYMTAB && headers[i].sh_link < head->e_shnum) {
        read_symbols(headers[i], headers[headers[i].sh_link].sh_offset, holds_data, base);
      }
    }
    file.clear();
    file.shrink_to_fit();
  }

 private:
  std::string_view text(std::size_t offset) const {
    if (offset >= file.size()) return {};
    return {file.data() + offset, strnlen(file.data() + offset, file.size() - offset)};
  }

  void read_symbols(const ElfW(Shdr)& table, std::size_t strings, const std::vector<bool>& holds_data, const char* base) {
    const std::size_t count = table.sh_size / sizeof(ElfW(Sym));
    const auto* const symbols = at<ElfW(Sym)>(table.sh_offset, count);
    if (symbols == nullptr) return;
    names.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const ElfW(Sym)& one = symbols[i];
      if (one.st_size == 0 || one.st_shndx >= holds_data.size() || !holds_data[one.st_shndx]) continue;
      names.push_back("variable " + source_name(std::string(text(strings + one.st_name))));
      all.push_back({base + one.st_value, one.st_size, names.back().c_str(), false});
    }
    std::sort(all.begin(), all.end(), [](const Extent& left, const Extent& right) {
      return left.data != right.data ? left.data < right.data : left.bytes < right.bytes;
    });
  }
};

}  // namespace

Extent variable_at(const char* address) {
  static auto& libraries = *new std::map<std::pair<const void*, std::string>, Variables>;  // a checked launch runs on one OS thread
  static const Variables* known = nullptr;
  static std::uintptr_t known_code = 0;
  if (known_code != Cell::code_base) {
    known_code = Cell::code_base;
    Dl_info about;
    if (dladdr(reinterpret_cast<const void*>(known_code), &about) == 0 || about.dli_fname == nullptr) {
      known = nullptr;
    } else {
      const auto [found, is_new] = libraries.try_emplace({about.dli_fbase, about.dli_fname});
      if (is_new) found->second.read(about.dli_fname, static_cast<const char*>(about.dli_fbase));
      known = &found->second;
    }
  }
  if (known == nullptr || known->all.empty()) return {};
  const bool is_data = std::any_of(known->sections.begin(), known->sections.end(), [&](const Range& one) {
    return address >= one.begin && address < one.end;
  });
  if (!is_data) return {};
  const auto after = std::upper_bound(known->all.begin(), known->all.end(), address,
                                      [](const char* wanted, const Extent& one) { return wanted < one.data; });
  return after == known->all.begin() ? Extent{} : *std::prev(after);
}

}  // namespace cuemu
