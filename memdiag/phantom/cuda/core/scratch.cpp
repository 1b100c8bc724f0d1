#include "scratch.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "config.h"

namespace phantom {
namespace {

constexpr size_t kMostLists = 512;  // of workspaces; more shapes of convolutions are not noted
constexpr const char* kNames[kNumOperations] = {"convolution", "attention", "recurrent", "other"};

struct Tally {
  uint64_t calls = 0, unknown_calls = 0, largest_bytes = 0, largest_unknown_operand_bytes = 0;
};
struct Scratch {
  std::mutex mutex;
  Tally tallies[kNumOperations];
  uint64_t planner_version = 0, num_communicators = 0, communicator_bytes = 0;
  uint64_t num_graphs = 0, num_graph_nodes = 0, graph_bytes = 0;
  std::set<std::vector<int64_t>> workspaces;
  uint64_t num_lists = 0, num_plans = 0;  // of workspaces; of convolutions
};
Scratch& scratch() {
  static Scratch* const all = new Scratch;
  return *all;
}

}  // namespace

void note_scratch(Operation operation, int64_t bytes, uint64_t operand_bytes) {
  Scratch& all = scratch();
  std::lock_guard<std::mutex> lock(all.mutex);
  Tally& tally = all.tallies[static_cast<int>(operation)];
  tally.calls++;
  if (bytes == kUnknownScratch) {
    tally.unknown_calls++;
    tally.largest_unknown_operand_bytes = std::max(tally.largest_unknown_operand_bytes, operand_bytes);
  } else {
    tally.largest_bytes = std::max(tally.largest_bytes, static_cast<uint64_t>(bytes));
  }
}

void note_workspaces(const std::vector<int64_t>& bytes) {
  Scratch& all = scratch();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.num_lists++;
  if (!bytes.empty() && all.workspaces.size() < kMostLists) all.workspaces.insert(bytes);
}

void note_convolution_plan() {
  Scratch& all = scratch();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.num_plans++;
}

void note_planner(uint64_t version) {
  Scratch& all = scratch();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.planner_version = version;
}

void note_communicator(uint64_t bytes) {
  Scratch& all = scratch();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.num_communicators++;
  all.communicator_bytes += bytes;
}

void note_graph(uint64_t num_nodes, uint64_t all_bytes) {
  Scratch& all = scratch();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.num_graphs++;
  all.num_graph_nodes += num_nodes;
  all.graph_bytes = std::max(all.graph_bytes, all_bytes);
}

std::string scratch_facts() {
  Scratch& all = scratch();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::string result = "{\"planner\": " + std::to_string(all.planner_version) + ", \"given_bytes\": " + std::to_string(config().cudnn_workspace) +
                       ", \"extra_bytes\": " + std::to_string(config().cudnn_extra);
  if (all.num_communicators) {
    result += ", \"communicators\": {\"count\": " + std::to_string(all.num_communicators) + ", \"bytes\": " +
              std::to_string(all.communicator_bytes) + "}";
  }
  if (all.num_graphs) {
    result += ", \"graphs\": {\"count\": " + std::to_string(all.num_graphs) + ", \"nodes\": " + std::to_string(all.num_graph_nodes) +
              ", \"bytes\": " + std::to_string(all.graph_bytes) + "}";
  }
  if (!all.workspaces.empty()) {
    result += ", \"workspaces\": [";
    for (const std::vector<int64_t>& list : all.workspaces) {
      result += result.back() == '[' ? "[" : ", [";
      for (size_t i = 0; i < list.size(); i++) result += (i ? ", " : "") + std::to_string(list[i]);
      result += "]";
    }
    result += "], \"plans\": " + std::to_string(all.num_plans) + ", \"lists\": " + std::to_string(all.num_lists);
  }
  for (int i = 0; i < kNumOperations; i++) {
    const Tally& tally = all.tallies[i];
    if (!tally.calls) continue;
    result += std::string(", \"") + kNames[i] + "\": {\"calls\": " + std::to_string(tally.calls) + ", \"unknown_calls\": " +
              std::to_string(tally.unknown_calls) + ", \"largest_bytes\": " + std::to_string(tally.largest_bytes) +
              ", \"largest_unknown_operand_bytes\": " + std::to_string(tally.largest_unknown_operand_bytes) + "}";
  }
  return result + "}";
}

}  // namespace phantom
