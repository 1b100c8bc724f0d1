/* What the parts of the Ascend stand-in share.
 *
 * torch_npu reaches an NPU through C functions of CANN: libascendcl (memory, streams, copies), libhccl (collectives), libopapi
 * (operators) and a few more. Here these functions are written anew, from their published declarations, for a device that is not
 * there: device memory is a counter with a limit, addresses are real addresses of this process behind which pages appear only where
 * something was written, and operators do nothing. All libraries are one: the others are empty and depend on libascendcl.so.
 */
#ifndef MEMDIAG_PHANTOM_H
#define MEMDIAG_PHANTOM_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Errors of the runtime, as its callers know them. */
enum { OK = 0, BAD_ARGUMENT = 107000, BAD_DEVICE = 107001, NO_CONTEXT = 107002, NOT_SUPPORTED = 207000, OUT_OF_MEMORY = 207001 };

enum { MOST_DEVICES = 64 };
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB) /* the driver hands memory out in pages of this size */

static inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

/* What results of operators read as; docs/phantom.md says it in words. */
typedef enum { ZEROS, ONES, RANDOM, FINITE } values_t;

/* settings.c: what the device is, from MEMDIAG_PHANTOM_NPU_*. */
typedef struct {
  int devices;
  uint64_t total, context, kept, hccl_buffers;
  double selected; /* of what could be selected by data (nonzero, masks): the share that is taken to be */
  values_t values;
  int cube_cores, vector_cores;
  const char *soc, *cann, *driver;
} settings_t;
const settings_t *settings(void);

/* refuse.c: says once on stderr that a function is not imitated, keeps the text for aclGetRecentErrMsg, returns NOT_SUPPORTED. */
int refuse(const char *function, const char *library);

/* device.c */
int current_device(void); /* 0 where none was chosen yet */

/* memory.c: bytes in use, by device. */
int card_of(int device); /* the card behind a device number of this process */
int take_memory(int device, uint64_t bytes); /* 1: there was enough */
void give_memory(int device, uint64_t bytes);
uint64_t free_memory(int device);

/* ranges.c: device addresses. A range is either memory (aclrtMalloc) or addresses only (aclrtReserveMemAddress). */
typedef struct range {
  uint64_t start, length, charge;
  int device, is_reserved, has_pages;
  uint64_t *written;    /* one bit for each GRANULE: whether anything but zeros may be there */
  unsigned char *known; /* see known.c */
} range_t;
#define GRANULE (64 * KIB)
void lock_ranges(void);
void unlock_ranges(void);
range_t *add_range(uint64_t length, uint64_t alignment, int device, int is_reserved); /* locked; NULL: no addresses left */
range_t *find_range(uint64_t address);                                               /* locked; NULL: not a live device address */
void remove_range(range_t *range);                                                   /* locked */
int is_device_address(const void *pointer);                                          /* live or not */

/* contents.c: what device memory holds. Bytes that nobody wrote are zero. */
int move_bytes(void *to, const void *from, uint64_t bytes); /* either side may be the host; BAD_ARGUMENT: freed device memory */
int fill_bytes(void *at, const void *pattern, int width, uint64_t count);
int clear_bytes(void *at, uint64_t bytes); /* what is there from now on is not known */
int look_at(const void *at, void *to, uint64_t bytes); /* copies them if all are known; whether they are */
void hand_out(void *at, uint64_t bytes);   /* the same, for a block that begins there */
uint64_t forgotten_bytes(void);            /* that were written, and of which there were too many to be kept */
typedef enum { UNTOUCHED, KNOWN_ZEROS, ANYTHING } contents_t; /* nothing was put there; zeros all over; perhaps neither */
contents_t contents_of(const void *at, uint64_t bytes);
int set_zeros(void *at, uint64_t bytes); /* known ones */
void begin_contents(range_t *range); /* locked; of a range that was just added */
void end_contents(range_t *range);   /* locked; before the range is removed */

/* known.c: which bytes hold what the program put there; locked. */
void make_known(range_t *range);
void drop_known(range_t *range);
void set_known(range_t *range, uint64_t at, uint64_t bytes, int is_known);
uint64_t alike(const range_t *range, uint64_t at, uint64_t bytes, int *is_known); /* how many from there on are as known as the first */
void begin_block(range_t *range, uint64_t at, uint64_t bytes);
int type_at(const range_t *range, uint64_t at);  /* of the tensor that the byte is a part of; -1: not known */
void note_type(const void *data, int type);      /* a tensor begins there; takes the lock itself */

/* computed.c: how many elements the operator at work will find, as memdiag says inside the program; -1: it does not. */
int64_t told_count(void);
int is_agreed(void); /* a condition that is not known reads as true */

/* made_up.c: what is read where nothing is known. */
void make_up(void *to, uint64_t bytes, int type);

/* read_backs.c: notes from where in the program a copy to the host held bytes that were made up, or a size was assumed. */
void note_read_back(void);
void note_assumed_size(void);

/* python_place.c: "train.py:17" of the calling thread, into `text`; empty where it runs no Python. Returns whether values are only displayed. */
int python_place(char *text, size_t room);

/* refuse.c: the names of functions that were refused, with commas, each in quotes. */
size_t refused_names(char *text, size_t room);

/* descriptors.c */
typedef struct tensor {
  uint64_t dims, dim[32];
  int64_t stride[32], offset;
  int type;
  int found; /* the dimension whose size depends on data, where one does */
  uint64_t num_found; /* its size and 1, where the data is known; 0: it is not */
  void *data;
} tensor_t;
typedef struct {
  int type;
  unsigned char value[16];
} scalar_t;
const tensor_t *as_tensor(const void *handle); /* NULL: anything else */
const tensor_t *last_tensor_of(const void *handle, uint64_t index); /* element of a list; NULL: past its end, or no list */
int type_size(int type);                       /* bytes of an element, 0 where it has no whole bytes */

const int64_t *numbers_of(const void *handle, uint64_t *count); /* of a list of integers; NULL: anything else */

/* views.c */
uint64_t num_elements(const tensor_t *tensor);
int is_contiguous(const tensor_t *tensor);
char *start_of(const tensor_t *tensor);
void clear_tensor(const tensor_t *tensor); /* NULL is allowed */
int copy_tensor(const tensor_t *to, const tensor_t *from);
void part_of(tensor_t *part, const tensor_t *whole, uint64_t dim, int64_t first, uint64_t count);

/* operators.c */
int64_t count_nonzero(const tensor_t *of); /* of booleans and integers; -1: not all are known */
int changed_first(const void *const *arguments, int count); /* operators that change their first tensors in place */
int changed_last(const void *const *arguments);             /* operators whose last list of tensors is the result */

#endif
