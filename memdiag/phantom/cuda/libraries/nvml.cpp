// libnvidia-ml: what PyTorch asks before it words an out-of-memory message, and what monitors ask. An idle card with our memory.
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "../core/cards.h"
#include "calls.h"

using namespace phantom;

namespace {

enum : int { kInvalidArgument = 2, kUnsupported = 3, kNotThere = 6, kTooSmall = 7 };
constexpr size_t kFabricState = 28;  // nvmlGpuFabricInfoV_t: version, 16 bytes of cluster, status, clique, state

struct MemoryInfo { unsigned long long total, free, used; };
struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, product, subsystem;
  char id[32];
};
struct MemoryInfo2 { unsigned version; unsigned long long total, reserved, free, used; };

// The numbers of NVML are those of the cards, whatever devices a process sees.
int card_of_handle(void* handle) { return static_cast<int>(number(handle)) - 1; }
bool is_card(int card) {
  bool found = false;
  for (int device = 0; device < config().num_devices; device++) found = found || card_of(device) == card;
  return found;
}
int hand_out(int card, void** handle) {
  if (is_no_device(card) && !is_card(card)) return kInvalidArgument;
  *handle = pointer(static_cast<uint64_t>(card) + 1);
  return kSuccess;
}
// The processes on a card: pid and bytes, in records of a size that depends on the version of the function.
int processes(void* handle, unsigned* count, void* to, size_t each) {
  Lock lock(memory().mutex);
  std::vector<Share> shares = shares_of(card_of_handle(handle));
  unsigned room = *count;
  *count = static_cast<unsigned>(shares.size());
  if (*count > room) return kTooSmall;
  for (const Share& share : shares) {
    memset(to, 0, each);
    memcpy(to, &share.pid, sizeof share.pid);
    memcpy(static_cast<char*>(to) + 8, &share.bytes, sizeof share.bytes);
    to = static_cast<char*>(to) + each;
  }
  return kSuccess;
}
int say(char* to, unsigned bytes, const char* text) {
  if (strlen(text) >= bytes) return kTooSmall;
  snprintf(to, bytes, "%s", text);
  return kSuccess;
}
int zero(void* to, size_t bytes) {
  memset(to, 0, bytes);
  return kSuccess;
}
uint64_t free_of(void* handle) {
  Lock lock(memory().mutex);
  return memory().free_on_card(card_of_handle(handle));
}

}  // namespace

API int nvmlInit_v2() { return kSuccess; }
API int nvmlInit() { return kSuccess; }
API int nvmlInitWithFlags(unsigned) { return kSuccess; }
API int nvmlShutdown() { return kSuccess; }
API const char* nvmlErrorString(int error) { return error == kSuccess ? "The operation was successful" : "Not Supported"; }
API int nvmlSystemGetDriverVersion(char* text, unsigned bytes) { return say(text, bytes, PHANTOM_CUDA_13 ? "580.65.06" : "570.86.10"); }
API int nvmlSystemGetNVMLVersion(char* text, unsigned bytes) { return nvmlSystemGetDriverVersion(text, bytes); }
API int nvmlSystemGetCudaDriverVersion(int* version) {
  *version = PHANTOM_CUDA_VERSION;
  return kSuccess;
}
API int nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }
API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(config().num_devices);
  return kSuccess;
}
API int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) { return hand_out(static_cast<int>(index), handle); }
API int nvmlDeviceGetHandleByIndex(unsigned index, void** handle) { return hand_out(static_cast<int>(index), handle); }
API int nvmlDeviceGetHandleByPciBusId_v2(const char* text, void** handle) {
  unsigned bus = 0;
  return sscanf(text, "%*x:%x", &bus) == 1 ? hand_out(static_cast<int>(bus) - 1, handle) : kNotThere;
}
API int nvmlDeviceGetHandleByUUID(const char*, void** handle) { return hand_out(0, handle); }
API int nvmlDeviceGetIndex(void* handle, unsigned* index) {
  *index = static_cast<unsigned>(card_of_handle(handle));
  return kSuccess;
}
API int nvmlDeviceGetName(void*, char* text, unsigned bytes) { return say(text, bytes, config().name.c_str()); }
API int nvmlDeviceGetUUID(void* handle, char* text, unsigned bytes) {
  char uuid[48];
  snprintf(uuid, sizeof uuid, "GPU-6d656d64-6961-6720-7068-616e746f6d%02x", static_cast<unsigned>(card_of_handle(handle)) & 0xff);
  return say(text, bytes, uuid);
}
API int nvmlDeviceGetMemoryInfo(void* handle, MemoryInfo* info) {
  info->total = config().total_bytes;
  info->free = free_of(handle);
  info->used = info->total - info->free;
  return kSuccess;
}
API int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryInfo2* info) {
  info->total = config().total_bytes;
  info->reserved = 0;
  info->free = free_of(handle);
  info->used = info->total - info->free;
  return kSuccess;
}
API int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = config().major;
  *minor = config().minor;
  return kSuccess;
}
// The processors that this process may use, and no NUMA node: NVML has one only where the card's memory is one.
API int nvmlDeviceGetCpuAffinity(void*, unsigned words, unsigned long* set) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return kUnsupported;
  constexpr unsigned kBits = 8 * sizeof *set;
  zero(set, words * sizeof *set);
  for (unsigned cpu = 0; cpu < CPU_SETSIZE && cpu < words * kBits; cpu++)
    if (CPU_ISSET(cpu, &allowed)) set[cpu / kBits] |= 1UL << (cpu % kBits);
  return kSuccess;
}
API int nvmlDeviceGetNumaNodeId(void*, int*) { return kUnsupported; }
API int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  *info = {};
  info->bus = static_cast<unsigned>(card_of_handle(handle)) + 1;
  info->product = info->subsystem = ~0U;  // what PCI reads where nothing answers: the profiles have no such numbers
  snprintf(info->legacy_id, sizeof info->legacy_id, "0000:%02X:00.0", info->bus & 0xff);
  snprintf(info->id, sizeof info->id, "00000000:%02X:00.0", info->bus & 0xff);
  return kSuccess;
}
API int nvmlDeviceGetUtilizationRates(void*, void* two) { return zero(two, 2 * sizeof(unsigned)); }
API int nvmlDeviceGetTemperature(void*, int, unsigned* value) { return zero(value, sizeof *value); }
API int nvmlDeviceGetPowerUsage(void*, unsigned* value) { return zero(value, sizeof *value); }
API int nvmlDeviceGetClockInfo(void*, int, unsigned* value) { return zero(value, sizeof *value); }
API int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count, void* to) { return processes(handle, count, to, 16); }
API int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned* count, void* to) { return processes(handle, count, to, 24); }
API int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, void* to) { return processes(handle, count, to, 24); }
API int nvmlDeviceGetGpuFabricInfoV(void*, void* info) { return zero(static_cast<char*>(info) + kFabricState, 1); }
API int nvmlDeviceGetNvLinkState(void*, unsigned, int*) { return kUnsupported; }
API int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 6;  // not supported
  return kSuccess;
}
API int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, void*) { return kUnsupported; }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kUnsupported; }
