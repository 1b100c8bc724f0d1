// The functions of the driver by name, for those who look them up at run time (PyTorch, Triton, the toolkit's libraries).
#pragma once

namespace phantom {

void* entry_point(const char* name);  // null: not imitated

}  // namespace phantom

// A function that has a second version is asked for by either name: PyTorch 2.6 to 2.9 looks up the plain ones. Both are the second here.
#define ALSO_PLAIN(name) API decltype(name##_v2) name __attribute__((alias(#name "_v2")));
