// With MEMDIAG_PHANTOM_VALUES=finite: kernels that ask whether numbers are finite, worked out as if all were.
#pragma once
#include <stdint.h>

#include <string>

namespace phantom {

enum class Question : char { kNone, kCompareWithNumber, kCompareWithDouble, kCompareTensors, kBoth, kAll };

Question question_of(const std::string& kernel);  // its demangled name

// Writes the answer; false: it is not known, and nothing was written. `arguments` are those of vectorized_elementwise_kernel: a count, a
// functor, addresses of the output and of the inputs. Not for kAll.
bool answer(Question question, void** arguments);
void answer_all(uint64_t output);

}  // namespace phantom
