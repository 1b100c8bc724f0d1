// libnvrtc, where the real one is not installed: PyTorch compiles some elementwise kernels at run time (torch.prod of complex numbers,
// torch.special, jiterator). Nobody looks into a module of the simulated device, so every program compiles to an empty one.
#include <string.h>

#include <string>

#include "calls.h"

using namespace phantom;

namespace {

struct Program {
  std::string lowered;  // the last name asked for
};
constexpr char kNothing[] = "";
int size_of_nothing(size_t* bytes) {
  *bytes = sizeof kNothing;
  return kSuccess;
}
int nothing(char* to) {
  memcpy(to, kNothing, sizeof kNothing);
  return kSuccess;
}

}  // namespace

API int nvrtcVersion(int* major, int* minor) {
  *major = PHANTOM_CUDA_VERSION / 1000;
  *minor = PHANTOM_CUDA_VERSION % 1000 / 10;
  return kSuccess;
}
API const char* nvrtcGetErrorString(int error) { return error ? "NVRTC_ERROR_UNKNOWN" : "NVRTC_SUCCESS"; }
API int nvrtcCreateProgram(Program** program, const char*, const char*, int, const char* const*, const char* const*) {
  *program = new Program;
  return kSuccess;
}
API int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}
API int nvrtcAddNameExpression(Program*, const char*) { return kSuccess; }
API int nvrtcCompileProgram(Program*, int, const char* const*) { return kSuccess; }
API int nvrtcGetLoweredName(Program* program, const char* name, const char** lowered) {
  program->lowered = name;
  *lowered = program->lowered.c_str();
  return kSuccess;
}
API int nvrtcGetPTXSize(Program*, size_t* bytes) { return size_of_nothing(bytes); }
API int nvrtcGetPTX(Program*, char* to) { return nothing(to); }
API int nvrtcGetCUBINSize(Program*, size_t* bytes) { return size_of_nothing(bytes); }
API int nvrtcGetCUBIN(Program*, char* to) { return nothing(to); }
API int nvrtcGetProgramLogSize(Program*, size_t* bytes) { return size_of_nothing(bytes); }
API int nvrtcGetProgramLog(Program*, char* to) { return nothing(to); }
