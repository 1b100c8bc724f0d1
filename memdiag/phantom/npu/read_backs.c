/* What the program read back of results of operators, which were made up, and sizes that were assumed because they depend on such results:
 * how often, and the first places in the program.
 *
 * memdiag's recorder asks for it through memdiag_phantom_facts when it writes a trace, and puts it there.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PLACES = 12, LONGEST = 512 };

typedef struct {
  struct {
    char where[LONGEST];
    uint64_t count;
  } place[MOST_PLACES];
  char last[LONGEST];
  int num_places;
  uint64_t count;
} places_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static places_t reads, sizes;

static void note(places_t *places) {
  char where[LONGEST];
  if (python_place(where, sizeof where)) return;
  if (!*where) snprintf(where, sizeof where, "a call outside of Python");
  pthread_mutex_lock(&lock);
  places->count++;
  memcpy(places->last, where, sizeof where);
  int i = 0;
  while (i < places->num_places && strcmp(places->place[i].where, where)) i++;
  if (i < MOST_PLACES) {
    if (i == places->num_places) memcpy(places->place[places->num_places++].where, where, sizeof where);
    places->place[i].count++;
  }
  pthread_mutex_unlock(&lock);
}

void note_read_back(void) { note(&reads); }
void note_assumed_size(void) { note(&sizes); }

static size_t quote(char *to, const char *text) {
  size_t length = 0;
  to[length++] = '"';
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') to[length++] = '\\';
    if ((unsigned char)*text >= ' ') to[length++] = *text;
  }
  to[length++] = '"';
  return length;
}

static size_t as_json(char *text, const places_t *places) {
  size_t at = (size_t)sprintf(text, "\"count\": %llu, \"places\": [", (unsigned long long)places->count);
  for (int i = 0; i < places->num_places; i++) {
    at += (size_t)sprintf(text + at, "%s{\"where\": ", i ? ", " : "");
    at += quote(text + at, places->place[i].where);
    at += (size_t)sprintf(text + at, ", \"count\": %llu}", (unsigned long long)places->place[i].count);
  }
  at += (size_t)sprintf(text + at, "], \"last\": ");
  return at + quote(text + at, places->last);
}

/* JSON; the text belongs to the caller's thread until it asks again. */
EXPORT const char *memdiag_phantom_facts(void) {
  static __thread char text[2 * (MOST_PLACES + 1) * (2 * LONGEST + 64) + 32768];
  pthread_mutex_lock(&lock);
  size_t at = (size_t)sprintf(text, "{\"read_backs\": {");
  at += as_json(text + at, &reads);
  at += (size_t)sprintf(text + at, "}, \"assumed_sizes\": {\"fraction\": %g, ", settings()->selected);
  at += as_json(text + at, &sizes);
  pthread_mutex_unlock(&lock);
  at += (size_t)sprintf(text + at, "}, \"forgotten_bytes\": %llu, \"refused\": [", (unsigned long long)forgotten_bytes());
  at += refused_names(text + at, sizeof text - at - 8);
  snprintf(text + at, sizeof text - at, "]}");
  return text;
}
