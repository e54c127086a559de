// Gzip in memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Whether the bytes begin like a gzip file.
bool is_gzip(std::string_view bytes);

// The content of one gzip member. Throws Error{parse_error} "<what>: ..." when it is damaged, cut
// short, followed by other bytes, or would inflate to more than `most` bytes.
std::string inflate_gzip(std::string_view bytes, std::string_view what, std::size_t most);

// Compresses a text. Machines with the same zlib give the same bytes, because the header holds no
// name and no date.
std::string deflate_gzip(std::string_view text);

}  // namespace tessera
