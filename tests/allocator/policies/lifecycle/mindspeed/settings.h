// Sizes and settings of MindSpeed's memory_fragmentation allocator (its specification, sections 5 and 7).
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace mindspeed {

using Bytes = std::uint64_t;

constexpr Bytes MIB = Bytes{1} << 20;
constexpr Bytes SMALLEST = 512;                  // blocks are multiples of it
constexpr Bytes MOST_SMALL = MIB;                // larger requests go to the large pools
constexpr Bytes SMALL_SEGMENT = 2 * MIB;         // segments of the small pools
constexpr Bytes LARGE_SEGMENT = 20 * MIB;        // of the default large pool, for requests below LEAST_OWN_SEGMENT
constexpr Bytes LEAST_OWN_SEGMENT = 10 * MIB;    // from here on a segment is as large as its request
constexpr Bytes PAGE = 2 * MIB;                  // to which such segments are rounded
constexpr Bytes SIZE_LIMIT = 1'395'864'371;      // kSizeLimit
constexpr Bytes VERY_LARGE = 1'800'000'000;      // myMaxSplitSize
constexpr Bytes PREJUDGED = 209'715'200;         // memory_fail_prejudgment: kept free of the device's memory
constexpr int MOST_CANDIDATES = 3;               // prevent_memory_conflict_num
constexpr Bytes NO_LIMIT = std::numeric_limits<Bytes>::max();

inline Bytes round_up(Bytes value, Bytes unit) { return (value + unit - 1) / unit * unit; }

// Section 4: N. There are no 32 bytes behind a block, as torch_npu's own allocator has them.
inline Bytes rounded(Bytes requested) { return requested < SMALLEST ? SMALLEST : round_up(requested, SMALLEST); }

struct Settings {
  Bytes max_split_size = NO_LIMIT;
  Bytes default_lc_threshold = 0;
  bool open_memory_optimize = false;
  Bytes most_held = NO_LIMIT;  // ALR_MAX
};

// Section 7: PYTORCH_NPU_ALLOC_CONF by the feature's own parser, and ALR_MAX. Throws std::invalid_argument.
Settings parse_settings(const std::string& conf, const std::string& alr_max);
Settings settings_of_environment();

}  // namespace mindspeed
