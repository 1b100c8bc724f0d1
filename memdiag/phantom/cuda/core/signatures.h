// What the mangled name of a kernel says about its parameters.
#pragma once
#include <vector>

#include "folding.h"
#include "tensor_lists.h"

namespace phantom {

// The part of a structure with the pointers to what is written, in words of 8 bytes. Other pointers in it are to inputs.
struct WordsInside {
  unsigned first = 0, count = 0;
};

struct Signature {
  bool is_known = false;         // is_written says it of each parameter
  std::vector<bool> is_written;  // it is, or may hold, a pointer to what is not const
  std::vector<bool> is_pointer;  // it is one pointer
  int output = -1;               // the one parameter that begins with a pointer to all that is written
  bool is_reduction = false;     // the one parameter is a ReduceOp, see kernels.cpp
  bool is_elementwise = false;   // the second parameter is the lambda of elementwise.h
  TensorLists lists;             // the first parameter is a table of them
  int addresses = -1;            // the parameter that has the address of one output for each block of threads, and old data behind them
  WordsInside inside;            // of the first parameter, a structure
  Asked asked;
  unsigned fill_bytes = 0;       // parameters: a count, a value of so many bytes, where it goes
};

Signature read_signature(const char* mangled_name);

}  // namespace phantom
