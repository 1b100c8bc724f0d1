#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace phantom {
namespace {

std::string text(const char* name, const char* fallback) {
  const char* value = getenv(name);
  return value && *value ? value : fallback;
}

Addresses addresses(const std::string& word) {
  if (word == "first-fit") return Addresses::kFirstFit;
  if (word == "last-freed") return Addresses::kLastFreed;
  if (word == "down") return Addresses::kDown;
  if (word != "up") fprintf(stderr, "memdiag: MEMDIAG_PHANTOM_ADDRESSES=%s is none of up, first-fit, last-freed, down: up\n", word.c_str());
  return Addresses::kUp;
}

MadeUp made_up(const std::string& word) {
  if (word == "ones") return MadeUp::kOnes;
  if (word == "random") return MadeUp::kRandom;
  if (word == "finite") return MadeUp::kFinite;
  if (word != "zeros") fprintf(stderr, "memdiag: MEMDIAG_PHANTOM_VALUES=%s is none of zeros, ones, random, finite: zeros\n", word.c_str());
  return MadeUp::kZeros;
}

// A launcher (torchrun, accelerate) starts one process for each device and tells it how many, after memdiag started the launcher.
int devices() {
  if (text("MEMDIAG_PHANTOM_DEVICES", "") != "launcher") return static_cast<int>(environment_bytes("MEMDIAG_PHANTOM_DEVICES", 0));
  return std::max(1, static_cast<int>(environment_bytes("LOCAL_WORLD_SIZE", 1)));
}

double share(const std::string& text) { return std::min(std::max(strtod(text.c_str(), nullptr), 0.0), 1.0); }

}  // namespace

uint64_t environment_bytes(const char* name, uint64_t fallback) {
  const char* value = getenv(name);
  if (!value || !*value) return fallback;
  char* end = nullptr;
  uint64_t whole = strtoull(value, &end, 10);
  double number = *end == '.' ? strtod(value, &end) : static_cast<double>(whole);
  const char* units = "KMGT";
  const char* unit = *end ? strchr(units, *end & ~0x20) : nullptr;
  return unit ? static_cast<uint64_t>(number * static_cast<double>(1ull << (10 * (unit - units + 1)))) : whole;
}

Config::Config()
    : num_devices(devices()),
      total_bytes(environment_bytes("MEMDIAG_PHANTOM_TOTAL_BYTES", 80ull << 30)),
      context_bytes(environment_bytes("MEMDIAG_PHANTOM_CONTEXT_BYTES", 0)),
      name(text("MEMDIAG_PHANTOM_NAME", "phantom CUDA device")),
      major(9),
      minor(0),
      sms(static_cast<int>(environment_bytes("MEMDIAG_PHANTOM_SMS", 132))),
      shared_optin(environment_bytes("MEMDIAG_PHANTOM_SHARED_MEMORY_OPTIN", 232448)),
      threads_per_sm(static_cast<int>(environment_bytes("MEMDIAG_PHANTOM_THREADS_PER_SM", 2048))),
      sm_clock_khz(static_cast<int>(environment_bytes("MEMDIAG_PHANTOM_SM_CLOCK_KHZ", 1980000))),
      memory_clock_khz(static_cast<int>(environment_bytes("MEMDIAG_PHANTOM_MEMORY_CLOCK_KHZ", 2619000))),
      values_bytes(environment_bytes("MEMDIAG_PHANTOM_VALUES_BYTES", 1ull << 30)),
      values(made_up(text("MEMDIAG_PHANTOM_VALUES", "zeros"))),
      selected(share(text("MEMDIAG_PHANTOM_SELECTED", "1"))),
      cudnn_planner(text("MEMDIAG_PHANTOM_CUDNN_PLANNER", "")),
      cudnn_extra(environment_bytes("MEMDIAG_PHANTOM_CUDNN_EXTRA", 0)),
      is_cudnn_workspace_given(!text("MEMDIAG_PHANTOM_CUDNN_WORKSPACE", "").empty()),
      cudnn_workspace(environment_bytes("MEMDIAG_PHANTOM_CUDNN_WORKSPACE", 0)),
      nccl_channels(static_cast<int>(environment_bytes("MEMDIAG_PHANTOM_NCCL_CHANNELS", 24))),
      is_nccl_given(!text("MEMDIAG_PHANTOM_NCCL_BYTES", "").empty()),
      nccl_bytes(environment_bytes("MEMDIAG_PHANTOM_NCCL_BYTES", 0)),
      graph_node_bytes(environment_bytes("MEMDIAG_PHANTOM_GRAPH_NODE_BYTES", 5 << 10)),
      granularity(environment_bytes("MEMDIAG_PHANTOM_GRANULARITY", 2ull << 20)),
      gap_bytes(environment_bytes("MEMDIAG_PHANTOM_GAP", 0)),
      addresses(phantom::addresses(text("MEMDIAG_PHANTOM_ADDRESSES", "up"))),
      events(0),
      is_talkative(getenv("MEMDIAG_PHANTOM_TRACE") != nullptr) {
  if (num_devices < 0) num_devices = 0;
  sscanf(text("MEMDIAG_PHANTOM_CAPABILITY", "9.0").c_str(), "%d.%d", &major, &minor);
  std::string when = text("MEMDIAG_PHANTOM_EVENTS", "now");
  events = when == "now" ? 0 : when == "manual" ? -1 : strtoll(when.c_str(), nullptr, 10);
}

const Config& config() {
  static const Config* const all = new Config;  // never destroyed: libraries call late at exit
  return *all;
}

}  // namespace phantom
