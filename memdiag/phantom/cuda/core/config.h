// What the device is like, from the environment that memdiag sets for the program (sizes are plain bytes, or 80GiB).
#pragma once
#include <stdint.h>

#include <string>

namespace phantom {

enum class MadeUp { kZeros, kOnes, kRandom, kFinite };
enum class Addresses { kUp, kFirstFit, kLastFreed, kDown };

struct Config {
  int num_devices;             // MEMDIAG_PHANTOM_DEVICES, or "launcher": LOCAL_WORLD_SIZE; 0 where memdiag did not start the program
  uint64_t total_bytes;        // MEMDIAG_PHANTOM_TOTAL_BYTES     as the driver reports it
  uint64_t context_bytes;      // MEMDIAG_PHANTOM_CONTEXT_BYTES   taken before the first allocation
  std::string name;            // MEMDIAG_PHANTOM_NAME
  int major, minor;            // MEMDIAG_PHANTOM_CAPABILITY      9.0
  int sms;                     // MEMDIAG_PHANTOM_SMS
  uint64_t shared_optin;       // MEMDIAG_PHANTOM_SHARED_MEMORY_OPTIN
  int threads_per_sm;          // MEMDIAG_PHANTOM_THREADS_PER_SM
  int sm_clock_khz;            // MEMDIAG_PHANTOM_SM_CLOCK_KHZ    highest clocks; cuDNN weighs its engines by them
  int memory_clock_khz;        // MEMDIAG_PHANTOM_MEMORY_CLOCK_KHZ
  uint64_t values_bytes;       // MEMDIAG_PHANTOM_VALUES_BYTES    how much of what the program wrote is kept (see values.h)
  MadeUp values;               // MEMDIAG_PHANTOM_VALUES          what else is read back: zeros | ones | random | finite (see made_up.h)
  double selected;             // MEMDIAG_PHANTOM_SELECTED        how much of a mask is true that was computed, from 0 to 1
  std::string cudnn_planner;   // MEMDIAG_PHANTOM_CUDNN_PLANNER   path of a real libcudnn_graph.so.9, which plans workspaces
  uint64_t cudnn_extra;        // MEMDIAG_PHANTOM_CUDNN_EXTRA     added to the workspace that is planned for a convolution
  bool is_cudnn_workspace_given;
  uint64_t cudnn_workspace;    // MEMDIAG_PHANTOM_CUDNN_WORKSPACE what every engine of cuDNN asks for, planned or not
  int nccl_channels;           // MEMDIAG_PHANTOM_NCCL_CHANNELS   of a communicator
  bool is_nccl_given;
  uint64_t nccl_bytes;         // MEMDIAG_PHANTOM_NCCL_BYTES      device memory of a communicator; not set: by its channels
  uint64_t graph_node_bytes;   // MEMDIAG_PHANTOM_GRAPH_NODE_BYTES  device memory that the driver takes for a node of a graph
  // How the driver might behave; the tests of the allocator vary these.
  uint64_t granularity;        // MEMDIAG_PHANTOM_GRANULARITY     physical rounding and alignment of each cudaMalloc
  uint64_t gap_bytes;          // MEMDIAG_PHANTOM_GAP             address space left unused after each
  Addresses addresses;         // MEMDIAG_PHANTOM_ADDRESSES       up | first-fit | last-freed | down
  int64_t events;              // MEMDIAG_PHANTOM_EVENTS          now | manual | N: done after N queries (0, -1, N)
  bool is_talkative;           // MEMDIAG_PHANTOM_TRACE           say on stderr what is loaded, refused and made up

  Config();
};

const Config& config();
uint64_t environment_bytes(const char* name, uint64_t fallback);

inline uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace phantom
