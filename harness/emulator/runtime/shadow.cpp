#include "shadow.h"

#include <cstdlib>
#include <cstring>

namespace cuemu {

Word* Shadow::words_of(std::uintptr_t number) {
  if ((used_ + 1) * 2 > places_) grow();
  std::size_t place = number * 0x9E3779B97F4A7C15u % places_;
  while (pages_[place].number != 0 && pages_[place].number != number) place = (place + 1) % places_;
  Page& page = pages_[place];
  if (page.number == 0) {
    if (used_ == kMostPages) return nullptr;
    Word* const words = static_cast<Word*>(std::calloc(kWords, sizeof(Word)));
    if (words == nullptr) return nullptr;
    page = {number, generation_, words};
    ++used_;
  } else if (page.generation != generation_) {
    std::memset(static_cast<void*>(page.words), 0, kWords * sizeof(Word));
    page.generation = generation_;
  }
  return page.words;
}

void Shadow::give_back() {
  for (std::size_t i = 0; i < places_; ++i) std::free(pages_[i].words);
  std::free(pages_);
  pages_ = nullptr;
  places_ = used_ = 0;
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
