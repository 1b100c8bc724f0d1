#include "entry.h"

#include <dlfcn.h>
#include <stdio.h>

#include <string>

#include "../core/abi.h"
#include "../core/config.h"
#include "../core/refuse.h"

using namespace phantom;

namespace phantom {

void* entry_point(const char* name) {
  static void* const self = [] {
    Dl_info here{};
    dladdr(reinterpret_cast<void*>(&entry_point), &here);
    return dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  // Many functions have a second version under the plain name: what we have is the newest that both kinds of caller agree on.
  void* found = dlsym(self, name);
  if (!found) found = dlsym(self, (std::string(name) + "_v2").c_str());
  if (!found && config().is_talkative) fprintf(stderr, "memdiag: the driver was asked for %s, which is not imitated\n", name);
  return found;
}

}  // namespace phantom

API int cuGetProcAddress(const char* name, void** function, int, uint64_t, int* status) {
  *function = entry_point(name);
  if (status) *status = *function ? 0 : 1;
  return *function ? kSuccess : kNotFound;
}
API int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  return cuGetProcAddress(name, function, version, flags, status);
}
// Tables of functions that no header describes: tools of the toolkit use them.
API int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotSupported;
}
