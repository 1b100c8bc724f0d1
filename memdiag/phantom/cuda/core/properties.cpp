#include "properties.h"

#include <stdio.h>
#include <string.h>

#include "cards.h"
#include "config.h"

namespace phantom {
namespace {

// Figures that are alike on all cards of the profiles, or decide nothing.
constexpr int kMaxThreads = 1024, kWarp = 32, kSharedPerBlock = 49152, kRegisters = 65536, kGridX = 2147483647, kGridYZ = 65535, kConst = 65536;
constexpr int kReservedShared = 1024, kL2 = 50 << 20, kBus = 5120, kBlocksPerSm = 32;

int shared_per_sm() { return static_cast<int>(config().shared_optin) + kReservedShared; }

}  // namespace

int attribute(int which) {
  const Config& device = config();
  switch (which) {
    case 1: case 2: case 3: return kMaxThreads;
    case 4: return 64;
    case 5: return kGridX;
    case 6: case 7: return kGridYZ;
    case 8: return kSharedPerBlock;
    case 9: return kConst;
    case 10: return kWarp;
    case 12: case 82: return kRegisters;
    case 13: return device.sm_clock_khz;
    case 14: return 512;
    case 16: return device.sms;
    case 19: case 31: case 41: case 78: case 79: case 80: case 83: case 90: case 95: case 99: case 115: return 1;
    case 36: return device.memory_clock_khz;
    case 37: return kBus;
    case 38: return kL2;
    case 39: return device.threads_per_sm;
    case 40: return 3;
    case 75: return device.major;
    case 76: return device.minor;
    case 81: return shared_per_sm();
    case 97: return static_cast<int>(device.shared_optin);
    case 102: return 1;  // virtual memory management
    case 103: return 1;  // its handles can be file descriptors
    case 106: return kBlocksPerSm;
    case 111: return device.major >= 8 ? kReservedShared : 0;
    case 120: return device.major >= 9;
    default: return 0;
  }
}

void fill(DeviceProp& to, int device) {
  const Config& from = config();
  memset(&to, 0, sizeof to);
  snprintf(to.name, sizeof to.name, "%s", from.name.c_str());
  memcpy(to.uuid, "memdiag phantom", 15);
  to.uuid[15] = static_cast<char>(card_of(device));
  to.total_memory = from.total_bytes;
  to.shared_per_block = kSharedPerBlock;
  to.shared_per_block_optin = from.shared_optin;
  to.shared_per_sm = static_cast<size_t>(shared_per_sm());
  to.reserved_shared_per_block = static_cast<size_t>(attribute(111));
  to.regs_per_block = to.regs_per_sm = kRegisters;
  to.warp_size = kWarp;
  to.mem_pitch = 2147483647;
  to.max_threads_per_block = kMaxThreads;
  for (int i = 0; i < 3; i++) {
    to.max_threads_dim[i] = attribute(2 + i);
    to.max_grid_size[i] = attribute(5 + i);
  }
  to.threads_per_sm = from.threads_per_sm;
  to.blocks_per_sm = kBlocksPerSm;
  to.total_const = kConst;
  to.major = from.major;
  to.minor = from.minor;
  to.sms = from.sms;
  to.l2_bytes = kL2;
  to.memory_bus_width = kBus;
  to.texture_alignment = 512;
  to.async_engines = 3;
  to.can_map_host = to.concurrent_kernels = to.unified_addressing = to.managed_memory = to.cooperative_launch = to.stream_priorities = 1;
  to.memory_pools = to.host_register = to.preemption = to.global_l1 = to.local_l1 = 1;
  to.cluster_launch = attribute(120);
  to.pci_bus = card_of(device) + 1;
}

void fill(FuncAttributes& to, CodeVersion code) {
  memset(&to, 0, sizeof to);
  to.max_threads = kMaxThreads;
  to.registers = 32;
  to.ptx_version = code.ptx;
  to.binary_version = code.binary;
  to.max_dynamic_shared = kSharedPerBlock;
}

int occupancy() { return 8; }

}  // namespace phantom
