// The allocator as a library for torch_npu.npu.memory.NPUPluggableAllocator; the phase calls are for ctypes.
//
// Device memory is that of the AscendCL in the process: torch_npu has loaded it before it loads this.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "process.h"

extern "C" {
int aclrtMallocAlign32(void** out, std::size_t size, int policy);
int aclrtFree(void* pointer);
int aclrtGetMemInfo(int kind, std::size_t* free_bytes, std::size_t* total_bytes);
int aclrtGetDevice(int* device);
int aclrtSetDevice(int device);
int aclrtSynchronizeDevice();
}

namespace {

constexpr int HUGE_FIRST = 0;  // ACL_MEM_MALLOC_HUGE_FIRST
constexpr int HBM = 1;         // ACL_HBM_MEM

// The calls of the runtime are about the current device.
class OnDevice {
 public:
  explicit OnDevice(int device) : device_(device) {
    if (aclrtGetDevice(&before_) != 0) before_ = device;
    if (before_ != device_) aclrtSetDevice(device_);
  }
  ~OnDevice() {
    if (before_ != device_) aclrtSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int device_, before_ = 0;
};

class Ascend : public mindspeed::Driver {
 public:
  void* take(int device, mindspeed::Bytes size) override {
    OnDevice there(device);
    void* address = nullptr;
    return aclrtMallocAlign32(&address, size, HUGE_FIRST) == 0 ? address : nullptr;
  }
  void give(int device, void* address, mindspeed::Bytes) override {
    OnDevice there(device);
    aclrtSynchronizeDevice();  // torch_npu does so too before it gives memory back
    aclrtFree(address);
  }
  mindspeed::Bytes free_bytes(int device) override { return info(device).first; }
  mindspeed::Bytes total_bytes(int device) override { return info(device).second; }

 private:
  static std::pair<mindspeed::Bytes, mindspeed::Bytes> info(int device) {
    OnDevice there(device);
    std::size_t free_bytes = 0, total_bytes = 0;
    aclrtGetMemInfo(HBM, &free_bytes, &total_bytes);
    return {free_bytes, total_bytes};
  }
};

std::mutex lock;  // gradients are computed on a thread of their own

mindspeed::Process& process() {
  static Ascend ascend;
  static auto* only = new mindspeed::Process(ascend, mindspeed::settings_of_environment());  // lives as long as the process
  return *only;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// torch_npu's own allocator answers requests of no bytes before they are any, so that no recording shows one; but it passes them on to an
// allocator that is plugged in. The specification does not say what this one made of them: here they are nothing, too.
EXPORT void* memory_fragmentation_malloc(std::size_t size, int device, void* stream) {
  if (size == 0) return nullptr;
  std::lock_guard<std::mutex> alone(lock);
  return process().malloc(size, device, stream);
}

EXPORT void memory_fragmentation_free(void* address, std::size_t, int device, void*) {
  if (!address) return;
  std::lock_guard<std::mutex> alone(lock);
  try {
    process().free(address, device);
  } catch (const std::exception& error) {  // the caller is a destructor
    std::fprintf(stderr, "memory_fragmentation_free: %s\n", error.what());
    std::abort();
  }
}

EXPORT void memory_fragmentation_init(int) {}

EXPORT void memory_fragmentation_empty_cache(bool) {
  std::lock_guard<std::mutex> alone(lock);
  process().empty_cache();
}

EXPORT void memory_fragmentation_memory_fraction(double fraction, int device) {
  std::lock_guard<std::mutex> alone(lock);
  process().set_fraction(fraction, device);
}

#define HOOK(name)                             \
  EXPORT void name() {                         \
    std::lock_guard<std::mutex> alone(lock);   \
    process().name();                          \
  }
HOOK(precise_match_start)
HOOK(precise_match_end)
HOOK(memory_recorder_start)
HOOK(memory_recorder_end)
HOOK(malloc_recorder_start)
HOOK(malloc_recorder_end)

EXPORT int write_log(const char* path) {
  std::lock_guard<std::mutex> alone(lock);
  return process().write_log(path) ? 0 : -1;
}
