#include "exploration.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "checker.h"
#include "report.h"

namespace cuemu {
namespace {

void join(StepClock& into, const StepClock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

std::uint32_t at(const StepClock& clock, unsigned slot) { return slot < clock.size() ? clock[slot] : 0; }

bool holds(const std::vector<unsigned>& all, unsigned one) { return std::find(all.begin(), all.end(), one) != all.end(); }

constexpr std::uintptr_t kWord = sizeof(std::uint32_t);

const char* first_word(const void* place) {
  const char* const byte = static_cast<const char*>(place);
  return byte - reinterpret_cast<std::uintptr_t>(byte) % kWord;
}

std::vector<const void*> words_of(const Operation& touch) {
  std::vector<const void*> words;
  for (const char* word = first_word(touch.place); word < static_cast<const char*>(touch.place) + touch.bytes; word += kWord) words.push_back(word);
  return words;
}

std::vector<char> values_of(const Operation& touch) {
  const char* const bytes = static_cast<const char*>(touch.place);
  return {bytes, bytes + touch.bytes};
}

}  // namespace

void report_orders(const Launch& launch, unsigned orders, Exploration::Left left) {
  const dim3& block = launch.config.block;
  const std::string operations = " of its synchronising operations ran";
  std::string words = std::string("kernel ") + launch.kernel + ", " + std::to_string(launch.blocks * block.x * block.y * block.z) + " threads: ";
  switch (left) {
    case Exploration::Left::none:
      words += orders == 1 ? "its synchronising operations have one order" : "all " + std::to_string(orders) + " orders" + operations;
      break;
    case Exploration::Left::some:
      words += std::to_string(orders) + (orders == 1 ? " order" : " orders") + operations + ", and there are more";
      break;
    case Exploration::Left::meets_others: words += "too many for all orders, as blocks meet in global memory"; break;
    case Exploration::Left::allocates: words += "it allocates memory, so no orders were explored"; break;
  }
  const bool is_complete = left == Exploration::Left::none;
  add_report({is_complete ? "explored" : "incomplete", launch.kernel, launch.line, words,
              is_complete ? "" : "Use a smaller case, with fewer threads that meet at flags and at atomic operations whose results they use.", {}});
}

// ---- Orders ------------------------------------------------------------------------------------------------------------

void Exploration::begin_order(const std::vector<Block*>& blocks) {
  blocks_ = blocks;
  fibers_.clear();
  slots_.clear();
  runnable_.clear();
  parked_.clear();
  places_.clear();
  trace_.clear();
  effects_.clear();
  changes_ = 0;
  forced_rounds_ = last_ = 0;
  is_over_ = is_redundant_ = is_adrift_ = false;
  touching_ = {};
  for (Block* const block : blocks) {
    block->first_fiber = static_cast<unsigned>(fibers_.size());
    fibers_.resize(fibers_.size() + block->size());
    while (Thread* const thread = block->start_next()) {
      fibers_[block->first_fiber + thread->linear] = {block, thread, kNoSlot, false, false, false, {}, 0, {}, nullptr, nullptr, {}};
    }
  }
  for (Fiber& one : fibers_) runnable_.push_back(&one);
}

bool Exploration::next_order() {
  settle_touch();
  if (left_ == Left::meets_others || left_ == Left::allocates) return false;
  if (!is_redundant_) ++orders_;
  while (!steps_.empty()) {
    Step& last = steps_.back();
    for (const unsigned wanted : last.wanted) {
      if (holds(last.done, wanted) || holds(last.asleep, wanted)) continue;
      if (orders_ >= kMostOrders || std::chrono::steady_clock::now() > end_) {
        left_ = Left::some;
        return false;
      }
      last.fiber = wanted;
      last.done.push_back(wanted);
      restore();
      return true;
    }
    steps_.pop_back();
  }
  return false;
}

void Exploration::restore() const {
  for (const Kept& kept : kept_) std::memcpy(kept.address, &kept.word, sizeof kept.word);
}

void Exploration::break_off(Left why) {
  left_ = why;
  is_over_ = true;
}

void Exploration::keep(const char* address, std::size_t bytes) {
  for (const char* word = first_word(address); word < address + bytes; word += kWord) {
    if (!is_kept_.insert(word).second) continue;
    Kept kept{const_cast<char*>(word), 0};
    std::memcpy(&kept.word, word, sizeof kept.word);
    kept_.push_back(kept);
  }
}

// ---- Which thread runs -------------------------------------------------------------------------------------------------

Exploration::Fiber* Exploration::next() {
  settle_touch();
  for (;;) {
    if (is_over_) return nullptr;
    if (is_adrift_) return next_adrift();
    while (!runnable_.empty()) {
      Fiber* const fiber = runnable_.front();
      runnable_.pop_front();
      if (fiber->thread->state == State::ready && !fiber->has_announced) return fiber;
    }
    if (wake_parked()) continue;
    if (Fiber* const chosen = choose()) return chosen;
    if (is_over_ || !go_on_when_idle()) return nullptr;
  }
}

// All threads that are ready have announced what they do next. One of them does it.
Exploration::Fiber* Exploration::choose() {
  const std::size_t depth = trace_.size();
  if (depth < steps_.size()) {
    if (std::exchange(hurried_at_, depth) != depth) hurried_ = 0;
    Fiber& chosen = fibers_[steps_[depth].fiber];
    if (chosen.has_announced && is_enabled(chosen)) {
      grant(chosen);
      return &chosen;
    }
    if (Fiber* const hurried = hurry(chosen)) return hurried;
    left_ = Left::some;  // the kernel does not repeat itself
    is_over_ = is_redundant_ = true;
    return nullptr;
  }
  constexpr std::size_t kStepsBetweenClocks = 256;
  if (depth % kStepsBetweenClocks == kStepsBetweenClocks - 1 && std::chrono::steady_clock::now() > end_) {
    left_ = Left::some;
    is_over_ = is_redundant_ = true;
    return nullptr;
  }
  if (depth == kMostSteps) {
    left_ = Left::some;
    is_adrift_ = true;
    return next_adrift();
  }
  std::vector<unsigned> asleep;
  if (depth > 0) {
    const Step& before = steps_[depth - 1];
    const auto stays = [&](unsigned one) {
      if (one == before.fiber || !fibers_[one].has_announced || holds(asleep, one)) return;
      const Operation& next = fibers_[one].next;
      for (const Effect& effect : effects_) {
        if (is_dependent(next, effect)) return;
      }
      asleep.push_back(one);
    };
    std::for_each(before.asleep.begin(), before.asleep.end(), stays);
    std::for_each(before.done.begin(), before.done.end(), stays);
  }
  bool is_anyone_enabled = false;
  for (unsigned i = 0; i < fibers_.size(); ++i) {
    const unsigned number = (last_ + i) % static_cast<unsigned>(fibers_.size());
    Fiber& one = fibers_[number];
    if (!one.has_announced || !is_enabled(one)) continue;
    is_anyone_enabled = true;
    if (holds(asleep, number)) continue;
    steps_.push_back({number, std::move(asleep), {number}, {}});
    grant(one);
    return &one;
  }
  is_over_ = is_redundant_ = is_anyone_enabled;
  return nullptr;
}

// Lets a thread go on that waits in a loop, although nothing has changed. Returns the thread if it has something to do first.
Exploration::Fiber* Exploration::hurry(Fiber& fiber) {
  if (fiber.thread->state != State::ready) return nullptr;
  if (fiber.is_parked && ++hurried_ < kForcedRounds) {
    parked_.erase(std::find(parked_.begin(), parked_.end(), &fiber));
    fiber.is_parked = false;
    return &fiber;
  }
  if (fiber.has_announced && fiber.next.kind == Operation::Kind::touch) {
    grant(fiber);
    return &fiber;
  }
  return nullptr;
}

void Exploration::grant(Fiber& fiber) {
  if (fiber.slot == kNoSlot) {
    fiber.slot = static_cast<unsigned>(slots_.size());
    slots_.push_back(number_of(fiber));
  }
  if (fiber.known.size() <= fiber.slot) fiber.known.resize(fiber.slot + 1, 0);
  last_ = number_of(fiber);
  fiber.has_announced = false;
  fiber.is_in_step = true;
  trace_.push_back({last_, fiber.known});
  trace_.back().clock[fiber.slot] = static_cast<std::uint32_t>(trace_.size());
  effects_.clear();
  if (fiber.next.kind == Operation::Kind::touch) touching_ = {&fiber, values_of(fiber.next)};
}

bool Exploration::is_enabled(const Fiber& fiber) {
  const Operation& next = fiber.next;
  if (next.kind == Operation::Kind::wait) return can_pass_mbarrier(*fiber.block, next.place, next.parity);
  if (next.kind != Operation::Kind::touch || next.place != fiber.idle_place || next.code != fiber.idle_code) return true;
  const std::vector<const void*> words = words_of(next);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (places_[words[i]].changes.size() != fiber.idle_versions[i]) return true;
  }
  return false;
}

bool Exploration::wake_parked() {
  const auto first = std::stable_partition(parked_.begin(), parked_.end(), [&](const Fiber* one) { return one->parked_at == changes_; });
  const bool any = first != parked_.end();
  for (auto one = first; one != parked_.end(); ++one) {
    (*one)->is_parked = false;
    runnable_.push_back(*one);
  }
  parked_.erase(first, parked_.end());
  return any;
}

// No thread can do what it has announced. Lets those go on that wait in a loop, since it may have an end of its own.
bool Exploration::go_on_when_idle() {
  for (Block* const block : blocks_) {
    if (block->answer_active_lanes()) return true;
  }
  if (complete_grid_barrier()) return true;
  constexpr std::chrono::milliseconds kPatience{200};
  const Time now = std::chrono::steady_clock::now();
  if (forced_rounds_ == 0) idle_since_ = now;
  else if (now - idle_since_ > kPatience) forced_rounds_ = std::max(forced_rounds_, kPatientRounds);
  bool waits_in_loop = false;
  for (Fiber& one : fibers_) {
    if (one.thread->state != State::ready) continue;
    waits_in_loop = true;
    if (one.is_parked) one.parked_at = changes_ - 1;
    else if (forced_rounds_ >= kPatientRounds || parked_.empty()) one.idle_place = nullptr;
  }
  if (waits_in_loop && ++forced_rounds_ > kPatientRounds + (is_part_ ? 0 : kForcedRounds)) {
    if (is_part_) break_off(Left::meets_others);  // perhaps another block ends the wait
    is_adrift_ = true;
    if (left_ == Left::none) left_ = Left::some;
  }
  return waits_in_loop;
}

// Each ready thread in turn, without a plan.
Exploration::Fiber* Exploration::next_adrift() {
  const unsigned all = static_cast<unsigned>(fibers_.size());
  do {
    for (unsigned i = 1; i <= all; ++i) {
      Fiber& one = fibers_[(last_ + i) % all];
      if (one.thread->state != State::ready) continue;
      last_ = number_of(one);
      one.has_announced = one.is_parked = false;
      return &one;
    }
  } while (std::any_of(blocks_.begin(), blocks_.end(), [](Block* block) { return block->answer_active_lanes(); }) ||
           complete_grid_barrier());
  return nullptr;
}

bool Exploration::complete_grid_barrier() {
  if (!std::all_of(blocks_.begin(), blocks_.end(), [](const Block* block) { return block->waits_for_grid(); })) return false;
  for (Block* const block : blocks_) block->complete_barrier();
  std::vector<Fiber*> all;
  for (Fiber& one : fibers_) all.push_back(&one);
  meet(all, true);
  check_grid_barrier();
  return true;
}

void Exploration::become_ready(Fiber& fiber) {
  if (!is_adrift_) runnable_.push_back(&fiber);
}

void Exploration::announce(Fiber& fiber, const Operation& operation) {
  settle_touch();
  if (is_part_ && operation.is_global && operation.reduction == 0) break_off(Left::meets_others);
  fiber.is_in_step = false;
  fiber.next = operation;
  fiber.has_announced = true;
}

void Exploration::park(Fiber& fiber) {
  settle_touch();
  fiber.is_in_step = false;
  if (is_adrift_) return;
  fiber.is_parked = true;
  fiber.parked_at = changes_;
  parked_.push_back(&fiber);
}

bool Exploration::is_barrier(const void* place) const {
  const auto found = places_.find(place);
  return found != places_.end() && found->second.is_barrier;
}

// ---- What operations do ------------------------------------------------------------------------------------------------

bool Exploration::is_dependent(const Operation& next, const Effect& effect) const {
  if (next.kind == Operation::Kind::touch) {
    const char *const word = static_cast<const char*>(effect.place), *const bytes = static_cast<const char*>(next.place);
    if (word < first_word(bytes) || word >= bytes + next.bytes) return false;
  } else if (next.place != effect.place) {
    return false;
  }
  switch (effect.kind) {
    case Effect::Kind::begin:
    case Effect::Kind::flip:
    case Effect::Kind::write: return true;
    case Effect::Kind::read: return next.writes;
    case Effect::Kind::reduce: return next.reduction != effect.reduction;
    case Effect::Kind::arrive: return next.kind == Operation::Kind::begin;
    case Effect::Kind::pass: return next.kind != Operation::Kind::wait;  // the arrival may end the phase
  }
  return true;
}

// The operation of the running step is behind everything that its thread knows now.
void Exploration::note(Fiber& self, Effect::Kind kind, const void* place, unsigned reduction) {
  if (is_adrift_ || trace_.empty() || trace_.back().fiber != number_of(self)) return;
  effects_.push_back({kind, place, reduction});
  if (kind == Effect::Kind::write || kind == Effect::Kind::reduce || kind == Effect::Kind::flip || kind == Effect::Kind::begin) {
    ++changes_;
    forced_rounds_ = 0;
  }
  self.known[self.slot] = static_cast<std::uint32_t>(trace_.size());
  trace_.back().clock = self.known;
}

void Exploration::flip(Place& place) {
  join(place.past, place.now);
  join(place.past, place.passes);
  place.now.clear();
  place.passes.clear();
  place.passed.clear();
  place.expected.clear();
  place.arrived.clear();
  place.flip_before = place.last_flip;
  place.last_flip = static_cast<int>(trace_.size()) - 1;
}

void Exploration::began(Fiber& self, const void* address) {
  if (is_adrift_ || trace_.empty()) return;
  Races races(self);
  Place& place = places_[address];
  if (place.is_barrier) {
    races.with(place.last_flip);
    races.with(place.passed);
    join(self.known, place.past);
    join(self.known, place.now);
    join(self.known, place.passes);
  }
  place.is_barrier = true;
  note(self, Effect::Kind::begin, address);
  place.now = self.known;
  flip(place);
  place.flip_before = -1;
  reverse(races);
}

// The arrivals of a phase commute. One of another phase does not, nor does the last one, which ends the phase, with the
// waits that the phase before has let pass. An arrival that another thread could make before bytes are expected does so
// with the expectation, unless the same thread arrives, too: then the phase could not have ended. A copy that happens, with
// fewer bytes to come, is behind the expectation of these.
void Exploration::arrived(Fiber& self, const void* address, bool flips, std::int64_t bytes, std::int64_t arrivals) {
  if (is_adrift_ || trace_.empty()) return;
  Place& place = places_[address];
  place.is_barrier = true;
  if (bytes < 0) join(self.known, place.now);
  Races races(self);
  if (bytes >= 0) races.with(place.last_flip);
  if (flips) {
    races.with(place.passed);
    for (const unsigned step : place.expected) {
      if (!holds(place.arrived, trace_[step].fiber)) races.with(static_cast<int>(step));
    }
  }
  join(self.known, place.past);
  if (flips) join(self.known, place.passes);
  note(self, flips ? Effect::Kind::flip : Effect::Kind::arrive, address);
  join(place.now, self.known);
  if (arrivals != 0) place.arrived.push_back(number_of(self));
  else if (bytes > 0) place.expected.push_back(static_cast<unsigned>(trace_.size()) - 1);
  if (flips) flip(place);
  reverse(races);
}

// A wait could not pass in the phase before, but perhaps in the one before that, which has the same parity.
void Exploration::passed(Fiber& self, const void* address) {
  if (is_adrift_ || trace_.empty()) return;
  Races races(self);
  Place& place = places_[address];
  races.with(place.flip_before);
  join(self.known, place.past);
  note(self, Effect::Kind::pass, address);
  join(place.passes, self.known);
  place.passed.push_back(static_cast<unsigned>(trace_.size()) - 1);
  reverse(races);
}

// A touch that changes nothing commutes with reads, whatever the instruction. Reductions commute with their like. What is
// touched is words of four bytes, since accesses of other sizes may share some.
void Exploration::settle_touch() {
  if (touching_.by == nullptr) return;
  Fiber& self = *touching_.by;
  const Operation& touch = self.next;
  touching_.by = nullptr;
  const std::vector<const void*> words = words_of(touch);
  // In a loop, it could not come before the change for which it waited.
  if (touch.place == self.idle_place && touch.code == self.idle_code) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const Place& place = places_[words[i]];
      if (place.changes.size() > self.idle_versions[i]) join(self.known, trace_[place.changes[self.idle_versions[i]]].clock);
    }
  }
  Races races(self);
  const unsigned step = static_cast<unsigned>(trace_.size()) - 1;
  const bool reads = touch.reduction == 0 && values_of(touch) == touching_.before;
  for (const void* word : words) {
    const Place& place = places_[word];
    races.with(place.last_write);
    for (const Place::Reduction& one : place.reductions) {
      if (one.kind != touch.reduction) races.with(static_cast<int>(one.step));
    }
    if (!reads) races.with(place.reads);
  }
  for (const void* word : words) {
    const Place& place = places_[word];
    for (const Place::Reduction& one : place.reductions) {
      if (one.kind != touch.reduction) join(self.known, trace_[one.step].clock);
    }
    join(self.known, place.written);
    if (!reads) join(self.known, place.read);
  }
  self.idle_place = nullptr;
  self.idle_versions.clear();
  for (const void* word : words) {
    Place& place = places_[word];
    note(self, touch.reduction != 0 ? Effect::Kind::reduce : reads ? Effect::Kind::read : Effect::Kind::write, word, touch.reduction);
    if (reads) {
      join(place.read, self.known);
      place.reads.push_back(step);
      self.idle_place = touch.place;
      self.idle_code = touch.code;
      self.idle_versions.push_back(place.changes.size());
      continue;
    }
    place.changes.push_back(step);
    if (touch.reduction != 0) {
      place.reductions.push_back({step, touch.reduction});
      continue;
    }
    place.written = self.known;
    place.read.clear();
    place.reads.clear();
    place.reductions.clear();
    place.last_write = static_cast<int>(step);
  }
  reverse(races);
}

void Exploration::acquire(Fiber& fiber, const void* place) {
  settle_touch();
  join(fiber.known, places_[place].past);
}

void Exploration::publish(Fiber& fiber, const void* place) {
  settle_touch();
  join(places_[place].past, fiber.known);
}

void Exploration::meet(const std::vector<Fiber*>& threads, bool is_barrier) {
  settle_touch();
  for (Fiber* const one : threads) {
    if (is_barrier) one->idle_place = nullptr;  // it is in no loop that waits
  }
  StepClock all;
  for (const Fiber* one : threads) join(all, one->known);
  if (all.empty()) return;
  for (Fiber* const one : threads) one->known = all;
}

// ---- Which orders are left ---------------------------------------------------------------------------------------------

// Asks for orders in which the running step comes before earlier ones, where nothing else orders the two.
void Exploration::reverse(const Races& races) {
  if (is_adrift_) return;
  for (const unsigned step : races.steps) {
    const unsigned other = trace_[step].fiber;
    if (other == number_of(races.self) || at(races.before, fibers_[other].slot) > step) continue;
    if (std::chrono::steady_clock::now() > end_) {
      left_ = Left::some;
      return;
    }
    want(races.self, step);
  }
}

// What follows a step and does not depend on it can come before, and then the running step. One of the threads that can
// begin with this shall have its turn in place of the step.
void Exploration::want(const Fiber& self, unsigned step) {
  const unsigned slot = fibers_[trace_[step].fiber].slot;
  std::vector<std::uint32_t> first(slots_.size(), 0);  // by slot: the thread's first step among these, plus 1
  std::vector<unsigned> begun, initials;
  for (std::size_t i = step + 1; i < trace_.size(); ++i) {
    const bool is_last = i + 1 == trace_.size();
    const StepClock& clock = trace_[i].clock;
    if (!is_last && at(clock, slot) > step) continue;
    const unsigned number = trace_[i].fiber, own = fibers_[number].slot;
    bool is_initial = first[own] == 0;
    for (const unsigned earlier : begun) is_initial = is_initial && at(clock, earlier) < first[earlier];
    if (first[own] == 0) {
      first[own] = static_cast<std::uint32_t>(i + 1);
      begun.push_back(own);
    }
    if (!is_initial) continue;
    if (holds(steps_[step].done, number) || holds(steps_[step].wanted, number)) return;
    initials.push_back(number);
  }
  if (initials.empty()) return;
  const unsigned own = number_of(self);
  steps_[step].wanted.push_back(holds(initials, own) ? own : initials.front());
}

}  // namespace cuemu
