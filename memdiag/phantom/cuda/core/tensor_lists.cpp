// The table, as in PyTorch's MultiTensorApply.cuh (n lists of at most M tensors, B blocks of threads at most):
//
//     const void* addresses[n][M]; int64_t numel[M]; (T number[M] or const void* counter[M]); index block_to_tensor[B]; …
//
// M, B and the type of an index depend on the version of CUDA that PyTorch was built with; torch 2.11 has small tables with CUDA 13, too. The
// form is recognised by block_to_tensor: its first number is 0, and each number is equal to the one before it or one larger.
#include "tensor_lists.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "abi.h"
#include "memory.h"

namespace phantom {
namespace {

constexpr unsigned kMostLists = 5;

struct Form {
  size_t most[kMostLists];  // tensors, by the number of lists
  size_t most_with_numbers; // the same for one list with a number for each tensor
  size_t most_blocks, index_bytes;
};
constexpr Form kForms[] = {
#if PHANTOM_CUDA_13
    {{770, 448, 336, 252, 210}, 672, 2240, 2},
#endif
    {{110, 64, 48, 36, 30}, 96, 320, 1},
};

size_t bytes_of_number(const std::string& type) {
  for (const char* eight : {"double", "long", "c10::complex<float>"})
    if (type == eight) return 8;
  return type == "float" || type == "int" ? 4 : 0;
}

// Where a list of template arguments that begins at `at` ends.
size_t end_of(const std::string& name, size_t at) {
  for (int depth = 0; at < name.size(); at++) {
    if (name[at] == '<') depth++;
    else if (name[at] == '>' && --depth < 0) break;
  }
  return at;
}

// Of a functor <type, lists, lists read, list written>: the last.
int list_written(const std::string& name, size_t behind) {
  constexpr const char* kFunctor = "Functor<";
  size_t at = name.find(kFunctor, behind);
  if (at == std::string::npos) return -1;
  at += strlen(kFunctor);
  std::string inside = name.substr(at, end_of(name, at) - at);
  size_t last = inside.rfind(", "), before = last ? inside.rfind(", ", last - 1) : std::string::npos;
  if (last == std::string::npos || before == std::string::npos || std::count(inside.begin() + before, inside.end(), ',') != 2) return -1;
  std::string number = inside.substr(last + 2), read = inside.substr(before + 2, last - before - 2);
  bool is_number = number.size() == 1 && read.size() == 1 && isdigit(number[0]) && isdigit(read[0]);
  return is_number ? number[0] - '0' : -1;
}

uint64_t index_at(const char* place, size_t bytes) {
  uint64_t found = 0;
  memcpy(&found, place, bytes);
  return found;
}

bool words_of_form(const Form& form, const TensorLists& lists, const void* table, uint64_t end, unsigned num_blocks, std::vector<uint64_t>& words) {
  bool has_numbers = lists.depth == 1 && lists.each_bytes;
  size_t most = has_numbers ? form.most_with_numbers : form.most[lists.depth - 1];
  auto* addresses = static_cast<const uint64_t*>(table);
  auto* numel = reinterpret_cast<const int64_t*>(addresses + lists.depth * most);
  const char* of_blocks = reinterpret_cast<const char*>(numel + most) + most * lists.each_bytes;
  if (!num_blocks || num_blocks > form.most_blocks || number(of_blocks) + form.most_blocks * form.index_bytes > end) return false;
  uint64_t last = 0;
  if (index_at(of_blocks, form.index_bytes) != 0) return false;
  for (unsigned block = 1; block < num_blocks; block++) {
    uint64_t next = index_at(of_blocks + block * form.index_bytes, form.index_bytes);
    if (next != last && next != last + 1) return false;
    last = next;
  }
  if (last >= most) return false;
  for (uint64_t tensor = 0; tensor <= last; tensor++) {
    if (numel[tensor] <= 0) return false;
    for (unsigned list = 0; list < lists.depth; list++)
      if (uint64_t address = addresses[list * most + tensor]; address && !is_device(address)) return false;
  }
  for (unsigned list = 0; list < lists.depth && !lists.is_read; list++)
    if (lists.written < 0 || lists.written == static_cast<int>(list))
      for (uint64_t tensor = 0; tensor <= last; tensor++)
        if (uint64_t address = addresses[list * most + tensor]) words.push_back(address);
  return true;
}

}  // namespace

TensorLists tensor_lists_of(const std::string& kernel) {
  TensorLists found;
  if (kernel.find("multi_tensor_apply_kernel<") == std::string::npos) return found;
  struct { const char* name; bool has_type; size_t each_bytes; } tables[] = {
      {"FusedOptimizerTensorListMetadata<", false, 8}, {"TensorListScalarListMetadata<", true, 0}, {"TensorListMetadata<", false, 0}};
  for (const auto& table : tables) {
    size_t at = kernel.find(table.name);
    if (at == std::string::npos) continue;
    at += strlen(table.name);
    size_t end = end_of(kernel, at), comma = table.has_type ? kernel.rfind(',', end) : std::string::npos;
    found.each_bytes = table.each_bytes;
    if (table.has_type) {
      if (comma == std::string::npos || comma < at) return found;
      found.each_bytes = bytes_of_number(kernel.substr(at, comma - at));
      if (!found.each_bytes) return found;
      at = comma + 1;
    }
    unsigned long depth = strtoul(kernel.c_str() + at, nullptr, 10);
    found.depth = depth <= kMostLists ? static_cast<unsigned>(depth) : 0;
    found.is_read = kernel.find("LpNormFunctor<", end) != std::string::npos || kernel.find("LpMaxFunctor<", end) != std::string::npos;
    found.written = list_written(kernel, end);
    if (found.written >= static_cast<int>(found.depth)) found.written = -1;
    return found;
  }
  return found;
}

bool words_of_lists(const TensorLists& lists, const void* table, uint64_t end, unsigned num_blocks, std::vector<uint64_t>& words) {
  for (const Form& form : kForms)
    if (words_of_form(form, lists, table, end, num_blocks, words)) return true;
  return false;
}

}  // namespace phantom
