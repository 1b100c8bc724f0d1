// The functions of the driver by name, for those who look them up at run time (PyTorch, Triton, the toolkit's libraries).
#pragma once

namespace phantom {

void* entry_point(const char* name);  // null: not imitated

}  // namespace phantom
