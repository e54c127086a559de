// How the caller of long work ends it early.
#pragma once

namespace tessera {

// Asks a caller's call-back; a result other than 0 means that the work shall end.
struct Interruption {
  int (*stop)(void* user) = nullptr;
  void* user = nullptr;
};

// Sets the interruption of the calling thread, from now on.
void set_interruption(const Interruption& interruption);

// Throws Error{cancelled} when the calling thread's call-back asks for the end. Work that takes
// long calls this between its parts, however often: the call-back is asked about 20 times a second.
void check_interruption();

}  // namespace tessera
