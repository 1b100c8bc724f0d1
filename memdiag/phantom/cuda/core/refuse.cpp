#include "refuse.h"

#include <stdio.h>

#include <mutex>
#include <set>
#include <string>

namespace phantom {

int refuse(const char* library, const char* function, int error) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const said = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(*mutex);
  if (said->insert(function).second)
    fprintf(stderr,
            "memdiag: the phantom device cannot imitate %s of %s; the call fails with error %d. "
            "If the program can do without, switch off what calls it; else record this on a real device.\n",
            function, library, error);
  return error;
}

}  // namespace phantom

extern "C" __attribute__((visibility("default"))) int memdiag_phantom_refuse(const char* library, const char* function, int error) {
  return phantom::refuse(library, function, error);
}
