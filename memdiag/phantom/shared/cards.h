/* Cards that several processes share: how much each process has on each card, in a file that all of them map.
 *
 * memdiag creates the file for one recording and names it in MEMDIAG_PHANTOM_CARDS; without it a process is alone on its cards. Every
 * process owns one slot and writes only there, so a process that is killed at any moment leaves nothing half written. It holds a record
 * lock on its slot as long as it lives: the kernel releases the lock with the process, and a slot without a lock counts as empty. Another
 * lock makes looking and taking one step, so the sum never exceeds the card.
 *
 * The callers serialise the threads of a process: record locks do not.
 */
#ifndef MEMDIAG_PHANTOM_CARDS_H
#define MEMDIAG_PHANTOM_CARDS_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CARDS_MOST = 64, CARDS_SLOTS = 256 };

typedef struct {
  int64_t pid;
  uint64_t bytes[CARDS_MOST];
} cards_slot_t;

typedef struct {
  int is_open, descriptor, own; /* the descriptor is never closed: closing it would release the locks */
  pid_t pid;                    /* the process that owns the slot: a child of fork has another one */
  cards_slot_t *slots;
} cards_t;

static cards_t cards_state = {0, -1, -1, 0, NULL};

/* The locks of the file: byte 0 for looking and taking, byte 1 + i for slot i. */
static int cards_lock(int command, int type, int byte, struct flock *found) {
  struct flock lock;
  memset(&lock, 0, sizeof lock);
  lock.l_type = (short)type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int failed = fcntl(cards_state.descriptor, command, &lock);
  if (found) *found = lock;
  return failed;
}
static void cards_enter(void) { cards_lock(F_SETLKW, F_WRLCK, 0, NULL); }
static void cards_leave(void) { cards_lock(F_SETLK, F_UNLCK, 0, NULL); }

static int cards_is_alive(int slot) {
  if (slot == cards_state.own) return 1;
  struct flock found;
  return cards_lock(F_GETLK, F_WRLCK, 1 + slot, &found) == 0 && found.l_type != F_UNLCK;
}

static void cards_map(void) {
  const char *path = getenv("MEMDIAG_PHANTOM_CARDS");
  if (!path || !*path) return;
  int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return; /* a process that outlives the recording is alone */
  void *slots = mmap(NULL, CARDS_SLOTS * sizeof(cards_slot_t), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (slots == MAP_FAILED) {
    close(descriptor);
    return;
  }
  cards_state.descriptor = descriptor;
  cards_state.slots = (cards_slot_t *)slots;
}

/* Whether this process shares its cards with others. */
static int cards_are_shared(void) {
  if (!cards_state.is_open) {
    cards_state.is_open = 1;
    cards_map();
  }
  return cards_state.slots != NULL;
}

/* Gives this process a slot; call it between cards_enter and cards_leave. */
static int cards_join(void) {
  if (cards_state.pid == getpid()) return cards_state.own >= 0;
  cards_state.pid = getpid();
  cards_state.own = -1;
  for (int slot = 0; slot < CARDS_SLOTS; slot++) {
    if (cards_lock(F_SETLK, F_WRLCK, 1 + slot, NULL) != 0) continue;
    memset(&cards_state.slots[slot], 0, sizeof(cards_slot_t));
    cards_state.slots[slot].pid = cards_state.pid;
    cards_state.own = slot;
    return 1;
  }
  fprintf(stderr, "memdiag: more than %d processes share the simulated cards: no memory is left for this one\n", CARDS_SLOTS);
  return 0;
}

static uint64_t cards_sum_of_others(int card) {
  uint64_t sum = 0;
  int own = cards_state.pid == getpid() ? cards_state.own : -1;
  for (int slot = 0; slot < CARDS_SLOTS; slot++) {
    if (slot != own && cards_state.slots[slot].bytes[card] && cards_is_alive(slot)) sum += cards_state.slots[slot].bytes[card];
  }
  return sum;
}

/* Sets what this process has on a card, unless the sum of all processes would exceed the card: returns whether it did. */
static int cards_set(int card, uint64_t bytes, uint64_t total) {
  cards_enter();
  int fits = cards_join();
  if (fits) {
    uint64_t *own = &cards_state.slots[cards_state.own].bytes[card];
    uint64_t others = bytes > *own ? cards_sum_of_others(card) : 0;
    fits = bytes <= *own || (others <= total && bytes <= total - others);
    if (fits) *own = bytes;
  }
  cards_leave();
  return fits;
}

/* What other processes have on a card. */
static uint64_t cards_of_others(int card) {
  cards_enter();
  uint64_t sum = cards_sum_of_others(card);
  cards_leave();
  return sum;
}

/* The processes that have memory on a card, at most `most` of them: returns how many there are. */
static int cards_processes(int card, int64_t *pids, uint64_t *bytes, int most) {
  int count = 0;
  cards_enter();
  for (int slot = 0; slot < CARDS_SLOTS; slot++) {
    uint64_t size = cards_state.slots[slot].bytes[card];
    if (!size || !cards_is_alive(slot)) continue;
    if (count < most) {
      pids[count] = cards_state.slots[slot].pid;
      bytes[count] = size;
    }
    count++;
  }
  cards_leave();
  return count;
}

/* The card behind a device number of this process, by the variable that selects the visible devices. */
static int cards_behind(const char *variable, int device) {
  const char *text = getenv(variable);
  for (int at = 0; text && *text; at++) {
    char *end = NULL;
    long card = strtol(text, &end, 10);
    if (end == text || (*end && *end != ',') || card < 0 || card >= CARDS_MOST) return device; /* not a list of numbers */
    if (at == device) return (int)card;
    text = *end ? end + 1 : end;
  }
  return device;
}

#endif
