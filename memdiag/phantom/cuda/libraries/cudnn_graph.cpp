// libcudnn: its graph interface, through which convolutions and attention run. Descriptors are stores of attributes; every question for
// engines is answered with one engine. Its workspace is not known and taken to be MEMDIAG_PHANTOM_CUDNN_WORKSPACE bytes (0 if not said).
#include <string.h>

#include <algorithm>
#include <map>

#include "cudnn.h"

using namespace phantom;

namespace {

// Kinds of descriptors, attributes and types, as cuDNN 9 numbers them.
enum : int { kVariantPack = 16 };
enum : int {
  kHeuristicResults = 202, kConfigEngine = 300, kConfigWorkspace = 303, kConfigSharedMemory = 304, kPlanConfig = 401, kPlanWorkspace = 402,
  kNumEngines = 802, kPackPointers = 1001, kPackWorkspace = 1003, kEngineIndex = 1301,
};
enum : int { kHandleType = 0, kBoolean = 2, kInt64 = 3, kDouble = 5, kVoidPointer = 6, kDescriptor = 15, kChar = 24, kFraction = 26 };

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
};

void add_words(const Descriptor& from, int attribute, std::vector<Word>& words) {
  auto found = from.attributes.find(attribute);
  if (found == from.attributes.end()) return;
  std::vector<Word> more(found->second.bytes.size() / sizeof(Word));
  memcpy(more.data(), found->second.bytes.data(), more.size() * sizeof(Word));
  words.insert(words.end(), more.begin(), more.end());
}

}  // namespace

API int cudnnBackendCreateDescriptor(int kind, Descriptor** result) {
  *result = new Descriptor{kind, {}};
  return 0;
}
API int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return 0;
}
API int cudnnBackendInitialize(void*) { return 0; }
API int cudnnBackendFinalize(Descriptor*) { return 0; }
API int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, int64_t count, const void* values) {
  Attribute& own = descriptor->attributes[name];
  own.count = count;
  const char* first = static_cast<const char*>(values);
  if (values && count > 0) own.bytes.assign(first, first + static_cast<size_t>(count) * bytes_of(type));
  return 0;
}
API int cudnnBackendGetAttribute(Descriptor* descriptor, int name, int type, int64_t wanted, int64_t* count, void* values) {
  int64_t ignored;
  if (!count) count = &ignored;
  *count = 1;
  bool is_answer_wanted = values && wanted > 0;
  switch (name) {
    case kHeuristicResults: case kConfigEngine: case kPlanConfig: return 0;  // the caller's own descriptors are as good as any
    case kNumEngines:
      if (is_answer_wanted) *static_cast<int64_t*>(values) = 1;
      return 0;
    case kPlanWorkspace: case kConfigWorkspace:
      if (is_answer_wanted) *static_cast<int64_t*>(values) = static_cast<int64_t>(config().cudnn_workspace);
      return 0;
    case kConfigSharedMemory:
      if (is_answer_wanted) *static_cast<int32_t*>(values) = 0;
      return 0;
    case kEngineIndex:
      if (is_answer_wanted) *static_cast<int64_t*>(values) = 0;
      return 0;
  }
  auto found = descriptor->attributes.find(name);
  *count = found == descriptor->attributes.end() ? 0 : found->second.count;
  if (is_answer_wanted && *count > 0) {
    const std::vector<char>& bytes = found->second.bytes;
    memcpy(values, bytes.data(), std::min(static_cast<size_t>(wanted) * bytes_of(type), bytes.size()));
  }
  return 0;
}
API int cudnnBackendExecute(Handle* handle, Descriptor*, Descriptor* pack) {
  std::vector<Word> words;
  if (pack->kind == kVariantPack) {
    add_words(*pack, kPackPointers, words);
    add_words(*pack, kPackWorkspace, words);
  }
  library_call(handle->stream, words.data(), words.size());
  return 0;
}
