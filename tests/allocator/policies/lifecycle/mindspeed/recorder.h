// Which tensors live long: what was recorded of earlier forwards and steps, and what that says of a request (sections 2 to 4).
//
// Time is counted in allocations ("ticks") since a window began. A window is one call of a hooked module's forward, or one train_step.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "settings.h"

namespace mindspeed {

using Tick = std::size_t;
constexpr Tick NEVER = std::numeric_limits<Tick>::max();  // the end of what was not freed inside of its window

enum class Lifetime { Default = 0, Long = 2 };  // LifeCycleType: 1, FIRST_STEP_LC, is never produced

// Section 2: what all devices of the process share.
struct Phases {
  bool is_precise_match = false;    // model initialisation and first optimizer step: all is long
  bool is_in_forward = false;       // g_record_flag
  std::size_t forwards_begun = 0;   // g_record_cnt
  bool is_in_step = false;
};

struct Span {
  Tick start, end;
};

// A set of (start, end, size) in that order. Kept by size, since it is only ever searched for one size.
class Table {
 public:
  void add(Tick start, Tick end, Bytes size);
  void remove(Tick start, Tick end, Bytes size);
  std::size_t count() const { return count_; }

  // Section 4, "walk": of the entries of this size that start at `now` or before, the last one.
  std::optional<Span> latest(Tick now, Bytes size) const;

  // Sizes of the entries that start after `from` and before `to`.
  std::set<Bytes> sizes_between(Tick from, Tick to) const;

 private:
  std::map<Bytes, std::set<std::pair<Tick, Tick>>> spans_;
  std::size_t count_ = 0;
};

// One kind of window on one device: the row of section 2 for forwards, or that for steps.
class Windows {
 public:
  struct Note {  // of a block: where its entry is
    bool is_there = false;
    std::size_t window = 0;
    Tick start = 0;
    Bytes size = 0;
  };

  void restart_ticks() { tick_ = 1; }
  void end();
  bool knows_nothing() const { return last_.count() == 0; }

  // Searches the last window, then those remembered, oldest first; where the size is in none, this window may be a new branch.
  std::optional<Span> look_up(Bytes size);

  Note allocated(bool is_inside, Bytes size);       // a tick passes in any case
  void freed(const Note& note, bool is_inside);
  std::set<Bytes> sizes_between(const Span& span) const;  // in all tables of ended windows
  Span from_now_on() const { return {tick_, NEVER}; }

 private:
  Tick tick_ = 1;
  std::size_t window_ = 0;    // forward_count, step_count
  std::size_t look_ups_ = 0;  // lc_id_cnt, step_lc_id_cnt
  bool is_new_branch_ = false;  // has_Another_Situation
  Table now_, last_;
  std::vector<Table> history_;
};

struct Prediction {
  Lifetime lifetime = Lifetime::Default;
  std::optional<Span> step_span;  // what the step's tables said
};

class Recorder {
 public:
  struct Note {
    Windows::Note forward, step;
  };

  Windows forward, step;

  Prediction predict(const Phases& phases, const Settings& settings, Bytes requested);
  Note allocated(const Phases& phases, Bytes requested);
  void freed(const Phases& phases, const Note& note);
};

}  // namespace mindspeed
