// The workspace of kernels that run on the calling thread's behalf.
#pragma once

#include <cstddef>

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

// At a multiple of 64 bytes, for std::free(); null for 0 bytes. Throws Error{out_of_memory}.
void* allocate_aligned(std::size_t bytes);

// At least `bytes`, 64-byte aligned, valid until this thread's next call; its content is undefined.
// Grows on demand and shrinks after many small requests. Throws Error{out_of_memory}.
void* thread_workspace(std::size_t bytes);

// What this thread holds now.
std::size_t thread_workspace_bytes();

}  // namespace tessera::runtime
