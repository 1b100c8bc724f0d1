/* Where in the program's Python the calling thread is: the innermost line that is of no installed package, else the innermost of all.
 *
 * Asked of the interpreter itself, whose functions are looked up by name: this library is loaded into processes without Python as well.
 * PyTorch gives the interpreter's lock back before it copies; it is taken for the question, with no lock of ours held.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct object object_t; /* PyObject */

static struct {
  int (*is_initialized)(void), (*is_finalizing)(void);
  void *(*own_thread)(void);
  int (*ensure)(void);
  void (*release)(int);
  object_t *(*frame)(void), *(*back)(object_t *), *(*code)(object_t *), *(*attribute)(object_t *, const char *);
  int (*line)(object_t *);
  const char *(*text)(object_t *);
  void (*drop)(object_t *), (*keep)(object_t *), (*clear_error)(void);
  int has_all;
} python;

static void look_up(void) {
  struct {
    void *function;
    const char *name;
  } wanted[] = {
      {&python.is_initialized, "Py_IsInitialized"}, {&python.own_thread, "PyGILState_GetThisThreadState"},
      {&python.ensure, "PyGILState_Ensure"},        {&python.release, "PyGILState_Release"},
      {&python.frame, "PyEval_GetFrame"},           {&python.back, "PyFrame_GetBack"},
      {&python.code, "PyFrame_GetCode"},            {&python.attribute, "PyObject_GetAttrString"},
      {&python.line, "PyFrame_GetLineNumber"},      {&python.text, "PyUnicode_AsUTF8"},
      {&python.drop, "Py_DecRef"},                  {&python.keep, "Py_IncRef"},
      {&python.clear_error, "PyErr_Clear"},
  };
  python.has_all = 1;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *found = dlsym(RTLD_DEFAULT, wanted[i].name);
    memcpy(wanted[i].function, &found, sizeof found);
    python.has_all &= found != NULL;
  }
  void *found = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
  if (!found) found = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"); /* before Python 3.13 */
  memcpy(&python.is_finalizing, &found, sizeof found);
}

/* No line of memdiag is a place in the program: on autograd's thread, an operator that memdiag wraps may be the only frame. */
static int is_of_memdiag(const char *path) { return strstr(path, "/memdiag/recorder/") || strstr(path, "/memdiag/phantom/"); }

static int is_installed(const char *path) {
  return strstr(path, "site-packages") || strstr(path, "dist-packages") || strstr(path, "/lib/python3") || *path == '<';
}

/* print(tensor) and f"{loss:.3f}" only display values: no decision of the program depends on them. */
static int is_display(const char *file, const char *function) {
  static const char tensor[] = "/torch/_tensor.py";
  size_t length = strlen(file);
  if (length < sizeof tensor - 1 || strcmp(file + length - (sizeof tensor - 1), tensor)) return 0;
  return !strcmp(function, "__repr__") || !strcmp(function, "__format__");
}

/* Writes "file:line" of a frame; returns whether it is of no installed package. */
static int describe(object_t *frame, char *text, size_t room, int *is_displayed) {
  int is_own = 0;
  object_t *code = python.code(frame), *name = python.attribute(code, "co_filename"), *called = python.attribute(code, "co_name");
  const char *file = name ? python.text(name) : NULL, *function = called ? python.text(called) : NULL;
  if (file && !is_of_memdiag(file)) {
    snprintf(text, room, "%s:%d", file, python.line(frame));
    is_own = !is_installed(file);
  }
  if (file && function && is_display(file, function)) *is_displayed = 1;
  if (name) python.drop(name);
  if (called) python.drop(called);
  python.drop(code);
  python.clear_error();
  return is_own;
}

int python_place(char *text, size_t room) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, look_up);
  *text = 0;
  if (!python.has_all || !python.is_initialized() || (python.is_finalizing && python.is_finalizing()) || !python.own_thread()) return 0;
  int state = python.ensure(), is_own = 0, is_displayed = 0;
  object_t *frame = python.frame();
  if (frame) python.keep(frame);
  while (frame) {
    char here[1024] = "";
    is_own = describe(frame, here, sizeof here, &is_displayed);
    if (is_own || !*text) snprintf(text, room, "%s", here);
    object_t *outer = is_own ? NULL : python.back(frame);
    python.drop(frame);
    frame = outer;
  }
  python.release(state);
  return is_displayed;
}
