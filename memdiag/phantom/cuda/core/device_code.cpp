// A fat binary is a header and a row of entries, each the code for one architecture; only the headers of entries are
// read, so that compressed code is no obstacle. The layout is that of fatbinary_section.h and of `cuobjdump -all -lelf`.
#include "device_code.h"

#include <stdint.h>
#include <string.h>

#include "config.h"

namespace phantom {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kFatBinaryMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1, kElf = 2;
constexpr uint64_t kExactOnly = 1 << 20;    // sm_90a: code for one architecture, not for later ones
constexpr uint64_t kFamilyOnly = 1 << 21;   // sm_100f: for its family
constexpr uint64_t kMostEntries = 64;

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* prelinked;
};

struct FatBinary {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of the entries, which follow
};

struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, options;
  uint16_t minor, major;
  uint32_t architecture;  // 86 for sm_86
  uint32_t name_offset, name_bytes;
  uint64_t flags;
};

// Code runs on later devices of the same generation, PTX is compiled for any later device.
bool runs_here(const Entry& entry, int capability) {
  int architecture = static_cast<int>(entry.architecture);
  if (entry.flags & kExactOnly) return architecture == capability;
  if (entry.kind == kPtx && !(entry.flags & kFamilyOnly)) return architecture <= capability;
  return architecture <= capability && architecture / 10 == capability / 10;
}

}  // namespace

CodeVersion code_for_this_device() {
  int capability = config().major * 10 + config().minor;
  return {capability, capability};
}

CodeVersion choose_code(const void* registered) {
  CodeVersion own = code_for_this_device();
  if (!registered) return own;
  Wrapper wrapper;
  memcpy(&wrapper, registered, sizeof wrapper.magic);
  const void* data = registered;
  if (wrapper.magic == kWrapperMagic) {
    memcpy(&wrapper, registered, sizeof wrapper);
    data = wrapper.data;
  }
  FatBinary fat;
  memcpy(&fat, data, sizeof fat.magic);
  if (fat.magic != kFatBinaryMagic) return own;
  memcpy(&fat, data, sizeof fat);
  int binary = 0, ptx = 0;
  uint64_t at = 0;
  for (uint64_t i = 0; i < kMostEntries && at + sizeof(Entry) <= fat.bytes; i++) {
    Entry entry;
    memcpy(&entry, static_cast<const char*>(data) + fat.header_bytes + at, sizeof entry);
    if (!entry.header_bytes) break;
    int& best = entry.kind == kElf ? binary : ptx;
    if ((entry.kind == kElf || entry.kind == kPtx) && runs_here(entry, own.binary) && static_cast<int>(entry.architecture) > best)
      best = static_cast<int>(entry.architecture);
    at += entry.header_bytes + entry.bytes;
  }
  if (binary) return {binary, binary};
  if (ptx) return {ptx, own.binary};  // the driver compiles it
  return {0, 0};
}

}  // namespace phantom
