#include "errors.h"

#include "abi.h"

namespace phantom {
namespace {

thread_local int t_last = kSuccess;

struct Error {
  int number;
  const char *name, *text;
};
// The texts are the real ones: PyTorch shows them, and other programs read them.
constexpr Error kErrors[] = {
    {kSuccess, "cudaSuccess", "no error"},
    {kInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {kNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {kInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {kNoKernelImage, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {kInvalidHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {kIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {kNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {kNotReady, "cudaErrorNotReady", "device not ready"},
    {kNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {kCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
};
constexpr Error kOther = {kUnknown, "cudaErrorUnknown", "unknown error"};

const Error& find(int error) {
  for (const Error& known : kErrors)
    if (known.number == error) return known;
  return kOther;
}

}  // namespace

int remember(int error) {
  if (error != kSuccess && error != kNotReady) t_last = error;
  return error;
}
int last_error() { return t_last; }
int take_last_error() {
  int error = t_last;
  t_last = kSuccess;
  return error;
}
const char* error_name(int error) { return find(error).name; }
const char* error_text(int error) { return find(error).text; }

}  // namespace phantom
