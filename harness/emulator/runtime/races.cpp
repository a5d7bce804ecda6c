// The checking mode's part that finds accesses which nothing orders.
#include <cstring>

#include "checking.h"

namespace cuemu {

Block* owner_of(Block& block, const char* address) {
  if (block.arena().holds(address)) return &block;
  return block.cluster() == nullptr ? nullptr : block.cluster()->owner_of(address);
}

const AsyncCopies::Waiting* copy_in_flight(Block& block, const Touch& touch) {
  const auto* const own = block.copies().in_flight(touch.address, touch.bytes, touch.writes);
  if (own != nullptr || block.cluster() == nullptr) return own;
  for (Block* const other : block.cluster()->blocks()) {
    const auto* const found = other->copies().in_flight(touch.address, touch.bytes, touch.writes);
    if (found != nullptr) return found;
  }
  return nullptr;
}

std::string shared_words(const SharedArena::Place& place) {
  if (place.name == nullptr) return "the dynamic shared memory";
  return *place.name == 0 ? "shared memory" : std::string("the __shared__ variable ") + place.name;
}

std::string place_words(const Touch& touch, const SharedArena::Place* place) {
  if (place != nullptr) return shared_words(*place) + " at byte " + std::to_string(touch.address - place->data);
  const Extent extent = extent_of(touch.address);
  if (extent.data == nullptr) return "a global variable";
  return with_article(extent.what) + " of " + size_words(extent.bytes) + " at byte " +
         std::to_string(touch.address - extent.data);
}

// An access to what an asynchronous copy is about to write, or a write to what it is about to read.
void tell_copy_in_flight(const Running& at, const Touch& touch, const AsyncCopies::Waiting& one, const std::string& where) {
  if (!is_new('y', touch.code, one.copy.line)) return;
  const uint3 thread = index_in(one.thread, checker().config.block);
  const std::string line = std::to_string(one.copy.line);
  Report report{"race", checker().kernel, 0,
                thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + where + " in line {0} while the " +
                    "asynchronous copy that " + thread_words(thread, one.from->index()) + " began in line " + line +
                    " is in flight: no wait has ended it",
                one.copy.barrier != nullptr
                    ? "Wait for the mbarrier's phase before the access, with the right parity."
                    : "Wait for the copy's group (cp.async.wait_group) in the thread that began it, then synchronise.",
                {{at.index(), at.block.index(), 0, verb(touch), touch.code},
                 {thread, one.from->index(), one.copy.line, "copies", nullptr}}};
  add_report(std::move(report));
}

namespace {

std::string place_words(Block& block, const Touch& touch) {
  const Block* const owner = owner_of(block, touch.address);
  if (owner == nullptr) return place_words(touch, nullptr);
  const SharedArena::Place place = owner->arena().place(touch.address, touch.bytes);
  return place_words(touch, &place);
}

Report race(const Running& at, const Touch& touch, const Cell& earlier, bool earlier_wrote, const std::string& where) {
  Checker& all = checker();
  const uint3 thread = index_in(earlier.thread(), all.config.block);
  const uint3 block = index_in(earlier.block() - 1, all.config.grid);
  const bool same_block = earlier.block() == at.clock.block();
  const bool same_warp = same_block && earlier.thread() / 32 == at.thread / 32;
  const char* const before = earlier.is_atomic() ? "updated atomically" : earlier_wrote ? "wrote" : "read";
  const char* const remedy =
      same_warp   ? "Put a __syncwarp() between the two: lanes of a warp do not run in lockstep."
      : at.clock.is_near(earlier.block()) && !same_block
          ? "Put the cluster's barrier (barrier.cluster.arrive and wait) between the two, or an mbarrier."
      : same_block ? "Put a __syncthreads() between the two, reached by all threads of the block."
      : earlier.is_atomic() && touch.is_atomic && (earlier.is_of_block() || touch.is_of_block)
          ? "Use the device's scope (atomicAdd, .gpu) in all blocks: an operation of the block's scope is atomic in its block alone."
      : earlier.is_atomic() || touch.is_atomic
          ? "Put a __threadfence() between the write and the atomic operation that tells of it; or make both atomic, or "
            "read the result in a later launch."
          : "Blocks are not ordered: use atomics, give each block its own elements, or read the result in a later launch "
            "(or behind a __threadfence() and an atomic counter).";
  Report report;
  report.kind = "race";
  report.kernel = all.kernel;
  report.line = 0;
  report.message = thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + where + " in line {0}, which " +
                   thread_words(thread, block) + " " + before + " in line {1}: nothing orders the two";
  report.remedy = remedy;
  report.accesses = {{at.index(), at.block.index(), 0, verb(touch), touch.code},
                     {thread, block, 0, before, earlier.code()}};
  return report;
}

void tell_race(const Running& at, const Touch& touch, const Cell& earlier, bool earlier_wrote, const std::string& where,
               bool is_shared) {
  if (is_new(is_shared ? 's' : 'g', touch.code, earlier.code())) {
    add_report(race(at, touch, earlier, earlier_wrote, where));
  }
}

// A copy's access to what a thread has accessed: unordered, or ordered without a fence for the asynchronous proxy. PTX asks
// for the fence also where a copy overwrites what was only read: on an H200 such a load saw the copy once in 2000 calls.
void tell_copy(const Running& at, const Touch& touch, const Cell& earlier, bool wrote, bool is_hidden, const std::string& where) {
  const int copy_line = at.line;
  if (!is_new('z', earlier.code(), copy_line)) return;
  const std::string line = std::to_string(copy_line), before = wrote ? "wrote" : "read";
  const uint3 thread = index_in(earlier.thread(), checker().config.block);
  const uint3 block = index_in(earlier.block() - 1, checker().config.grid);
  Report report{"race", checker().kernel, copy_line,
                std::string("the ") + at.agent + " that " + thread_words(at.index(), at.block.index()) + " began in line " + line + " " +
                    verb(touch) + " " + where + ", which " + thread_words(thread, block) + " " + before + " in line {1}: " +
                    (is_hidden ? "no fence.proxy.async lies between" : "nothing orders the two"),
                is_hidden ? "Put a fence.proxy.async behind the access, before the barrier that the copy's thread waits for."
                : at.copies()
                    ? "Let every thread arrive at an mbarrier behind its last access, and begin the next copy behind that phase."
                    : "Let the wgmma begin behind the barrier that says that its operands are there, and wait for it "
                      "(wgmma.wait_group) before they are written again.",
                {{at.index(), at.block.index(), copy_line, std::string(at.copies() ? "copies and " : "multiplies and ") + verb(touch), nullptr},
                 {thread, block, 0, before, earlier.code()}}};
  add_report(std::move(report));
}

bool conflicts(const Cell& earlier, const Touch& touch, unsigned bytes, const Running& at) {
  if (earlier.is_empty() || (earlier.bytes() & bytes) == 0) return false;
  if (earlier.is_atomic() && touch.is_atomic) {
    const bool is_of_block = earlier.is_of_block() || touch.is_of_block;  // the scope of one of them
    if (!is_of_block || earlier.block() == at.clock.block()) return false;
  }
  return !at.is_behind(earlier);
}

// Whether an access of a thread precedes the copy that happens now, but no fence shows it to the asynchronous proxy.
bool is_hidden(const Cell& earlier, unsigned bytes, const Running& at) {
  return at.copy != nullptr && (earlier.bytes() & bytes) != 0 && at.clock.lacks_proxy_fence(earlier, *at.copy);
}

bool lacks_fence(const Cell& earlier, const Touch& touch, const Running& at) {
  const auto own = checker().histories.find(touch.address);
  return at.clock.lacks_fence(earlier, own == checker().histories.end() ? nullptr : &own->second);
}

// Notes an access in a word. Returns the earlier access that it races with, or null.
struct Conflict {
  Cell earlier;
  bool wrote;
  bool is_hidden = false;  // from the asynchronous proxy, but ordered
};
Conflict note(Word& word, const Cell& cell, const Touch& touch, const Running& at, unsigned bytes) {
  Conflict found{};
  if (conflicts(word.write, touch, bytes, at)) found = {word.write, true};
  else if (is_hidden(word.write, bytes, at)) found = {word.write, true, true};
  // Both accesses may be atomic and the value still be old: an atomic operation claims that the
  // value is there, but no fence guarantees it.
  if (touch.is_volatile && !touch.writes && word.write.is_volatile() && (word.write.bytes() & bytes) != 0 && lacks_fence(word.write, touch, at) &&
      !at.is_behind(word.write)) {
    found = {word.write, true};
  }
  if (!touch.writes) {
    Cell& last = word.reads[0];
    const bool is_own = last.block() == cell.block() && last.thread() == cell.thread() && (last.bytes() & ~cell.bytes()) == 0;
    if (is_own && cell.is_atomic() && !last.is_atomic()) return found;  // keep the plain read, the one to check
    if (!last.is_empty() && !is_own) word.reads[1] = last;
    last = cell;
    return found;
  }
  const Cell& own = word.reads[0];
  if (touch.compares && own.block() == cell.block() && own.thread() == cell.thread()) checker().settled.insert(own.code());
  for (const Cell& read : word.reads) {
    if (!found.earlier.is_empty()) break;
    if (conflicts(read, touch, bytes, at)) found = {read, false};
    else if (is_hidden(read, bytes, at)) found = {read, false, true};
  }
  word.write = cell;
  word.reads[0] = word.reads[1] = Cell{};
  return found;
}

void tell_or_doubt(const Running& at, const Touch& touch, const Conflict& conflict, const SharedArena::Place* place) {
  Doubt& doubt = at.block.conduct(at.thread).doubt;
  RepeatedStore& store = checker().repeated;
  if (at.copy != nullptr) {
    return tell_copy(at, touch, conflict.earlier, conflict.wrote, conflict.is_hidden, place_words(touch, place));
  }
  if (!touch.reads && !touch.is_atomic && conflict.wrote && touch.bytes <= sizeof store.before) {
    if (store.touch.address != nullptr) return;  // another word of the same store
    store = {touch, conflict.earlier, {}, &at.block, at.thread};
    std::memcpy(store.before, touch.address, touch.bytes);
    return;
  }
  if (touch.is_atomic && !conflict.wrote && !conflict.earlier.is_atomic()) {  // reported as the reader's own doubt
    checker().unsettled.try_emplace(conflict.earlier.code(),
                                    race(at, touch, conflict.earlier, false, place_words(touch, place)));
    return;
  }
  const bool is_plain_read = !touch.writes && !touch.is_atomic;
  if (is_plain_read && conflict.wrote && conflict.earlier.is_atomic() && doubt.address == nullptr) {
    doubt = {touch.address, Doubt::kPatience, touch, conflict.earlier};
    ++checker().doubts;
  } else {
    tell_race(at, touch, conflict.earlier, conflict.wrote, place_words(touch, place), place != nullptr);
  }
}

void tell_uninitialised(const Running& at, const Touch& touch, const SharedArena::Place* place) {
  if (!is_new('u', touch.code, nullptr)) return;
  tell("uninitialised", at,
       thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + place_words(touch, place) +
           " in line {0}, where nothing was written before",
       "Write every element before it is read: zero what is accumulated, and fill tiles to their last element.",
       touch.code, verb(touch), true);
}

void forget_doubt(Doubt& doubt) {
  doubt.address = nullptr;
  --checker().doubts;
}

// What an earlier block has left in shared memory.
void forget_ended_blocks(Word& word, const Running& at, const SharedArena::Place* place) {
  if (place == nullptr) return;
  if (!at.clock.is_near(word.write.block())) word.write = Cell{};
  if (!at.clock.is_near(word.reads[0].block())) word.reads[0] = word.reads[1] = Cell{};
}

// Whether a word that is not split would lose what it knows of other bytes than these. The cell may get the bytes of the
// same thread's access before.
bool loses_other_bytes(const Word& word, Cell& cell, const Touch& touch) {
  const unsigned others = ~cell.bytes();
  const Cell &last = word.reads[0], &before = word.reads[1];
  const Cell& own = touch.writes ? word.write : last;
  if (!own.is_empty() && own.is_same_but_bytes(cell)) cell = cell.of_bytes(own.bytes() | cell.bytes());
  if (touch.writes) return (word.write.bytes() & ~cell.bytes()) != 0 || ((last.bytes() | before.bytes()) & others) != 0;
  const auto is_own = [&](const Cell& read) { return read.block() == cell.block() && read.thread() == cell.thread(); };
  if (last.is_empty() || before.is_empty() || (is_own(last) && (last.bytes() & ~cell.bytes()) == 0)) return false;
  return (before.bytes() & others) != 0 || ((last.bytes() & others) != 0 && !is_own(before));
}

// Gives the word parts, unless memory is short.
bool split(Word& word) {
  Part* const part = checker().shadow.new_part();
  if (part == nullptr) return false;
  *part = {word, kWholeWord, nullptr};
  word.split(part);
  return true;
}

// Notes an access to some bytes of a word, or to a word in parts. Returns whether nothing has written those bytes.
bool note_apart(Word& word, const Cell& whole, unsigned bytes, const Touch& touch, const Running& at, const SharedArena::Place* place) {
  if (!word.is_split()) {
    forget_ended_blocks(word, at, place);
    Cell cell = whole.of_bytes(bytes);
    if (!loses_other_bytes(word, cell, touch) || !split(word)) {
      const bool untouched = (word.write.bytes() & bytes) == 0;
      const Conflict conflict = note(word, cell, touch, at, bytes);
      if (!conflict.earlier.is_empty()) tell_or_doubt(at, touch, conflict, place);
      return untouched;
    }
  }
  bool untouched = true;
  for (Part* part = word.parts(); part != nullptr; part = part->next) {
    const unsigned hit = part->bytes & bytes;
    if (hit == 0) continue;
    Part* const rest = hit == part->bytes ? nullptr : checker().shadow.new_part();
    if (rest != nullptr) {
      *rest = {part->word, part->bytes & ~hit, part->next};
      part->next = rest;
      part->bytes = hit;
    }
    forget_ended_blocks(part->word, at, place);
    untouched = untouched && (part->word.write.bytes() & hit) == 0;
    const Conflict conflict = note(part->word, whole.of_bytes(hit), touch, at, hit);
    if (!conflict.earlier.is_empty()) tell_or_doubt(at, touch, conflict, place);
  }
  if (touch.writes && bytes == kWholeWord) {
    Part* const parts = word.parts();
    word = Word{whole, {}};
    checker().shadow.free_parts(parts);
  }
  return untouched;
}

}  // namespace

// The checker learns of a store before it happens, and no other access comes between.
void settle_repeated_store() {
  RepeatedStore& store = checker().repeated;
  const Touch touch = store.touch;
  store.touch.address = nullptr;
  if (std::memcmp(touch.address, store.before, touch.bytes) == 0) return;
  tell_race({this_worker(), *store.block, store.block->clock(), store.thread}, touch, store.earlier, true,
            place_words(*store.block, touch), owner_of(*store.block, touch.address) != nullptr);
}

void note_words(const Running& at, const Touch& touch, const SharedArena::Place* place) {
  Checker& all = checker();
  const std::uint32_t block = at.clock.block();
  const unsigned first = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(touch.address) % kWordBytes);
  const char* const end = touch.address + touch.bytes;
  const Cell whole = Cell::of(block, at.thread, at.clock.time(), at.lane_clock(), touch.code,
                              {touch.is_atomic, touch.is_volatile, touch.is_of_block, at.copy != nullptr && at.copy->is_in_async_proxy});
  bool untouched = true;
  for (const char* word_address = touch.address - first; word_address < end; word_address += kWordBytes) {
    Word* const word = all.shadow.word(word_address);
    if (word == nullptr) return;
    unsigned bytes = kWholeWord;
    if (word_address < touch.address) bytes &= kWholeWord << first;
    if (word_address + kWordBytes > end) bytes &= kWholeWord >> (word_address + kWordBytes - end);
    if (bytes != kWholeWord || word->is_split()) {
      untouched = note_apart(*word, whole, bytes, touch, at, place) && untouched;
      continue;
    }
    forget_ended_blocks(*word, at, place);
    untouched = untouched && word->write.is_empty();
    const Conflict conflict = note(*word, whole, touch, at, kWholeWord);
    if (!conflict.earlier.is_empty()) tell_or_doubt(at, touch, conflict, place);
  }
  if (untouched && touch.reads && is_poison(touch.address, touch.bytes)) tell_uninitialised(at, touch, place);
}

void check_constant(const Running& at, const Touch& touch) {
  Checker& all = checker();
  const auto address = reinterpret_cast<std::uintptr_t>(touch.address);
  bool is_written = false;
  Cell writer;
  const auto look = [&](const Word& word, unsigned bytes) {
    if (word.write.is_empty() || (word.write.bytes() & bytes) == 0) return;
    is_written = true;
    writer = word.write;
  };
  for (std::uintptr_t at_word = address / kWordBytes * kWordBytes; at_word < address + touch.bytes; at_word += kWordBytes) {
    const char* const place = reinterpret_cast<const char*>(at_word);
    unsigned bytes = kWholeWord;
    if (at_word < address) bytes &= kWholeWord << (address - at_word);
    if (at_word + kWordBytes > address + touch.bytes) bytes &= kWholeWord >> (at_word + kWordBytes - address - touch.bytes);
    const Word* const word = all.shadow.word(place);
    if (word == nullptr) return;
    if (!word->is_split()) look(*word, bytes);
    for (const Part* part = word->is_split() ? word->parts() : nullptr; part != nullptr; part = part->next) {
      look(part->word, part->bytes & bytes);
    }
    is_written = is_written || (all.shadow.written_before_barrier(place) & bytes) != 0;
  }
  if (!is_written || !is_new('c', touch.code, writer.code())) return;
  std::string who = "which an earlier phase wrote";
  Report report{"race", all.kernel, 0, "",
                "Read what the launch writes with a plain load: __ldg and ld.global.nc are for memory that no thread writes "
                "during the launch.",
                {{at.index(), at.block.index(), 0, "reads", touch.code}}};
  if (!writer.is_empty()) {
    const uint3 thread = index_in(writer.thread(), all.config.block), block = index_in(writer.block() - 1, all.config.grid);
    who = "which " + thread_words(thread, block) + " wrote in line {1}";
    report.accesses.push_back({thread, block, 0, "wrote", writer.code()});
  }
  report.message = thread_words(at.index(), at.block.index()) + " reads " + place_words(touch, nullptr) +
                   " through the read-only cache in line {0}, " + who + " in the same launch: the cache may hold an older value";
  add_report(std::move(report));
}

void keep_doubt(const Running& at, Doubt& doubt) {
  const std::string where = place_words(at.block, doubt.touch);
  checker().unsettled.try_emplace(doubt.touch.code, race(at, doubt.touch, doubt.earlier, true, where));
  forget_doubt(doubt);
}

void settle_doubt(const Running& at, Doubt& doubt, const Touch& touch) {
  if (touch.address == doubt.address && touch.is_atomic && touch.writes && touch.compares) {
    checker().settled.insert(doubt.touch.code);
    forget_doubt(doubt);
  } else if (--doubt.left == 0) {
    keep_doubt(at, doubt);
  }
}

}  // namespace cuemu
