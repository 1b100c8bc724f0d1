// Kernels that ask whether numbers are finite, worked out as if all were, because made-up values are. With MEMDIAG_PHANTOM_VALUES=finite,
// the answer to all() is yes, too.
#pragma once
#include <stdint.h>

#include <string>

namespace phantom {

enum class Question : char { kNone, kCompareWithNumber, kCompareWithDouble, kCompareWithHalf, kCompareWithBFloat16, kCompareTensors, kBoth, kAll };

Question question_of(const std::string& kernel);  // its demangled name

// Writes the answer; false: it is not known, and nothing was written. `arguments` are those of vectorized_elementwise_kernel: a count, a
// functor, addresses of the output and of the inputs. Not for kAll.
bool answer(Question question, void** arguments);
void answer_all(uint64_t output);

}  // namespace phantom
