// The interface of CUDA as far as it is imitated: numbers and layouts of its structures, for CUDA 12 and 13.
//
// Written down here, so that no header of the toolkit is needed on the user's machine (the wheels of PyTorch bring none that are
// complete). Handles are pointers that only we look into, enumerations are ints.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifndef PHANTOM_CUDA_VERSION
#error "PHANTOM_CUDA_VERSION: the version of CUDA that PyTorch was built for, as CUDART_VERSION counts it (12080, 13000)"
#endif
#define PHANTOM_CUDA_13 (PHANTOM_CUDA_VERSION >= 13000)

#define API extern "C" __attribute__((visibility("default")))

namespace phantom {

// Results. The runtime and the driver number these alike.
enum : int {
  kSuccess = 0, kInvalidValue = 1, kMemoryAllocation = 2, kNoDevice = 100, kInvalidDevice = 101, kNoKernelImage = 209, kInvalidHandle = 400, kIllegalState = 401,
  kNotFound = 500, kNotReady = 600, kNotSupported = 801, kCaptureInvalidated = 901, kUnknown = 999,
};

// Where a pointer points, for the runtime and for the driver.
enum : int { kMemoryUnregistered = 0, kMemoryHost = 1, kMemoryDevice = 2, kMemoryManaged = 3 };
enum : int { kCaptureNone = 0, kCaptureActive = 1 };

using Stream = struct StreamHandle*;
using Event = struct EventHandle*;

struct Dim3 { unsigned x, y, z; };

struct PointerAttributes {
  int type, device;
  void *device_pointer, *host_pointer;
#if PHANTOM_CUDA_13
  long reserved[8];
#endif
};

struct FuncAttributes {
  size_t shared_bytes, const_bytes, local_bytes;
  int max_threads, registers, ptx_version, binary_version, cache_mode_ca, max_dynamic_shared, preferred_carveout;
  int cluster_must_be_set, cluster_width, cluster_height, cluster_depth, cluster_policy, non_portable_cluster;
  int reserved[16];
};

struct LaunchConfig {  // cudaLaunchConfig_t
  Dim3 grid, block;
  size_t shared_bytes;
  Stream stream;
  void* attributes;
  unsigned num_attributes;
};

struct DriverLaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  void* attributes;
  unsigned num_attributes;
};

struct Location { int type, id; };

struct AllocationProp {  // CUmemAllocationProp
  int type, handle_types;
  Location location;
  void* win32;
  struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
};

struct DeviceProp {  // cudaDeviceProp; CUDA 13 took eight fields out and put seven at the end
  char name[256], uuid[16], luid[8];
  unsigned luid_node_mask;
  size_t total_memory, shared_per_block;
  int regs_per_block, warp_size;
  size_t mem_pitch;
  int max_threads_per_block, max_threads_dim[3], max_grid_size[3];
#if !PHANTOM_CUDA_13
  int clock_rate;
#endif
  size_t total_const;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
#if !PHANTOM_CUDA_13
  int device_overlap;
#endif
  int sms;
#if !PHANTOM_CUDA_13
  int kernel_timeout;
#endif
  int integrated, can_map_host;
#if !PHANTOM_CUDA_13
  int compute_mode;
#endif
  int texture_1d[2];
#if !PHANTOM_CUDA_13
  int texture_1d_linear;
#endif
  int textures[23], surfaces[14];  // no training program asks for these: zeros
  size_t surface_alignment;
  int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified_addressing;
#if !PHANTOM_CUDA_13
  int memory_clock_rate;
#endif
  int memory_bus_width, l2_bytes, persisting_l2_bytes, threads_per_sm, stream_priorities, global_l1, local_l1;
  size_t shared_per_sm;
  int regs_per_sm, managed_memory, multi_gpu_board, board_group, host_atomics;
#if !PHANTOM_CUDA_13
  int double_ratio;
#endif
  int pageable_access, concurrent_managed, preemption, host_pointer_registered, cooperative_launch;
#if !PHANTOM_CUDA_13
  int cooperative_multi;
#endif
  size_t shared_per_block_optin;
  int pageable_tables, direct_managed, blocks_per_sm, access_policy_window;
  size_t reserved_shared_per_block;
  int host_register, sparse_arrays, host_register_read_only, timeline_semaphores, memory_pools, rdma;
  unsigned rdma_flush;
  int rdma_ordering;
  unsigned pool_handle_types;
  int deferred_arrays, ipc_events, cluster_launch, unified_functions;
#if PHANTOM_CUDA_13
  int numa_config, numa_id, mps, host_numa_id;
  unsigned pci_device_id, pci_subsystem_id;
  int host_numa_ipc;
  int reserved[56];
#else
  int reserved[63];
#endif
};

}  // namespace phantom
