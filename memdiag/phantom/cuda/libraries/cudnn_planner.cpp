#include "cudnn_planner.h"

#include <dlfcn.h>
#include <stdio.h>

#include <string>

#include "../core/config.h"
#include "../core/properties.h"
#include "../core/scratch.h"

namespace phantom {
namespace {

constexpr size_t kFirstWithoutDevice = 90800;  // the first version that plans from a description of a device
constexpr size_t kFirstFor100 = 92000;         // 9.10.2 crashes with the description of a device of compute capability 10.0
enum : int { kDeviceProperties = 38, kJson = 2702, kCharacters = 24 };

std::string entry(const char* name, int64_t value) { return std::string("\"") + name + "\": " + std::to_string(value) + ", "; }

// The keys that cuDNN requires. Of those, only the architecture and the clocks were seen to change its choice.
std::string description() {
  const Config& device = config();
  std::string text = "{";
  text += entry("cudaDeviceId", 0) + entry("deviceVer", device.major * 100 + device.minor * 10) + entry("driverVer", PHANTOM_CUDA_VERSION);
  text += entry("totalGlobalMem", static_cast<int64_t>(device.total_bytes)) + entry("regsPerBlock", attribute(12));
  text += entry("multiProcessorCount", attribute(16)) + entry("warpSize", attribute(10)) + entry("maxSharedMemoryPerBlock", attribute(8));
  text += entry("maxSharedMemoryPerBlockOptin", attribute(97)) + entry("reservedSharedMemoryPerBlock", attribute(111));
  text += entry("maxRegistersPerSM", attribute(82)) + entry("maxCtasPerSM", attribute(106)) + entry("maxThreadsPerBlock", attribute(1));
  text += entry("maxThreadsPerSM", attribute(39)) + entry("pciDeviceId", attribute(34)) + entry("isTccDriver", 0) + entry("supportCoopLaunch", 1);
  text += entry("smClockRateKHz", attribute(13)) + entry("memClockRateKHz", attribute(36)) + entry("l2CacheSize", attribute(38));
  text += "\"maxGridSize\": [" + std::to_string(attribute(5)) + ", " + std::to_string(attribute(6)) + ", " + std::to_string(attribute(7)) + "], ";
  text += "\"maxBlockSize\": [" + std::to_string(attribute(2)) + ", " + std::to_string(attribute(3)) + ", " + std::to_string(attribute(4)) + "], ";
  return text + "\"deviceName\": \"" + device.name + "\"}";
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

const Planner* load() {
  const char* path = config().cudnn_planner.c_str();
  if (config().is_cudnn_workspace_given || !*path) return nullptr;
  // Our own functions of these names come first for everybody else; the real library must find its own.
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) {
    if (config().is_talkative) fprintf(stderr, "memdiag: %s cannot be loaded to plan workspaces: %s\n", path, dlerror());
    return nullptr;
  }
  static Planner real;
  size_t (*version)();
  bool is_complete = find(library, "cudnnGetVersion", version) && find(library, "cudnnBackendCreateDescriptor", real.create) &&
                     find(library, "cudnnBackendDestroyDescriptor", real.destroy) && find(library, "cudnnBackendSetAttribute", real.set) &&
                     find(library, "cudnnBackendGetAttribute", real.get) && find(library, "cudnnBackendFinalize", real.finalize);
  if (!is_complete) return nullptr;
  bool is_100 = config().major == 10 && config().minor == 0;
  if (version() < (is_100 ? kFirstFor100 : kFirstWithoutDevice)) return nullptr;
  std::string text = description();
  if (real.create(kDeviceProperties, &real.device) != 0) return nullptr;
  int status = real.set(real.device, kJson, kCharacters, static_cast<int64_t>(text.size()), text.data());
  if (status == 0) status = real.finalize(real.device);
  if (status != 0) {
    if (config().is_talkative) fprintf(stderr, "memdiag: cuDNN refuses the description of the device with status %d: %s\n", status, text.c_str());
    return nullptr;
  }
  note_planner(version());
  return &real;
}

}  // namespace

const Planner* planner() {
  static const Planner* const only = load();
  return only;
}

}  // namespace phantom
