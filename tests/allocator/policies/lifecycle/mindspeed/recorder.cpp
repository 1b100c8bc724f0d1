#include "recorder.h"

namespace mindspeed {

void Table::add(Tick start, Tick end, Bytes size) { count_ += spans_[size].emplace(start, end).second; }

void Table::remove(Tick start, Tick end, Bytes size) {
  auto found = spans_.find(size);
  if (found != spans_.end()) count_ -= found->second.erase({start, end});
}

std::optional<Span> Table::latest(Tick now, Bytes size) const {
  auto found = spans_.find(size);
  if (found == spans_.end()) return std::nullopt;
  auto after = found->second.upper_bound({now, NEVER});
  if (after == found->second.begin()) return std::nullopt;
  --after;
  return Span{after->first, after->second};
}

std::set<Bytes> Table::sizes_between(Tick from, Tick to) const {
  std::set<Bytes> sizes;
  for (const auto& [size, spans] : spans_) {
    auto first = spans.upper_bound({from, NEVER});
    if (first != spans.end() && first->first < to) sizes.insert(size);
  }
  return sizes;
}

// Section 3, memory_recorder_end and malloc_recorder_end.
void Windows::end() {
  look_ups_ = 0;
  tick_ = 1;
  window_++;
  if (is_new_branch_ || window_ == 0) {
    history_.push_back(now_);
    is_new_branch_ = false;
  }
  last_ = std::move(now_);
  now_ = Table();
}

std::optional<Span> Windows::look_up(Bytes size) {
  std::size_t id = look_ups_++;
  if (auto found = last_.latest(tick_, size)) return found;
  for (const Table& table : history_) {
    if (auto found = table.latest(tick_, size)) return found;
  }
  if (last_.count() >= id) is_new_branch_ = true;
  return std::nullopt;
}

Windows::Note Windows::allocated(bool is_inside, Bytes size) {
  Tick start = tick_++;
  if (!is_inside) return {};
  now_.add(start, NEVER, size);
  return {true, window_, start, size};
}

void Windows::freed(const Note& note, bool is_inside) {
  if (!note.is_there || !is_inside || note.window != window_) return;
  now_.remove(note.start, NEVER, note.size);
  now_.add(note.start, tick_, note.size);
}

std::set<Bytes> Windows::sizes_between(const Span& span) const {
  std::set<Bytes> sizes = last_.sizes_between(span.start, span.end);
  for (const Table& table : history_) sizes.merge(table.sizes_between(span.start, span.end));
  return sizes;
}

// Section 4, steps 1 to 3.
Prediction Recorder::predict(const Phases& phases, const Settings& settings, Bytes requested) {
  Prediction made;
  if (phases.is_precise_match || (phases.is_in_forward && forward.knows_nothing())) {
    made.lifetime = Lifetime::Long;
  } else if (phases.is_in_forward) {
    auto found = forward.look_up(requested);
    if (found && found->end == NEVER) made.lifetime = Lifetime::Long;
  }
  if (!phases.is_precise_match && phases.is_in_step) {
    made.step_span = step.look_up(rounded(requested));
    if (made.step_span && made.step_span->end == NEVER) made.lifetime = Lifetime::Long;
  }
  if (rounded(requested) <= settings.default_lc_threshold) made.lifetime = Lifetime::Default;
  return made;
}

Recorder::Note Recorder::allocated(const Phases& phases, Bytes requested) {
  return {forward.allocated(phases.is_in_forward, requested), step.allocated(phases.is_in_step, rounded(requested))};
}

void Recorder::freed(const Phases& phases, const Note& note) {
  forward.freed(note.forward, phases.is_in_forward);
  step.freed(note.step, phases.is_in_step);
}

}  // namespace mindspeed
