// Where in the program's Python the calling thread is.
#pragma once
#include <string>

namespace phantom {

// "train.py:17", the innermost line that is not of an installed package, else the innermost of all; empty where the thread runs no Python.
// is_displayed: whether the program only displays values there, so that they decide nothing.
std::string python_place(bool& is_displayed);

}  // namespace phantom
