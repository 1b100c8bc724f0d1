// libcupti, where the real one is not installed: torch.profiler asks for the text of the error with which the simulated device refuses
// to trace kernels. It then profiles without kernels; operators and memory do not need this library.
#include "calls.h"

using namespace phantom;

API int cuptiGetResultString(int, const char** text) {
  *text = "the simulated device does not trace kernels";
  return kSuccess;
}
