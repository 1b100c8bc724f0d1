#include "refuse.h"

#include <stdio.h>

#include <algorithm>
#include <mutex>

namespace phantom {
namespace {

struct Refused {
  std::mutex mutex;
  std::vector<std::string> names;
};
Refused& all() {
  static Refused* const all = new Refused;
  return *all;
}

}  // namespace

int refuse(const char* library, const char* function, int error) {
  std::lock_guard<std::mutex> lock(all().mutex);
  std::string name = std::string(function) + " of " + library;
  std::vector<std::string>& said = all().names;
  if (std::find(said.begin(), said.end(), name) != said.end()) return error;
  said.push_back(name);
  fprintf(stderr,
          "memdiag: the phantom device cannot imitate %s; the call fails with error %d. "
          "If the program can do without, switch off what calls it; else record this on a real device.\n",
          name.c_str(), error);
  return error;
}

std::vector<std::string> refused() {
  std::lock_guard<std::mutex> lock(all().mutex);
  return all().names;
}

}  // namespace phantom

extern "C" __attribute__((visibility("default"))) int memdiag_phantom_refuse(const char* library, const char* function, int error) {
  return phantom::refuse(library, function, error);
}
