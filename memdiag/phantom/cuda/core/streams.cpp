#include "streams.h"

#include <algorithm>

#include "calls.h"
#include "memory.h"

namespace phantom {
namespace {

constexpr uint64_t kFirstStream = 0x600000000000, kStreamStep = 256;

EventState& state_of(Event event) { return *reinterpret_cast<EventState*>(event); }

}  // namespace

Streams& streams() {
  static Streams* const all = new Streams;
  return *all;
}

StreamState& Streams::state(Stream stream) {
  uint64_t value = number(stream);
  if (value < 3) return all[value == 2 ? 2 : 0];
  uint64_t index = (value - kFirstStream) / kStreamStep;
  return value >= kFirstStream && index < all.size() ? all[index] : all[0];
}

Stream make_stream(unsigned flags, int priority) {
  Streams& every = streams();
  Lock lock(every.mutex);
  every.all.emplace_back();
  every.all.back().flags = flags;
  every.all.back().priority = priority;
  every.all.back().device = current_device();
  return static_cast<Stream>(pointer(kFirstStream + (every.all.size() - 1) * kStreamStep));
}

void record(Event event, Stream stream) {
  Streams& every = streams();
  Lock lock(every.mutex);
  EventState& own = state_of(event);
  StreamState& on = every.state(stream);
  own.stream = &on;
  own.position = ++on.num_issued;
  own.queries_left = std::max<int64_t>(config().events, 0);
  own.is_recorded = true;
  own.stamp = ++every.last_stamp;
  own.graph = on.graph;
  own.capture = on.capture;
}

// A stream that waits for an event of a capture joins it, as the origin's own event would make it.
void wait_for(Stream stream, Event event) {
  Streams& every = streams();
  if (!every.num_capturing.load(std::memory_order_acquire)) return;
  Lock lock(every.mutex);
  EventState& own = state_of(event);
  StreamState& waiting = every.state(stream);
  if (!own.graph || waiting.graph || !own.stream->graph || own.stream->capture != own.capture) return;
  waiting.graph = own.graph;
  waiting.capture = own.capture;
}

bool is_done(Event event, bool counts) {
  Streams& every = streams();
  Lock lock(every.mutex);
  EventState& own = state_of(event);
  int64_t rule = config().events;
  if (!own.is_recorded || rule == 0 || own.position <= own.stream->num_done) return true;
  if (rule < 0) return false;
  if (own.queries_left <= 0) return true;
  if (counts) own.queries_left--;
  return false;
}

void synchronize(Event event) {
  {
    Streams& every = streams();
    Lock lock(every.mutex);
    EventState& own = state_of(event);
    own.queries_left = 0;
    if (own.stream) own.stream->num_done = std::max(own.stream->num_done, own.position);
  }
  Lock lock(memory().mutex);
  note_call(Call::kEventSync, current_device(), 0, 0, -1);
}

void complete(Stream stream) {
  Streams& every = streams();
  Lock lock(every.mutex);
  StreamState& own = every.state(stream);
  own.num_done = own.num_issued;
}

void complete_all() {
  Streams& every = streams();
  Lock lock(every.mutex);
  for (StreamState& own : every.all) own.num_done = own.num_issued;
}

bool is_capturing(Stream stream) {
  Streams& every = streams();
  if (!every.num_capturing.load(std::memory_order_acquire)) return false;
  Lock lock(every.mutex);
  return every.state(stream).graph != nullptr;
}

void perform(Stream stream, std::function<void()> step) {
  Streams& every = streams();
  if (every.num_capturing.load(std::memory_order_acquire)) {
    std::shared_ptr<Graph> graph;
    {
      Lock lock(every.mutex);
      graph = every.state(stream).graph;
    }
    if (graph) {
      Lock lock(graph->mutex);
      graph->num_nodes++;
      graph->steps.push_back(step);
    }
  }
  step();
}

}  // namespace phantom
