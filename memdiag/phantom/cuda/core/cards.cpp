#include "cards.h"

#include "../../shared/cards.h"

namespace phantom {

int card_of(int device) { return cards_behind("CUDA_VISIBLE_DEVICES", device); }
bool is_card_shared() { return cards_are_shared() != 0; }
bool set_on_card(int card, uint64_t bytes, uint64_t total) { return cards_set(card, bytes, total) != 0; }
uint64_t of_others(int card) { return cards_of_others(card); }

std::vector<Share> shares_of(int card) {
  int64_t pids[CARDS_SLOTS];
  uint64_t bytes[CARDS_SLOTS];
  int count = cards_are_shared() ? cards_processes(card, pids, bytes, CARDS_SLOTS) : 0;
  std::vector<Share> found;
  for (int i = 0; i < count; i++) found.push_back({static_cast<unsigned>(pids[i]), bytes[i]});
  return found;
}

}  // namespace phantom
