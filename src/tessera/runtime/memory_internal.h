// The workspace of kernels that the calling thread launches.
#pragma once

#include <cstddef>

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

// Memory at a multiple of 64 bytes, to be released by std::free(); null for 0 bytes. Throws
// Error{out_of_memory}.
void* allocate_aligned(std::size_t bytes);

// At least `bytes` bytes at a multiple of 64 bytes, with undefined content. The memory is valid
// until this thread's next call. It grows on demand and shrinks after many small requests. Throws
// Error{out_of_memory}.
void* thread_workspace(std::size_t bytes);

// The bytes that this thread's workspace has now.
std::size_t thread_workspace_bytes();

}  // namespace tessera::runtime
