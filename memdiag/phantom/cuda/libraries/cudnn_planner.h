// The real cuDNN as a planner: which engines it would choose, and the workspace that each asks for.
//
// All of this is host code. Since 9.8 it needs no card either, only a description of one: "deviceless ahead-of-time compilation" in
// cuDNN's documentation, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR in its interface. Nothing is executed through it.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace phantom {

struct Planner {
  int (*create)(int kind, void** result);
  int (*destroy)(void* descriptor);
  int (*set)(void* descriptor, int name, int type, int64_t count, const void* values);
  int (*get)(void* descriptor, int name, int type, int64_t wanted, int64_t* count, void* values);
  int (*finalize)(void* descriptor);
  void* device;  // the finalized description of the simulated card
};

// Null where MEMDIAG_PHANTOM_CUDNN_WORKSPACE is set, or no real cuDNN of 9.8 or later is installed.
const Planner* planner();

}  // namespace phantom
