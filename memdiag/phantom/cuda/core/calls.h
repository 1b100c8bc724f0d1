// A list of the calls that decide about memory, for tests that compare with what the real driver was asked.
#pragma once
#include <stdint.h>

namespace phantom {

enum class Call : int {
  kMalloc = 1, kMallocFailed, kFree, kReserve, kUnreserve, kCreate, kCreateFailed, kMap, kUnmap, kRelease, kDeviceSync, kStreamSync, kEventSync,
};

struct CallRecord {
  int kind, device;
  uint64_t address, bytes;
  int64_t ordinal;
};

void note_call(Call kind, int device, uint64_t address, uint64_t bytes, int64_t ordinal);  // under the lock of memory()

}  // namespace phantom
