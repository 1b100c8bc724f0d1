// Runs the allocator without a device: alone CALLS LOG TOTAL [CONTEXT].
//
// CALLS holds rows of four int64 (call, tensor, size, stream), of which a Call says the kind; the size of SetFraction is in billionths. One
// kind more, EXTERNAL, says how many bytes of the device others hold from here on. The device is a count of TOTAL bytes, CONTEXT of them
// taken, and addresses that go up and are not used twice, as on the phantom NPU.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "process.h"

namespace {

using mindspeed::Bytes;

constexpr std::int64_t EXTERNAL = 10;

class Counted : public mindspeed::Driver {
 public:
  Counted(Bytes total, Bytes context) : total_(total), used_(context) {}
  void* take(int, Bytes size) override {
    Bytes pages = mindspeed::round_up(size, mindspeed::PAGE);
    if (pages > left()) return nullptr;
    used_ += pages;
    Bytes at = next_;
    next_ += pages;
    return reinterpret_cast<void*>(at);
  }
  void give(int, void*, Bytes size) override { used_ -= mindspeed::round_up(size, mindspeed::PAGE); }
  Bytes free_bytes(int) override { return left(); }
  Bytes total_bytes(int) override { return total_; }
  void hold_outside(Bytes size) { external_ = size; }

 private:
  Bytes left() const { return used_ + external_ > total_ ? 0 : total_ - used_ - external_; }

  Bytes total_, used_, external_ = 0, next_ = Bytes{1} << 44;
};

struct Given {
  std::int64_t call, tensor, size, stream;
};

void run(mindspeed::Process& process, std::unordered_map<std::int64_t, void*>& live, const Given& given) {
  using mindspeed::Call;
  switch (static_cast<Call>(given.call)) {
    case Call::Malloc:
      try {
        live[given.tensor] = process.malloc(static_cast<Bytes>(given.size), 0, reinterpret_cast<void*>(given.stream));
      } catch (const mindspeed::OutOfMemory&) {
      }
      return;
    case Call::Free:
      if (auto found = live.find(given.tensor); found != live.end()) {
        process.free(found->second, 0);
        live.erase(found);
      }
      return;
    case Call::EmptyCache: return process.empty_cache();
    case Call::SetFraction: return process.set_fraction(static_cast<double>(given.size) / 1e9, 0);
    case Call::PreciseMatchStart: return process.precise_match_start();
    case Call::PreciseMatchEnd: return process.precise_match_end();
    case Call::MemoryRecorderStart: return process.memory_recorder_start();
    case Call::MemoryRecorderEnd: return process.memory_recorder_end();
    case Call::MallocRecorderStart: return process.malloc_recorder_start();
    case Call::MallocRecorderEnd: return process.malloc_recorder_end();
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: %s CALLS LOG TOTAL [CONTEXT]\n", words[0]);
    return 2;
  }
  Counted device(std::strtoull(words[3], nullptr, 10), count > 4 ? std::strtoull(words[4], nullptr, 10) : 0);
  mindspeed::Process process(device, mindspeed::settings_of_environment());
  std::unordered_map<std::int64_t, void*> live;
  std::FILE* file = std::fopen(words[1], "rb");
  if (!file) {
    std::perror(words[1]);
    return 2;
  }
  for (Given given; std::fread(&given, sizeof given, 1, file) == 1;) {
    if (given.call == EXTERNAL) device.hold_outside(static_cast<Bytes>(given.size));
    else run(process, live, given);
  }
  std::fclose(file);
  return process.write_log(words[2]) ? 0 : 2;
}
