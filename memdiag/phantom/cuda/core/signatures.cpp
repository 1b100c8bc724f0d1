// A kernel's name, demangled, lists the types of its parameters. A pointer to const is read; so is a tensor description of const
// elements. Of some kernels of PyTorch more is known:
//
//     lpnorm_cleanup<…>(const T* norms, TensorListAddresses outputs, int)                one output for each block of threads
//     vectorized_elementwise_kernel<…>(int N, functor f, array<char*, K> data)          data[0] is the output, the others are inputs
//     unrolled_elementwise_kernel<…>(int N, functor f, array<char*, K> data, …)         the same
//
// With FillFunctor<T> the functor is the value itself, so that torch.full and its like can be read back.
#include "signatures.h"

#include <cxxabi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "config.h"

namespace phantom {
namespace {

// Kernels whose parameters do not tell what they write.
constexpr struct { const char* name; int output; } kOutputs[] = {
    {"vectorized_elementwise_kernel<", 2}, {"unrolled_elementwise_kernel<", 2}, {"vectorized_gather_kernel<", 0},
};
// The first parameter lists the tensors, the others are settings, the scale of gradients, and whether one is infinite: none is.
constexpr const char* kWriteFirst[] = {"FusedAdamMathFunctor<", "FusedSgdMathFunctor<", "FusedAdagradMathFunctor<",
                                       "amp_foreach_non_finite_check_and_unscale_cuda_"};
// With found_inf at zero, as it is here, a gradient scaler leaves its scale as it is but for growing it every 2000 steps.
constexpr const char* kWriteNothing[] = {"amp_update_scale_cuda_kernel("};

// Of attention, as in PyTorch's kernel_forward.h and kernel_backward.h and in flash.h: one structure of several hundred bytes, whose size
// the name does not tell. In Flash_bwd_params, the words before these are those of Flash_fwd_params, with the lengths of sequences.
constexpr struct { const char* type; WordsInside inside; } kStructures[] = {
    {"PyTorchMemEffAttention::AttentionKernel<", {8, 3}}, {"PyTorchMemEffAttention::AttentionBackwardKernel<", {10, 7}},
    {"Flash_fwd_params", {14, 8}}, {"Flash_bwd_params", {46, 36}},
};

unsigned bytes_of(const std::string& type) {
  for (const char* one : {"bool", "signed char", "unsigned char"})
    if (type == one) return 1;
  for (const char* two : {"short", "unsigned short", "c10::Half", "c10::BFloat16"})
    if (type == two) return 2;
  for (const char* four : {"int", "unsigned int", "float"})
    if (type == four) return 4;
  for (const char* eight : {"long", "unsigned long", "long long", "unsigned long long", "double"})
    if (type == eight) return 8;
  return 0;
}

bool holds(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The array of std, or of PyTorch's own up to 2.5.
bool is_of_one(const std::string& name) { return holds(name, "std::array<char*, 1ul>") || holds(name, "at::detail::Array<char*, 1>"); }

// The texts between the commas of the last pair of parentheses that stand in no bracket.
std::vector<std::string> parameters(const std::string& name) {
  std::vector<std::string> found;
  if (name.empty() || name.back() != ')') return found;
  int depth = 0;
  size_t end = name.size() - 1;
  for (size_t at = end + 1; at-- > 0;) {
    char one = name[at];
    if (one == ')' || one == '>' || one == ']' || one == '}') depth++;
    else if (one == '(' || one == '<' || one == '[' || one == '{') depth--;
    bool is_first = depth == 0 && one == '(';
    if (!is_first && !(depth == 1 && one == ',')) continue;
    std::string text = name.substr(at + 1, end - at - 1);
    found.insert(found.begin(), text.substr(text.find_first_not_of(' ') == std::string::npos ? 0 : text.find_first_not_of(' ')));
    end = at;
    if (is_first) break;
  }
  return depth == 0 ? found : std::vector<std::string>();
}

// Whether the name of a type, without its parameters, ends with this.
bool is_named(const std::string& type, const char* name) {
  size_t end = std::min(type.find('<'), type.size()), length = strlen(name);
  return end >= length && type.compare(end - length, length, name) == 0;
}

// A structure without pointers or with pointers that are only read, or an iterator of thrust whose pointers are to const elements: the masks
// and flags of cub.
bool is_read(const std::string& type) {
  for (const char* plain : {"::plus", "::__identity", "::NullType", "::GridEvenShare", "::PhiloxCudaState", "::CatArrInputTensorMetadata",
                            "::TensorSizeStride"})
    if (is_named(type, plain)) return true;
  if ((!is_named(type, "_iterator") && !is_named(type, "InputIterator")) || type.back() != '>') return false;  // the latter in CUDA 12
  for (size_t at = type.find('*'); at != std::string::npos; at = type.find('*', at + 1))
    if (at < 6 || type.compare(at - 5, 5, "const") != 0) return false;
  return true;
}

// A pointer, or a structure that begins with one and has no other.
bool is_one_pointer(const std::string& type) {
  if (!type.empty() && type.back() == '*') return true;
  for (const char* name : {"::ScanTileState", "::vsmem_t", "::TensorInfo", "::GenericPackedTensorAccessor", "::PackedTensorAccessor32",
                           "::PackedTensorAccessor64"})
    if (is_named(type, name)) return true;
  return false;
}

bool may_be_written(const std::string& type) {
  if (bytes_of(type) || is_read(type)) return false;
  size_t length = type.size();
  bool is_pointer = length && type[length - 1] == '*';
  if (is_pointer) return length < 7 || type.compare(length - 6, 6, "const*") != 0;
  for (const char* description : {"TensorInfo<", "TensorAccessor<", "TensorAccessor32<", "TensorAccessor64<"}) {
    size_t at = type.find(description);
    if (at == std::string::npos) continue;
    size_t first = at + strlen(description), comma = type.find(',', first);
    if (comma != std::string::npos && comma > first + 6 && type.compare(comma - 6, 6, " const") == 0) return false;
  }
  return true;
}

}  // namespace

Signature read_signature(const char* mangled_name) {
  Signature found;
  int status = 0;
  char* text = abi::__cxa_demangle(mangled_name, nullptr, nullptr, &status);
  if (!text) return found;
  std::string name = text;
  free(text);
  if (config().is_talkative) fprintf(stderr, "memdiag: kernel %s\n", name.c_str());
  for (const char* kernel : kWriteNothing)
    if (holds(name, kernel)) {
      found.is_known = true;
      return found;
    }
  for (const auto& known : kOutputs)
    if (holds(name, known.name)) found.output = known.output;
  found.is_reduction = holds(name, "reduce_kernel<") && holds(name, "ReduceOp<");
  found.is_elementwise = holds(name, "::elementwise_kernel<") && holds(name, "gpu_kernel_impl");
  found.lists = tensor_lists_of(name);
  found.asked = asked_by(name);
  constexpr const char* fill = "FillFunctor<";
  size_t at = name.find(fill);
  if (found.output == 2 && at != std::string::npos && is_of_one(name)) {
    at += strlen(fill);
    found.fill_bytes = bytes_of(name.substr(at, name.find('>', at) - at));
  }
  for (const std::string& type : parameters(name)) {
    if (is_named(type, "::TensorListAddresses")) found.addresses = static_cast<int>(found.is_written.size());
    for (const auto& known : kStructures)
      if (found.is_written.empty() && holds(type, known.type)) found.inside = known.inside;
    found.is_written.push_back(may_be_written(type));
    found.is_pointer.push_back(is_one_pointer(type));
  }
  for (const char* functor : kWriteFirst)
    if (holds(name, functor))
      for (size_t i = 1; i < found.is_written.size(); i++) found.is_written[i] = false;
  found.is_known = !found.is_written.empty();
  return found;
}

}  // namespace phantom
