// The cards that this process shares with others of the same recording. Callers hold the lock of the memory.
#pragma once
#include <stdint.h>

#include <vector>

namespace phantom {

struct Share {
  unsigned pid;
  uint64_t bytes;
};

int card_of(int device);
bool is_card_shared();
bool set_on_card(int card, uint64_t bytes, uint64_t total);  // false: the sum of all processes would exceed the total
uint64_t of_others(int card);
std::vector<Share> shares_of(int card);  // of every process that has memory there; empty if the card is not shared

}  // namespace phantom
