// The list of calls, and what tests may do to the device (memdiag_phantom_*): nothing else calls these.
#include "calls.h"

#include <vector>

#include "abi.h"
#include "memory.h"
#include "streams.h"

namespace phantom {
namespace {

bool g_is_noting = false;
std::vector<CallRecord>& records() {
  static auto* const all = new std::vector<CallRecord>;
  return *all;
}

}  // namespace

void note_call(Call kind, int device, uint64_t address, uint64_t bytes, int64_t ordinal) {
  if (g_is_noting) records().push_back({static_cast<int>(kind), device, address, bytes, ordinal});
}

}  // namespace phantom

using namespace phantom;

API void memdiag_phantom_note_calls(int on) {
  Lock lock(memory().mutex);
  g_is_noting = on != 0;
}
API int64_t memdiag_phantom_calls(const CallRecord** first) {
  Lock lock(memory().mutex);
  *first = records().data();
  return static_cast<int64_t>(records().size());
}
API void memdiag_phantom_set_total(uint64_t bytes) {
  Lock lock(memory().mutex);
  memory().total_bytes = bytes;
}
API void memdiag_phantom_set_foreign(int device, uint64_t bytes) {
  Lock lock(memory().mutex);
  memory().devices[device].foreign = bytes;
}
API uint64_t memdiag_phantom_used(int device) {
  Lock lock(memory().mutex);
  return memory().devices[device].used;
}
API void memdiag_phantom_complete(void* stream) { complete(static_cast<Stream>(stream)); }
API void memdiag_phantom_complete_all() { complete_all(); }
API int memdiag_phantom_locate(uint64_t address, uint64_t* begin, uint64_t* bytes, int64_t* ordinal, int* kind) {
  Lock lock(memory().mutex);
  auto range = memory().find(address);
  if (range == memory().ranges.end()) return 0;
  *begin = range->first;
  *bytes = range->second.bytes;
  *ordinal = range->second.ordinal;
  *kind = static_cast<int>(range->second.kind);
  return 1;
}
