// Streams and events: order without time. Work is done as soon as it is issued, unless a test says otherwise.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "abi.h"

namespace phantom {

// What was done under capture, to be done again by each replay.
struct Graph {
  std::mutex mutex;
  std::vector<std::function<void()>> steps;
  int64_t num_nodes = 0;
};

struct StreamState {
  uint64_t num_issued = 0, num_done = 0;
  int priority = 0, device = 0;
  unsigned flags = 0;
  std::shared_ptr<Graph> graph;  // under capture
  uint64_t capture = 0;          // its number
  bool is_origin = false;        // capture began here, and did not join by an event
};

struct EventState {
  StreamState* stream = nullptr;
  uint64_t position = 0, stamp = 0;
  int64_t queries_left = 0;
  bool is_recorded = false;
  std::shared_ptr<Graph> graph;  // recorded under capture
  uint64_t capture = 0;
};

struct Streams {
  std::mutex mutex;
  std::deque<StreamState> all;  // [0] the legacy stream, [2] the one of each thread, [3..] made by the program
  std::atomic<int> num_capturing{0};
  uint64_t last_capture = 0, last_stamp = 0;
  Streams() { all.resize(3); }
  StreamState& state(Stream stream);
};

Streams& streams();

Stream make_stream(unsigned flags, int priority);
void record(Event event, Stream stream);
void wait_for(Stream stream, Event event);
bool is_done(Event event, bool counts);
void synchronize(Event event);
void complete(Stream stream);
void complete_all();

// Does `step` unless `stream` is under capture, where it only counts as a node and is done by each replay. What a replay would do first
// of all is to overwrite, so under capture it is done as well: nothing known survives it.
void perform(Stream stream, std::function<void()> step);
bool is_capturing(Stream stream);

}  // namespace phantom
