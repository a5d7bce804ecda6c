#include "shadow.h"

#include <cstdlib>
#include <cstring>

namespace cuemu {

namespace {

unsigned written_bytes(const Word& word) {
  if (!word.is_split()) return word.write.is_empty() ? 0 : word.write.bytes();
  unsigned bytes = 0;
  for (const Part* part = word.parts(); part != nullptr; part = part->next) {
    if (!part->word.write.is_empty()) bytes |= part->word.write.bytes() & part->bytes;
  }
  return bytes;
}

}  // namespace

Word* Shadow::words_of(std::uintptr_t number) {
  if ((used_ + 1) * 2 > places_) grow();
  std::size_t place = number * 0x9E3779B97F4A7C15u % places_;
  while (pages_[place].number != 0 && pages_[place].number != number) place = (place + 1) % places_;
  Page& page = pages_[place];
  if (page.number == 0) {
    if (bytes() + kBytesOfPage > kMostBytes) return nullptr;
    Word* const words = static_cast<Word*>(std::calloc(1, kBytesOfPage));
    if (words == nullptr) return nullptr;
    page = {number, generation_, words};
    ++used_;
  } else if (page.generation != generation_) {
    if (page.generation < launch_) {
      std::memset(page.written(), 0, kWords);
    } else {
      for (std::size_t i = 0; i < kWords; ++i) page.written()[i] |= static_cast<unsigned char>(written_bytes(page.words[i]));
    }
    std::memset(static_cast<void*>(page.words), 0, kWords * sizeof(Word));
    page.generation = generation_;
  }
  return page.words;
}

unsigned Shadow::written_before_barrier(const char* address) {
  if (generation_ == launch_) return 0;
  const std::uintptr_t place = reinterpret_cast<std::uintptr_t>(address);
  const Word* const words = words_of(place / kPageBytes);
  return words == nullptr ? 0 : reinterpret_cast<const unsigned char*>(words + kWords)[place % kPageBytes / kWordBytes];
}

Part* Shadow::new_part() {
  if (free_parts_ != nullptr) {
    Part* const part = free_parts_;
    free_parts_ = part->next;
    return part;
  }
  if (parts_used_ == parts_.size() * kPartsOfChunk) {
    if (bytes() + kPartsOfChunk * sizeof(Part) > kMostBytes) return nullptr;
    parts_.push_back(std::make_unique<Part[]>(kPartsOfChunk));
  }
  Part* const part = &parts_[parts_used_ / kPartsOfChunk][parts_used_ % kPartsOfChunk];
  ++parts_used_;
  return part;
}

void Shadow::free_parts(Part* first) {
  Part* last = first;
  while (last->next != nullptr) last = last->next;
  last->next = free_parts_;
  free_parts_ = first;
}

void Shadow::give_back() {
  for (std::size_t i = 0; i < places_; ++i) std::free(pages_[i].words);
  std::free(pages_);
  pages_ = nullptr;
  places_ = used_ = 0;
  parts_.clear();
}

void Shadow::grow() {
  const std::size_t wanted = places_ == 0 ? 1024 : 2 * places_;
  Page* const larger = static_cast<Page*>(std::calloc(wanted, sizeof(Page)));
  if (larger == nullptr) std::abort();
  for (std::size_t i = 0; i < places_; ++i) {
    if (pages_[i].number == 0) continue;
    std::size_t place = pages_[i].number * 0x9E3779B97F4A7C15u % wanted;
    while (larger[place].number != 0) place = (place + 1) % wanted;
    larger[place] = pages_[i];
  }
  std::free(pages_);
  pages_ = larger;
  places_ = wanted;
}

}  // namespace cuemu
