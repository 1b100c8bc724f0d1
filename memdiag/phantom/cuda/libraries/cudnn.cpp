// libcudnn: handles, descriptors and the older interface, where each operation is a function. All algorithms take the same workspace as
// the engines of the graph interface (see cudnn_graph.cpp).
#include "cudnn.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

using namespace phantom;

namespace {

struct Performance {  // cudnnConvolution…AlgoPerf_t
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

int answer(int algorithm, int* count, Performance* first) {
  memset(first, 0, sizeof *first);
  first->algorithm = algorithm;
  first->memory = config().cudnn_workspace;
  *count = 1;
  return 0;
}
template <class T>
int make(T** result) {
  *result = new T();
  return 0;
}
template <class T>
int unmake(T* made) {
  delete made;
  return 0;
}
struct Settings {  // of descriptors that nobody asks anything
  uint64_t words[32];
};

void describe(Tensor& to, int type, int format, int count, const int* dimensions, const int* strides) {
  to.type = type;
  to.format = format;
  to.num_dimensions = std::min(count, kMostDimensions);
  std::copy_n(dimensions, to.num_dimensions, to.dimensions);
  if (strides) std::copy_n(strides, to.num_dimensions, to.strides);
}

enum : int { kImplicitPrecompGemm = 1, kAlgorithm1 = 1 };

}  // namespace

API size_t cudnnGetVersion() { return PHANTOM_CUDNN_VERSION; }
API size_t cudnnGetMaxDeviceVersion() { return PHANTOM_CUDNN_VERSION; }
API size_t cudnnGetCudartVersion() { return PHANTOM_CUDA_VERSION; }
API int cudnnGetProperty(int which, int* value) {
  *value = which == 0 ? PHANTOM_CUDNN_VERSION / 10000 : which == 1 ? PHANTOM_CUDNN_VERSION / 100 % 100 : PHANTOM_CUDNN_VERSION % 100;
  return 0;
}
API const char* cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
API void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes) *text = 0;
}
API int cudnnCreate(Handle** handle) { return make(handle); }
API int cudnnDestroy(Handle* handle) { return unmake(handle); }
API int cudnnSetStream(Handle* handle, Stream stream) {
  handle->stream = stream;
  return 0;
}
API int cudnnGetStream(Handle* handle, Stream* stream) {
  *stream = handle->stream;
  return 0;
}

API int cudnnCreateTensorDescriptor(Tensor** result) { return make(result); }
API int cudnnDestroyTensorDescriptor(Tensor* tensor) { return unmake(tensor); }
API int cudnnSetTensorNdDescriptor(Tensor* tensor, int type, int count, const int* dimensions, const int* strides) {
  describe(*tensor, type, 0, count, dimensions, strides);
  return 0;
}
API int cudnnGetTensorNdDescriptor(const Tensor* tensor, int wanted, int* type, int* count, int* dimensions, int* strides) {
  *type = tensor->type;
  *count = tensor->num_dimensions;
  std::copy_n(tensor->dimensions, std::min(wanted, kMostDimensions), dimensions);
  std::copy_n(tensor->strides, std::min(wanted, kMostDimensions), strides);
  return 0;
}
API int cudnnCreateFilterDescriptor(Tensor** result) { return make(result); }
API int cudnnDestroyFilterDescriptor(Tensor* filter) { return unmake(filter); }
API int cudnnSetFilterNdDescriptor(Tensor* filter, int type, int format, int count, const int* dimensions) {
  describe(*filter, type, format, count, dimensions, nullptr);
  return 0;
}
API int cudnnGetFilterNdDescriptor(const Tensor* filter, int wanted, int* type, int* format, int* count, int* dimensions) {
  *type = filter->type;
  *format = filter->format;
  *count = filter->num_dimensions;
  std::copy_n(filter->dimensions, std::min(wanted, kMostDimensions), dimensions);
  return 0;
}

#define DESCRIPTOR(kind)                                                                    \
  API int cudnnCreate##kind##Descriptor(Settings** result) { return make(result); }         \
  API int cudnnDestroy##kind##Descriptor(Settings* settings) { return unmake(settings); }
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(Pooling)
DESCRIPTOR(CTCLoss)
DESCRIPTOR(SpatialTransformer)
#define ACCEPTED(name) \
  API int name(void*, ...) { return 0; }
ACCEPTED(cudnnSetConvolutionNdDescriptor)
ACCEPTED(cudnnSetConvolutionGroupCount)
ACCEPTED(cudnnSetConvolutionMathType)
ACCEPTED(cudnnSetConvolutionReorderType)
ACCEPTED(cudnnSetActivationDescriptor)
ACCEPTED(cudnnSetPooling2dDescriptor)
ACCEPTED(cudnnSetCTCLossDescriptorEx)
ACCEPTED(cudnnSetCTCLossDescriptor_v9)
ACCEPTED(cudnnSetSpatialTransformerNdDescriptor)

// The size that is asked for is written to the argument with this number, counted from 0.
#define SIZED(name, place, bytes)                            \
  API int name(PHANTOM_WORDS) {                              \
    const Word words[] = PHANTOM_WORD_LIST;                  \
    *static_cast<size_t*>(pointer(words[place])) = (bytes);  \
    return 0;                                                \
  }
SIZED(cudnnGetConvolutionForwardWorkspaceSize, 6, config().cudnn_workspace)
SIZED(cudnnGetConvolutionBackwardDataWorkspaceSize, 6, config().cudnn_workspace)
SIZED(cudnnGetConvolutionBackwardFilterWorkspaceSize, 6, config().cudnn_workspace)
SIZED(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, 8, 0)
SIZED(cudnnGetBatchNormalizationBackwardExWorkspaceSize, 10, 0)
SIZED(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, 5, 0)
SIZED(cudnnGetCTCLossWorkspaceSize, 8, 0)
SIZED(cudnnGetCTCLossWorkspaceSize_v8, 5, 0)
// a generator of 16 bytes for each thread of the device
SIZED(cudnnDropoutGetStatesSize, 1, static_cast<size_t>(config().sms) * static_cast<size_t>(config().threads_per_sm) * 16)

API int cudnnGetConvolutionForwardAlgorithm_v7(Handle*, void*, void*, void*, void*, int, int* count, Performance* first) {
  return answer(kImplicitPrecompGemm, count, first);
}
API int cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle*, void*, void*, void*, void*, int, int* count, Performance* first) {
  return answer(kAlgorithm1, count, first);
}
API int cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle*, void*, void*, void*, void*, int, int* count, Performance* first) {
  return answer(kAlgorithm1, count, first);
}
// With benchmark=True: handle, x, *x, w, *w, convolution, y, *y, wanted, count, results, workspace, bytes
#define TRIED(name, algorithm)                                                                                                      \
  API int name(Handle*, void*, void*, void*, void*, void*, void*, void*, int, int* count, Performance* first, void*, size_t) { \
    return answer(algorithm, count, first);                                                                                         \
  }
TRIED(cudnnFindConvolutionForwardAlgorithmEx, kImplicitPrecompGemm)
TRIED(cudnnFindConvolutionBackwardDataAlgorithmEx, kAlgorithm1)
TRIED(cudnnFindConvolutionBackwardFilterAlgorithmEx, kAlgorithm1)
