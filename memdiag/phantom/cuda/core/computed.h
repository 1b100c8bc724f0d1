// What the part of memdiag inside the program says of the operator that a thread is at (see computed.cpp).
#pragma once
#include <stdint.h>

#include <utility>
#include <vector>

namespace phantom {

bool is_within_operator();
bool made_by_operator(uint64_t block);  // by a block's number, within an operator
std::vector<std::pair<uint64_t, uint64_t>> written_by_operator(uint64_t begin, uint64_t end);  // the parts of it, within an operator
bool is_agreed();      // a condition that is not known reads as true
int64_t told_count();  // how many elements it will find; -1: that is not known

}  // namespace phantom
