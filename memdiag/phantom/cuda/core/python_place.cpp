// Asked of the interpreter itself, whose functions are looked up by name: this library is loaded into processes without Python as well.
// PyTorch gives the interpreter's lock back before it copies; it is taken for the question, with no lock of ours held.
#include "python_place.h"

#include <dlfcn.h>
#include <string.h>

namespace phantom {
namespace {

struct Object;

struct Python {
  int (*is_initialized)();
  int (*is_finalizing)();
  void* (*own_thread)();
  int (*ensure)();
  void (*release)(int);
  Object* (*frame)();
  Object* (*back)(Object*);
  Object* (*code)(Object*);
  int (*line)(Object*);
  Object* (*attribute)(Object*, const char*);
  const char* (*text)(Object*);
  void (*drop)(Object*);
  void (*increase)(Object*);
  void (*clear_error)();

  template <class Function>
  static void look_up(Function& function, const char* name, bool& has_all) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    has_all = has_all && function;
  }
  bool has_all = true;

  Python() {
    look_up(is_initialized, "Py_IsInitialized", has_all);
    look_up(own_thread, "PyGILState_GetThisThreadState", has_all);
    look_up(ensure, "PyGILState_Ensure", has_all);
    look_up(release, "PyGILState_Release", has_all);
    look_up(frame, "PyEval_GetFrame", has_all);
    look_up(back, "PyFrame_GetBack", has_all);
    look_up(code, "PyFrame_GetCode", has_all);
    look_up(line, "PyFrame_GetLineNumber", has_all);
    look_up(attribute, "PyObject_GetAttrString", has_all);
    look_up(text, "PyUnicode_AsUTF8", has_all);
    look_up(drop, "Py_DecRef", has_all);
    look_up(increase, "Py_IncRef", has_all);
    look_up(clear_error, "PyErr_Clear", has_all);
    bool may_be_missing = true;
    look_up(is_finalizing, "Py_IsFinalizing", may_be_missing);
    if (!is_finalizing) look_up(is_finalizing, "_Py_IsFinalizing", may_be_missing);
  }
};

// No line of memdiag is a place in the program: on autograd's thread, an operator that memdiag wraps may be the only frame.
bool is_own(const char* path) { return strstr(path, "/memdiag/recorder/") || strstr(path, "/memdiag/phantom/"); }

bool is_installed(const char* path) {
  return strstr(path, "site-packages") || strstr(path, "dist-packages") || strstr(path, "/lib/python3") || *path == '<' || is_own(path);
}

std::string text_of(const Python& python, Object* code, const char* attribute) {
  std::string found;
  Object* value = python.attribute(code, attribute);
  if (value) {
    if (const char* text = python.text(value)) found = text;
    python.drop(value);
  }
  python.clear_error();
  return found;
}

// print(tensor) and f"{loss:.3f}" only display values: no decision of the program depends on them.
bool is_display(const std::string& file, const std::string& function) {
  constexpr const char kTensor[] = "/torch/_tensor.py";
  constexpr size_t kLength = sizeof kTensor - 1;
  bool is_tensor = file.size() >= kLength && file.compare(file.size() - kLength, kLength, kTensor) == 0;
  return is_tensor && (function == "__repr__" || function == "__format__");
}

}  // namespace

std::string python_place(bool& is_displayed) {
  static const Python* const python = new Python;
  is_displayed = false;
  if (!python->has_all || !python->is_initialized() || (python->is_finalizing && python->is_finalizing()) || !python->own_thread()) return "";
  int state = python->ensure();
  std::string innermost, own;
  Object* frame = python->frame();
  if (frame) python->increase(frame);
  while (frame) {
    Object* code = python->code(frame);
    std::string file = text_of(*python, code, "co_filename");
    is_displayed = is_displayed || is_display(file, text_of(*python, code, "co_name"));
    python->drop(code);
    if (!is_own(file.c_str()) && (innermost.empty() || !is_installed(file.c_str()))) {
      std::string place = file + ":" + std::to_string(python->line(frame));
      if (innermost.empty()) innermost = place;
      if (!is_installed(file.c_str())) own = place;
    }
    Object* outer = own.empty() ? python->back(frame) : nullptr;
    python->drop(frame);
    frame = outer;
  }
  python->release(state);
  return own.empty() ? innermost : own;
}

}  // namespace phantom
