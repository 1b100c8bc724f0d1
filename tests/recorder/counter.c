/* Counts the allocations and frees of PyTorch's CPU allocator independently of PyTorch; test_counts.py preloads it.

   The allocator calls posix_memalign from libc10.so, and no other function in that library does. Each such call, and
   each free of its memory, is one line of the file named by MEMDIAG_COUNTER: "+ address bytes" or "- address bytes".
   Aligned memory of other libraries (oneDNN's scratch memory, MKL) is only summed: the last line is
   "other calls bytes". */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (1u << 20)

static int (*real_memalign)(void **, size_t, size_t);
static void (*real_free)(void *);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *addresses[SLOTS]; /* open addressing; 1 marks a removed entry */
static size_t sizes[SLOTS];
static FILE *out;
static __thread int inside; /* writing a line may itself allocate and free memory */
static unsigned long other_calls, other_bytes;
static char bootstrap[4096]; /* dlsym may allocate before the real functions are known */

static size_t slot_of(void *address) {
    return ((size_t)address >> 6) * 2654435761u % SLOTS;
}

static void open_once(void) {
    const char *path = getenv("MEMDIAG_COUNTER");
    if (!out && path)
        out = fopen(path, "w");
}

static int is_pytorchs(void *caller) {
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libc10.so");
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    if (!real_memalign)
        real_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    int status = real_memalign(memory, alignment, size);
    if (status)
        return status;
    if (inside)
        return 0;
    int ours = is_pytorchs(__builtin_return_address(0));
    pthread_mutex_lock(&lock);
    inside = 1;
    if (ours) {
        size_t slot = slot_of(*memory);
        while ((size_t)addresses[slot] > 1)
            slot = (slot + 1) % SLOTS;
        addresses[slot] = *memory;
        sizes[slot] = size;
        open_once();
        if (out)
            fprintf(out, "+ %zu %zu\n", (size_t)*memory, size);
    } else {
        other_calls++;
        other_bytes += size;
    }
    inside = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

void free(void *memory) {
    if (!memory || ((char *)memory >= bootstrap && (char *)memory < bootstrap + sizeof bootstrap))
        return;
    if (!real_free)
        real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    if (((size_t)memory & 63) == 0 && !inside) {
        pthread_mutex_lock(&lock);
        inside = 1;
        for (size_t slot = slot_of(memory); addresses[slot]; slot = (slot + 1) % SLOTS)
            if (addresses[slot] == memory) {
                addresses[slot] = (void *)1;
                if (out)
                    fprintf(out, "- %zu %zu\n", (size_t)memory, sizes[slot]);
                break;
            }
        inside = 0;
        pthread_mutex_unlock(&lock);
    }
    real_free(memory);
}

__attribute__((destructor)) static void finish(void) {
    pthread_mutex_lock(&lock);
    inside = 1;
    if (out) {
        fprintf(out, "other %lu %lu\n", other_calls, other_bytes);
        fclose(out);
        out = NULL;
    }
    inside = 0;
    pthread_mutex_unlock(&lock);
}
