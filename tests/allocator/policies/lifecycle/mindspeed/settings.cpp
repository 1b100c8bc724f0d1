#include "settings.h"

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace mindspeed {
namespace {

bool as_flag(const std::string& key, const std::string& value) {
  if (value == "true" || value == "True" || value == "1") return true;
  if (value == "false" || value == "False" || value == "0") return false;
  throw std::invalid_argument(key + ": neither true nor false: " + value);
}

void set(Settings& settings, const std::string& key, const std::string& value) {
  if (key == "max_split_size_mb") {
    Bytes mib = std::stoull(value);
    if (mib <= LARGE_SEGMENT / MIB) throw std::invalid_argument("max_split_size_mb must be more than 20");
    settings.max_split_size = mib * MIB;
  } else if (key == "default_lc_threshold") {
    settings.default_lc_threshold = static_cast<Bytes>(std::stod(value));
  } else if (key == "open_memory_optimize") {
    settings.open_memory_optimize = as_flag(key, value);
  } else if (key == "expandable_segments") {
    // Section 7: the feature "must run with expandable_segments:False"; what it would do otherwise is not imitated.
    if (as_flag(key, value)) throw std::invalid_argument("expandable_segments:True cannot be combined with memory_fragmentation");
  } else if (key == "garbage_collection_threshold") {
    std::stod(value);  // parsed, without an effect
  } else {
    throw std::invalid_argument("Unrecognized CachingAllocator option: " + key);
  }
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Settings parse_settings(const std::string& conf, const std::string& alr_max) {
  Settings settings;
  std::istringstream words(conf);
  for (std::string word; std::getline(words, word, ',');) {
    auto colon = word.find(':');
    if (colon == std::string::npos) throw std::invalid_argument("neither a key nor its value: " + word);
    set(settings, word.substr(0, colon), word.substr(colon + 1));
  }
  if (!alr_max.empty()) settings.most_held = std::stoull(alr_max);
  return settings;
}

Settings settings_of_environment() { return parse_settings(variable("PYTORCH_NPU_ALLOC_CONF"), variable("ALR_MAX")); }

}  // namespace mindspeed
