// Kernels that ask whether numbers are finite, worked out as if all were, because made-up values are. So all() of such answers is yes; with
// MEMDIAG_PHANTOM_VALUES=finite, all() of any answers.
#pragma once
#include <stdint.h>

#include <string>

namespace phantom {

enum class Question : char { kNone, kCompareWithNumber, kCompareTensors, kBoth, kAll };

struct Float {
  unsigned bytes = 0;     // of a number; 0: not a floating-point type
  uint64_t exponent = 0;  // its bits, all of which are set if the number is infinite or not a number
};

struct Asked {
  Question question = Question::kNone;
  Float type;  // of the compared numbers
};

Asked asked_by(const std::string& kernel);  // its demangled name

// Writes the answer; false: it is not known, and nothing was written. `arguments` are those of vectorized_elementwise_kernel: a count, a
// functor, addresses of the output and of the inputs. Not for kAll.
bool answer(Asked asked, void** arguments);
void answer_all(uint64_t output, uint64_t input);

}  // namespace phantom
