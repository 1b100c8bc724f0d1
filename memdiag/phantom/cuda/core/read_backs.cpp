// A copy says how many bytes, not of what. So we stand before the functions of PyTorch through which tensors are read (being preloaded, as
// in blocks.cpp) and note the tensor until they return:
//
//     at::native::copy_(to, from, …)              tensor.cpu(), print, numpy
//     at::native::_local_scalar_dense_cuda(of)    item(), bool(), float()
//     at::native::nonzero_out_cuda(of, out)       nonzero(), indexing with a mask: reads back how many there are
//     at::native::_unique2_cuda(of, …)            unique(): likewise, also along a dimension, unique_consecutive() and isin()
//     at::native::_coalesce_sparse_cuda(of)       coalesce(): likewise, of the places of a sparse tensor, such as a gradient of an embedding
//
// How many elements are not zero is counted where they are known, and else taken to be MEMDIAG_PHANTOM_SELECTED of them (1, all). So are
// those that are unlike each other. Each such assumption is counted, with its place in the program.
#include "read_backs.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "abi.h"
#include "computed.h"
#include "made_up.h"
#include "memory.h"
#include "python_place.h"
#include "refuse.h"
#include "scratch.h"
#include "values.h"

namespace phantom {
namespace {

constexpr size_t kMostPlaces = 12;
constexpr uint64_t kMostCounted = 64 << 20;  // bytes of a mask that are looked at

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char one : text) {
    if (one == '"' || one == '\\') result += '\\';
    if (static_cast<unsigned char>(one) >= ' ') result += one;
  }
  return result + "\"";
}

class Places {  // lines of the program at which something happened, and how often
 public:
  void note() {
    bool is_displayed;
    std::string place = python_place(is_displayed);
    if (is_displayed) return;
    if (place.empty()) place = "a call outside of Python";
    Lock lock(mutex_);
    count_++;
    if (!by_place_[place]++) in_order_.push_back(place);
    last_ = place;
  }
  std::string json() {
    Lock lock(mutex_);
    std::string result = "\"count\": " + std::to_string(count_) + ", \"places\": [";
    for (size_t i = 0; i < std::min(in_order_.size(), kMostPlaces); i++) {
      result += std::string(i ? ", " : "") + "{\"where\": " + quoted(in_order_[i]) + ", \"count\": " + std::to_string(by_place_[in_order_[i]]) + "}";
    }
    return result + "], \"last\": " + quoted(last_);
  }

 private:
  std::mutex mutex_;
  int64_t count_ = 0;
  std::vector<std::string> in_order_;
  std::map<std::string, int64_t> by_place_;
  std::string last_;
};

Places& reads() {
  static Places* const all = new Places;
  return *all;
}
Places& assumed_sizes() {
  static Places* const all = new Places;
  return *all;
}

thread_local const void* t_source = nullptr;  // the tensor that is read
thread_local int64_t t_count = -1;            // the answer to how many, while PyTorch asks for it

template <class T>
class During {  // a value that holds until the end of the block
 public:
  During(T& place, T value) : place_(place), before_(place) { place = value; }
  ~During() { place_ = before_; }

 private:
  T& place_;
  const T before_;
};

template <class Function>
Function in_torch(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return handle ? reinterpret_cast<Function>(dlsym(handle, name)) : nullptr;
}

// PyTorch's interface for C, which does not change with its versions.
struct Questions {
  template <class Answer>
  using Question = int (*)(const void*, Answer*);
  Question<int32_t> type = in_torch<Question<int32_t>>("libtorch_cpu.so", "aoti_torch_get_dtype");
  Question<int64_t> count = in_torch<Question<int64_t>>("libtorch_cpu.so", "aoti_torch_get_numel");
  Question<int64_t> dimensions = in_torch<Question<int64_t>>("libtorch_cpu.so", "aoti_torch_get_dim");
  Question<int64_t*> sizes = in_torch<Question<int64_t*>>("libtorch_cpu.so", "aoti_torch_get_sizes");
  Question<int64_t*> strides = in_torch<Question<int64_t*>>("libtorch_cpu.so", "aoti_torch_get_strides");
  Question<void*> data = in_torch<Question<void*>>("libtorch_cpu.so", "aoti_torch_get_data_ptr");
  int (*size)(const void*, int64_t, int64_t*) = in_torch<int (*)(const void*, int64_t, int64_t*)>("libtorch_cpu.so", "aoti_torch_get_size");
};
const Questions& questions() {
  static const Questions* const all = new Questions;
  return *all;
}

template <class Answer>
Answer ask(Questions::Question<Answer> question, const void* tensor, Answer otherwise) {
  Answer answer;
  return question && tensor && question(tensor, &answer) == 0 ? answer : otherwise;
}

int64_t selected_of(int64_t count) {
  if (count > 0) assumed_sizes().note();
  return static_cast<int64_t>(static_cast<double>(count) * config().selected);
}

// How many elements of a tensor are not zero; -1: not all bytes from its first to its last element are known, or there are too many.
// A mask is often a view: expanded to the shape of what it selects from, or a slice.
int64_t count_known(const void* tensor) {
  struct Dimension {
    int64_t size, stride, at;
  };
  int64_t num_dimensions = ask<int64_t>(questions().dimensions, tensor, -1), repeated = 1, last = 0, count = 1;
  auto* sizes = ask<int64_t*>(questions().sizes, tensor, nullptr);
  auto* strides = ask<int64_t*>(questions().strides, tensor, nullptr);
  unsigned each = type_bytes(ask<int32_t>(questions().type, tensor, kAnyType));
  if (!each || num_dimensions < 0 || (num_dimensions && (!sizes || !strides))) return -1;
  std::vector<Dimension> steps;
  for (int64_t i = 0; i < num_dimensions; i++) {
    if (strides[i] < 0) return -1;
    if (strides[i] == 0) {
      repeated *= sizes[i];
      continue;
    }
    last += (sizes[i] - 1) * strides[i];
    count *= sizes[i];
    steps.push_back({sizes[i], strides[i], 0});
  }
  constexpr int64_t most = kMostCounted;
  if (last >= most || count > most) return -1;
  uint64_t first = number(ask<void*>(questions().data, tensor, nullptr)), bytes = static_cast<uint64_t>(last + 1) * each;
  if (bytes > kMostCounted || !is_known(first, bytes)) return -1;
  std::vector<char> known(bytes);
  read_known(known.data(), first, bytes);
  int64_t found = 0, offset = 0;
  for (int64_t i = 0; i < count; i++) {
    const char* element = &known[static_cast<uint64_t>(offset) * each];
    found += std::any_of(element, element + each, [](char one) { return one != 0; });
    for (size_t at = steps.size(); at-- > 0;) {
      offset += steps[at].stride;
      if (++steps[at].at < steps[at].size) break;
      offset -= steps[at].size * steps[at].stride;
      steps[at].at = 0;
    }
  }
  return found * repeated;
}

int64_t count_not_zero(const void* tensor) {
  if (told_count() >= 0) return told_count();
  int64_t count = ask<int64_t>(questions().count, tensor, -1);
  if (count <= 0) return count;
  int64_t found = count_known(tensor);
  return found >= 0 ? found : selected_of(count);
}

}  // namespace

void read_back(void* host, uint64_t device, uint64_t bytes) {
  if (t_count >= 0 && (bytes == 4 || bytes == 8)) {  // how many are not zero
    memcpy(host, &t_count, bytes);
    return;
  }
  if (read_known(host, device, bytes, ask<int32_t>(questions().type, t_source, kAnyType))) return;
  if (bytes == 1 && is_agreed()) *static_cast<char*>(host) = 1;
  else reads().note();
}

std::string facts() {
  std::string result = "{\"read_backs\": {" + reads().json() + "}, \"assumed_sizes\": {\"fraction\": " + std::to_string(config().selected) + ", ";
  result += assumed_sizes().json() + "}, \"forgotten_bytes\": " + std::to_string(forgotten_bytes()) + ", \"refused\": [";
  std::vector<std::string> names = refused();
  for (size_t i = 0; i < names.size(); i++) result += (i ? ", " : "") + quoted(names[i]);
  return result + "], \"scratch\": " + scratch_facts() + "}";
}

}  // namespace phantom

using namespace phantom;

// For the recorder: what a trace is to hold about its device, as JSON. The text belongs to the caller's thread until it asks again.
API const char* memdiag_phantom_facts() {
  static thread_local std::string t_text;
  t_text = facts();
  return t_text.c_str();
}

struct Scalar {  // c10::Scalar, of which only matters that it is returned in memory
  ~Scalar() {}
  char bytes[32];
};

API void* memdiag_phantom_copy(void* to, const void* from, bool is_non_blocking) __asm__("_ZN2at6native5copy_ERNS_6TensorERKS1_b");
API void* memdiag_phantom_copy(void* to, const void* from, bool is_non_blocking) {
  static const auto original = in_torch<void* (*)(void*, const void*, bool)>("libtorch_cpu.so", "_ZN2at6native5copy_ERNS_6TensorERKS1_b");
  During<const void*> reading(t_source, from);
  return original(to, from, is_non_blocking);
}

Scalar memdiag_phantom_scalar(const void* tensor) __asm__("_ZN2at6native24_local_scalar_dense_cudaERKNS_6TensorE");
__attribute__((visibility("default"))) Scalar memdiag_phantom_scalar(const void* tensor) {
  static const auto original = in_torch<Scalar (*)(const void*)>("libtorch_cuda.so", "_ZN2at6native24_local_scalar_dense_cudaERKNS_6TensorE");
  During<const void*> reading(t_source, tensor);
  return original(tensor);
}

API void* memdiag_phantom_nonzero(const void* tensor, void* out) __asm__("_ZN2at6native16nonzero_out_cudaERKNS_6TensorERS1_");
API void* memdiag_phantom_nonzero(const void* tensor, void* out) {
  static const auto original = in_torch<void* (*)(const void*, void*)>("libtorch_cuda.so", "_ZN2at6native16nonzero_out_cudaERKNS_6TensorERS1_");
  During<int64_t> counting(t_count, count_not_zero(tensor));
  return original(tensor, out);
}

struct ThreeTensors {  // std::tuple<at::Tensor, at::Tensor, at::Tensor>, likewise
  ~ThreeTensors() {}
  void* tensors[3];
};

int64_t count_unlike(const void* tensor) {
  return told_count() >= 0 ? told_count() : selected_of(ask<int64_t>(questions().count, tensor, -1));
}

ThreeTensors memdiag_phantom_unique(const void*, bool, bool, bool) __asm__("_ZN2at6native13_unique2_cudaERKNS_6TensorEbbb");
__attribute__((visibility("default"))) ThreeTensors memdiag_phantom_unique(const void* tensor, bool is_sorted, bool with_inverse, bool with_counts) {
  static const auto original = in_torch<ThreeTensors (*)(const void*, bool, bool, bool)>("libtorch_cuda.so", "_ZN2at6native13_unique2_cudaERKNS_6TensorEbbb");
  During<int64_t> counting(t_count, count_unlike(tensor));
  return original(tensor, is_sorted, with_inverse, with_counts);
}

struct TwoTensors {  // std::tuple<at::Tensor, at::Tensor>, likewise
  ~TwoTensors() {}
  void* tensors[2];
};

TwoTensors memdiag_phantom_unique_of_isin(const void*, bool, bool) __asm__("_ZN2at6native12_unique_cudaERKNS_6TensorEbb");
__attribute__((visibility("default"))) TwoTensors memdiag_phantom_unique_of_isin(const void* tensor, bool is_sorted, bool with_inverse) {
  static const auto original = in_torch<TwoTensors (*)(const void*, bool, bool)>("libtorch_cuda.so", "_ZN2at6native12_unique_cudaERKNS_6TensorEbb");
  During<int64_t> counting(t_count, count_unlike(tensor));
  return original(tensor, is_sorted, with_inverse);
}

int64_t count_unlike_along(const void* tensor, int64_t dimension) {
  int64_t size = -1;
  if (told_count() >= 0 || !questions().size || questions().size(tensor, dimension, &size) != 0) return told_count();
  return selected_of(size);
}

struct OneTensor {  // at::Tensor, likewise
  ~OneTensor() {}
  void* tensor;
};

OneTensor memdiag_phantom_coalesce(const void*) __asm__("_ZN2at6native21_coalesce_sparse_cudaERKNS_6TensorE");
__attribute__((visibility("default"))) OneTensor memdiag_phantom_coalesce(const void* tensor) {
  static const auto original = in_torch<OneTensor (*)(const void*)>("libtorch_cuda.so", "_ZN2at6native21_coalesce_sparse_cudaERKNS_6TensorE");
  static const auto places_of = in_torch<int64_t (*)(const void*)>("libtorch_cpu.so", "_ZN2at4_ops4_nnz4callERKNS_6TensorE");
  During<int64_t> counting(t_count, places_of ? selected_of(places_of(tensor)) : -1);
  return original(tensor);
}

ThreeTensors memdiag_phantom_unique_dim(const void*, int64_t, bool, bool, bool) __asm__("_ZN2at6native15unique_dim_cudaERKNS_6TensorElbbb");
__attribute__((visibility("default"))) ThreeTensors memdiag_phantom_unique_dim(const void* tensor, int64_t dimension, bool is_sorted, bool with_inverse,
                                                                               bool with_counts) {
  static const auto original =
      in_torch<ThreeTensors (*)(const void*, int64_t, bool, bool, bool)>("libtorch_cuda.so", "_ZN2at6native15unique_dim_cudaERKNS_6TensorElbbb");
  During<int64_t> counting(t_count, count_unlike_along(tensor, dimension));
  return original(tensor, dimension, is_sorted, with_inverse, with_counts);
}

struct Dimension {  // std::optional<int64_t>, which is passed like these two
  int64_t number;
  bool is_given;
};

ThreeTensors memdiag_phantom_consecutive(const void*, bool, bool, Dimension) __asm__("_ZN2at6native23unique_consecutive_cudaERKNS_6TensorEbbSt8optionalIlE");
__attribute__((visibility("default"))) ThreeTensors memdiag_phantom_consecutive(const void* tensor, bool with_inverse, bool with_counts, Dimension dimension) {
  static const auto original = in_torch<ThreeTensors (*)(const void*, bool, bool, Dimension)>("libtorch_cuda.so", "_ZN2at6native23unique_consecutive_cudaERKNS_6TensorEbbSt8optionalIlE");
  During<int64_t> counting(t_count, dimension.is_given ? count_unlike_along(tensor, dimension.number) : count_unlike(tensor));
  return original(tensor, with_inverse, with_counts, dimension);
}
