// The runtime's last error, which each thread has of its own.
#pragma once

namespace phantom {

int remember(int error);  // returns it; "not ready" is an answer, not an error
int last_error();
int take_last_error();
const char* error_name(int error);
const char* error_text(int error);

}  // namespace phantom
