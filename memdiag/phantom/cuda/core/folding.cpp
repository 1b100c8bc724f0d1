// isfinite(x) is (x == x) * (abs(x) != inf), isinf(x) is abs(x) == inf, isnan(x) is x != x; then comes all() or any(). So four answers are
// enough: a comparison with infinity, of a tensor with itself, the product of two answers, and that all of any bools are true.
#include "folding.h"

#include <math.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "memory.h"
#include "values.h"

namespace phantom {
namespace {

constexpr uint64_t kMost = 64 << 20;  // bools that are multiplied
constexpr int kEqual = 0;             // of CompareEqFunctor; the other is "not equal"

bool holds(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

void write(uint64_t output, uint64_t count, bool value) {
  char byte = value ? 1 : 0;
  write_pattern(output, &byte, 1, count);
}

bool multiply(uint64_t output, uint64_t first, uint64_t second, uint64_t count) {
  if (count > kMost || !is_known(first, count) || !is_known(second, count)) return false;
  std::vector<char> one(count), other(count);
  read_known(one.data(), first, count);
  read_known(other.data(), second, count);
  for (uint64_t i = 0; i < count; i++) one[i] = one[i] && other[i];
  write_host(output, one.data(), count);
  return true;
}

}  // namespace

Question question_of(const std::string& kernel) {
  if (holds(kernel, "reduce_kernel<") && holds(kernel, "and_kernel_cuda(")) return Question::kAll;
  if (!holds(kernel, "vectorized_elementwise_kernel<")) return Question::kNone;
  if (holds(kernel, "BinaryFunctor<bool, bool, bool, at::native::binary_internal::MulFunctor<bool> >")) return Question::kBoth;
  size_t at = kernel.find("CompareEqFunctor<");
  if (at == std::string::npos) return Question::kNone;
  if (holds(kernel, "BinaryFunctor<")) return Question::kCompareTensors;
  std::string type = kernel.substr(at + strlen("CompareEqFunctor<"), 16);
  if (type.compare(0, 6, "double") == 0) return Question::kCompareWithDouble;
  if (type.compare(0, 9, "c10::Half") == 0) return Question::kCompareWithHalf;
  if (type.compare(0, 13, "c10::BFloat16") == 0) return Question::kCompareWithBFloat16;
  return type.compare(0, 5, "float") == 0 ? Question::kCompareWithNumber : Question::kNone;
}

bool answer(Question question, void** arguments) {
  uint64_t count = static_cast<uint64_t>(std::max(*static_cast<int*>(arguments[0]), 0));
  const char* functor = static_cast<const char*>(arguments[1]);
  auto* data = static_cast<const uint64_t*>(arguments[2]);
  if (question == Question::kBoth) return multiply(data[0], data[1], data[2], count);
  int operation;
  memcpy(&operation, functor, sizeof operation);
  if (question == Question::kCompareTensors) {
    if (data[1] != data[2]) return false;
    write(data[0], count, operation == kEqual);
    return true;
  }
  double number = 0;  // with which is compared
  if (question == Question::kCompareWithDouble) memcpy(&number, functor + 8, 8);
  else {
    float narrow;  // the number itself, or widened from 16 bits
    uint16_t half;
    memcpy(&narrow, functor + 4, 4);
    memcpy(&half, functor + 4, 2);
    uint16_t infinity = question == Question::kCompareWithHalf ? 0x7c00 : question == Question::kCompareWithBFloat16 ? 0x7f80 : 0;
    number = infinity && (half & 0x7fff) == infinity ? HUGE_VAL : static_cast<double>(narrow);
  }
  if (!isinf(number) || is_known(data[1], count)) return false;  // made-up values are finite, those of the program may be infinite
  write(data[0], count, operation != kEqual);
  return true;
}

void answer_all(uint64_t output) {
  uint64_t end = block_end(output);
  if (end > output && end - output <= 512) write(output, end - output, true);  // a tensor of its own, not a part of another
}

}  // namespace phantom
