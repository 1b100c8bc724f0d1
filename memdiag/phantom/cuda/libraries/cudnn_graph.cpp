// libcudnn: its graph interface, through which convolutions and attention run.
//
// Each descriptor keeps its attributes and, where a real cuDNN is installed that plans without a card (see cudnn_planner.h), has a
// descriptor of that library beside it. The real one answers all questions, so that PyTorch sees the engines and workspaces that it would
// see on the card. Only the handle is withheld from it: a description of the device takes its place. Where no real library plans, every
// question for engines is answered with one engine, whose workspace is MEMDIAG_PHANTOM_CUDNN_WORKSPACE bytes (0 if not set).
#include <string.h>

#include <algorithm>
#include <map>
#include <optional>

#include "../core/scratch.h"
#include "cudnn.h"
#include "cudnn_planner.h"

using namespace phantom;

namespace {

// Kinds of descriptors, attributes and types, as cuDNN 9 numbers them.
enum : int {
  kEngine = 2, kHeuristics = 4, kPlan = 5, kConvolution = 10, kConvolutionWeights = 11, kConvolutionData = 12, kGraph = 15, kVariantPack = 16,
  kTensor = 17, kMatmul = 19, kAttentionForward = 41, kAttentionBackward = 43,
};
enum : int {
  kHeuristicDevice = 204, kHeuristicResults = 202, kConfigEngine = 300, kConfigWorkspace = 303, kConfigSharedMemory = 304, kPlanConfig = 401,
  kPlanWorkspace = 402, kPlanDevice = 407, kGraphOperations = 801, kNumEngines = 802, kTensorType = 901, kTensorDimensions = 902, kTensorName = 906,
  kTensorIsVirtual = 907, kPackPointers = 1001, kPackWorkspace = 1003, kEngineIndex = 1301, kEngineDevice = 1307,
};
enum : int { kHandleType = 0, kBoolean = 2, kInt64 = 3, kDouble = 5, kVoidPointer = 6, kDescriptor = 15, kChar = 24, kFraction = 26 };
constexpr int kFirstNotSupported = 3000, kLastNotSupported = 3999;

size_t bytes_of(int type) {
  switch (type) {
    case kHandleType: case kInt64: case kDouble: case kVoidPointer: case kDescriptor: return 8;
    case kFraction: return 16;
    case kBoolean: case kChar: return 1;
    default: return 4;
  }
}

struct Attribute {
  int64_t count;
  std::vector<char> bytes;
};
struct Descriptor {
  int kind;
  std::map<int, Attribute> attributes;
  void* real = nullptr;  // of the planner; null where it cannot plan this
  // What an operation works on, passed on from it to graph, heuristics, engine and plan.
  Operation operation = Operation::kOther;
  std::map<int64_t, uint64_t> tensor_bytes;  // by the tensor's name
  std::optional<int64_t> workspace;          // of a plan that the planner did not compile

  template <class T>
  std::vector<T> values(int name) const {
    auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> result(found->second.bytes.size() / sizeof(T));
    memcpy(result.data(), found->second.bytes.data(), result.size() * sizeof(T));
    return result;
  }
  void inherit(const Descriptor& from) {
    if (from.operation != Operation::kOther) operation = from.operation;
    tensor_bytes.insert(from.tensor_bytes.begin(), from.tensor_bytes.end());
  }
};

void stop_planning(Descriptor& descriptor) {
  if (descriptor.real) planner()->destroy(descriptor.real);
  descriptor.real = nullptr;
}

void add_tensor(Descriptor& to, const Descriptor& tensor) {
  std::vector<int64_t> names = tensor.values<int64_t>(kTensorName), dimensions = tensor.values<int64_t>(kTensorDimensions);
  std::vector<int> types = tensor.values<int>(kTensorType);
  std::vector<char> is_virtual = tensor.values<char>(kTensorIsVirtual);
  if (names.empty() || types.empty() || (!is_virtual.empty() && is_virtual[0])) return;
  uint64_t bytes = element_bytes(types[0]);
  for (int64_t dimension : dimensions) bytes *= static_cast<uint64_t>(std::max<int64_t>(dimension, 0));
  to.tensor_bytes[names[0]] = bytes;
}

// What `descriptor` is about, once the descriptors that it is made of were given to it.
void look_at_part(Descriptor& descriptor, const Descriptor& part) {
  if (part.kind == kTensor) return add_tensor(descriptor, part);
  int num_matmuls = 0;
  if (descriptor.kind == kGraph)
    for (const Descriptor* operation : descriptor.values<Descriptor*>(kGraphOperations)) num_matmuls += operation->kind == kMatmul;
  descriptor.inherit(part);
  if (part.kind >= kConvolution && part.kind <= kConvolutionData) descriptor.operation = Operation::kConvolution;
  else if (part.kind == kAttentionForward || part.kind == kAttentionBackward || num_matmuls > 1) descriptor.operation = Operation::kAttention;
}

int describe_device(Descriptor& descriptor) {
  int name = descriptor.kind == kHeuristics ? kHeuristicDevice : descriptor.kind == kPlan ? kPlanDevice : descriptor.kind == kEngine ? kEngineDevice : 0;
  if (!name) return 0;
  void* device = planner()->device;
  return planner()->set(descriptor.real, name, kDescriptor, 1, &device);
}

int answer_without_planner(const Descriptor& descriptor, int name, int type, int64_t wanted, int64_t* count, void* values) {
  bool is_answer_wanted = values && wanted > 0;
  *count = 1;
  switch (name) {
    case kHeuristicResults: case kConfigEngine: case kPlanConfig:  // the caller's own descriptors are as good as any
      for (int64_t i = 0; is_answer_wanted && i < wanted; i++) {
        Descriptor& result = *static_cast<Descriptor**>(values)[i];
        stop_planning(result);
        result.inherit(descriptor);
      }
      return 0;
    case kNumEngines:
      if (is_answer_wanted) *static_cast<int64_t*>(values) = 1;
      return 0;
    case kPlanWorkspace: case kConfigWorkspace:
      if (is_answer_wanted) *static_cast<int64_t*>(values) = descriptor.workspace.value_or(static_cast<int64_t>(config().cudnn_workspace));
      return 0;
    case kConfigSharedMemory:
      if (is_answer_wanted) *static_cast<int32_t*>(values) = 0;
      return 0;
    case kEngineIndex:
      if (is_answer_wanted) *static_cast<int64_t*>(values) = 0;
      return 0;
  }
  auto found = descriptor.attributes.find(name);
  *count = found == descriptor.attributes.end() ? 0 : found->second.count;
  if (is_answer_wanted && *count > 0) {
    const std::vector<char>& bytes = found->second.bytes;
    memcpy(values, bytes.data(), std::min(static_cast<size_t>(wanted) * bytes_of(type), bytes.size()));
  }
  return 0;
}

// The workspaces of some configurations of engines. Consecutive equal ones are one: where one cannot be allocated, the other cannot.
std::vector<int64_t> workspaces_of(void* const* configs, int64_t num_configs) {
  std::vector<int64_t> found;
  for (int64_t i = 0; i < num_configs; i++) {
    int64_t bytes = 0, count = 0;
    if (planner()->get(configs[i], kConfigWorkspace, kInt64, 1, &count, &bytes) != 0 || count != 1) continue;
    bytes += static_cast<int64_t>(config().cudnn_extra);
    if (found.empty() || found.back() != bytes) found.push_back(bytes);
  }
  return found;
}

int answer_of_planner(const Descriptor& descriptor, int name, int type, int64_t wanted, int64_t* count, void* values) {
  if (type != kDescriptor || !values) {
    int status = planner()->get(descriptor.real, name, type, wanted, count, values);
    bool is_workspace = (name == kPlanWorkspace || name == kConfigWorkspace) && descriptor.operation == Operation::kConvolution;
    if (status == 0 && is_workspace && values && wanted > 0) *static_cast<int64_t*>(values) += static_cast<int64_t>(config().cudnn_extra);
    return status;
  }
  std::vector<void*> results;
  for (int64_t i = 0; i < wanted; i++) {
    Descriptor& result = *static_cast<Descriptor**>(values)[i];
    if (!result.real) planner()->create(result.kind, &result.real);
    result.inherit(descriptor);
    results.push_back(result.real);
  }
  int status = planner()->get(descriptor.real, name, type, wanted, count, results.data());
  if (status == 0 && name == kHeuristicResults && descriptor.operation == Operation::kConvolution)
    note_workspaces(workspaces_of(results.data(), std::min(wanted, *count)));
  return status;
}

// For a plan of attention, cuDNN compiles a kernel for each new shape, which takes 0.3 to 1 s: in `generate`, for each token. The engine's
// configuration already has the workspace, the same in all of 104 plans that were compiled to compare.
bool is_planned_without_compiling(Descriptor& plan) {
  std::vector<Descriptor*> configs = plan.values<Descriptor*>(kPlanConfig);
  if (plan.kind != kPlan || plan.operation != Operation::kAttention || configs.empty() || !configs[0]->real) return false;
  int64_t workspace = 0, count = 0;
  if (planner()->get(configs[0]->real, kConfigWorkspace, kInt64, 1, &count, &workspace) != 0 || count != 1) return false;
  stop_planning(plan);
  plan.workspace = workspace;
  return true;
}

}  // namespace

API int cudnnBackendCreateDescriptor(int kind, Descriptor** result) {
  *result = new Descriptor{kind, {}};
  if (kind != kVariantPack && planner() && planner()->create(kind, &(*result)->real) != 0) (*result)->real = nullptr;
  return 0;
}
API int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  if (descriptor) stop_planning(*descriptor);
  delete descriptor;
  return 0;
}
API int cudnnBackendInitialize(void*) { return 0; }
API int cudnnBackendFinalize(Descriptor* descriptor) {
  if (!descriptor->real || is_planned_without_compiling(*descriptor)) return 0;
  int status = describe_device(*descriptor);
  if (status == 0) status = planner()->finalize(descriptor->real);
  // An engine that does not support the operation is passed over on the card too.
  if (status >= kFirstNotSupported && status <= kLastNotSupported && descriptor->kind != kHeuristics) return status;
  if (status != 0) stop_planning(*descriptor);
  else if (descriptor->kind == kPlan && descriptor->operation == Operation::kConvolution) note_convolution_plan();
  return 0;
}
API int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, int64_t count, const void* values) {
  Attribute& own = descriptor->attributes[name];
  own.count = count;
  const char* first = static_cast<const char*>(values);
  if (values && count > 0) own.bytes.assign(first, first + static_cast<size_t>(count) * bytes_of(type));
  if (type == kHandleType) return 0;
  std::vector<void*> real_values;
  if (type == kDescriptor && values && count > 0) {
    for (Descriptor* part : descriptor->values<Descriptor*>(name)) {
      look_at_part(*descriptor, *part);
      if (!part->real) stop_planning(*descriptor);
      real_values.push_back(part->real);
    }
    values = real_values.data();
  }
  if (!descriptor->real) return 0;
  int status = planner()->set(descriptor->real, name, type, count, values);
  if (status >= kFirstNotSupported && status <= kLastNotSupported) return status;
  if (status != 0) stop_planning(*descriptor);
  return 0;
}
API int cudnnBackendGetAttribute(Descriptor* descriptor, int name, int type, int64_t wanted, int64_t* count, void* values) {
  int64_t ignored;
  if (!count) count = &ignored;
  if (descriptor->real) return answer_of_planner(*descriptor, name, type, wanted, count, values);
  return answer_without_planner(*descriptor, name, type, wanted, count, values);
}
API int cudnnBackendExecute(Handle* handle, Descriptor* plan, Descriptor* pack) {
  int64_t workspace = plan->workspace.value_or(kUnknownScratch), count = 0;
  if (plan->real) answer_of_planner(*plan, kPlanWorkspace, kInt64, 1, &count, &workspace);
  uint64_t operand_bytes = 0;
  for (const auto& [name, bytes] : plan->tensor_bytes) operand_bytes += bytes;
  note_scratch(plan->operation, workspace, operand_bytes);
  std::vector<Word> words;
  if (pack->kind == kVariantPack) {
    words = pack->values<Word>(kPackPointers);
    std::vector<Word> more = pack->values<Word>(kPackWorkspace);
    words.insert(words.end(), more.begin(), more.end());
  }
  library_call(handle->stream, words.data(), words.size());
  return 0;
}
