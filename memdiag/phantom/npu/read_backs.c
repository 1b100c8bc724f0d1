/* What the program read back of results of operators, which were made up: how often, and the first places in the program.
 *
 * memdiag's recorder asks for it through memdiag_phantom_facts when it writes a trace, and puts it there.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PLACES = 12, LONGEST = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char where[LONGEST];
  uint64_t count;
} places[MOST_PLACES];
static int num_places;
static uint64_t num_read;

void note_read_back(void) {
  char where[LONGEST];
  python_place(where, sizeof where);
  if (!*where) snprintf(where, sizeof where, "outside of Python");
  pthread_mutex_lock(&lock);
  num_read++;
  int i = 0;
  while (i < num_places && strcmp(places[i].where, where)) i++;
  if (i < MOST_PLACES) {
    if (i == num_places) memcpy(places[num_places++].where, where, sizeof where);
    places[i].count++;
  }
  pthread_mutex_unlock(&lock);
}

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

/* JSON; the text belongs to the caller's thread until it asks again. */
EXPORT const char *memdiag_phantom_facts(void) {
  static __thread char text[MOST_PLACES * (2 * LONGEST + 64) + 32768];
  pthread_mutex_lock(&lock);
  size_t at = (size_t)sprintf(text, "{\"read_backs\": {\"count\": %llu, \"places\": [", (unsigned long long)num_read);
  for (int i = 0; i < num_places; i++) {
    at += (size_t)sprintf(text + at, "%s{\"where\": ", i ? ", " : "");
    at += quote(text + at, places[i].where);
    at += (size_t)sprintf(text + at, ", \"count\": %llu}", (unsigned long long)places[i].count);
  }
  pthread_mutex_unlock(&lock);
  at += (size_t)sprintf(text + at, "]}, \"forgotten_bytes\": %llu, \"refused\": [", (unsigned long long)forgotten_bytes());
  at += refused_names(text + at, sizeof text - at - 8);
  snprintf(text + at, sizeof text - at, "]}");
  return text;
}
