#include "tessera/learn/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/learn/refuse_internal.h"

namespace tessera {
namespace {

constexpr int kGzipOnly = MAX_WBITS + 16;  // tells zlib to expect a gzip header
constexpr std::size_t kFirstGuess = 6;     // model text shrinks to about a sixth
constexpr std::size_t kLeastRoom = 4096;

// Owns zlib's state, which must be released on every path.
struct Inflater {
  z_stream stream{};
  Inflater() = default;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

struct Deflater {
  z_stream stream{};
  Deflater() = default;
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  ~Deflater() { deflateEnd(&stream); }
};

Bytef* bytes_of(std::string_view text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // zlib reads only
}

uInt length_of(std::size_t size) {
  return static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
}

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.substr(0, 2) == "\x1f\x8b"; }

std::string inflate_gzip(std::string_view bytes, std::string_view what, std::size_t most) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) {
    throw Error(ErrorCode::out_of_memory, fmt::format("{}: no memory to inflate it", what));
  }
  stream.next_in = bytes_of(bytes);
  stream.avail_in = length_of(bytes.size());

  // Room for one byte more than allowed is enough to notice that the content is too long.
  std::string text(std::min(most + 1, std::max(bytes.size() * kFirstGuess, kLeastRoom)), '\0');
  for (;;) {
    const std::size_t used = stream.total_out;
    if (used > most) refuse_file(what, fmt::format("inflates to more than {} bytes", most));
    if (used == text.size()) text.resize(std::min(most + 1, used * 2));
    stream.next_out = bytes_of(text) + used;
    stream.avail_out = length_of(text.size() - used);
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status == Z_STREAM_END) break;
    const std::size_t read = stream.total_in;
    if (status == Z_BUF_ERROR || (status == Z_OK && stream.avail_in == 0 && stream.avail_out > 0)) {
      refuse_file(what, fmt::format("the gzip data end after {} bytes, in mid-stream", read));
    }
    if (status != Z_OK) {
      refuse_file(what, fmt::format("the gzip data are damaged after {} bytes: {}", read,
                                    stream.msg == nullptr ? "bad header" : stream.msg));
    }
  }
  if (stream.total_out > most)
    refuse_file(what, fmt::format("inflates to more than {} bytes", most));
  if (stream.total_in != bytes.size()) {
    refuse_file(what, fmt::format("the gzip data end after {} bytes, but {} are there",
                                  static_cast<std::size_t>(stream.total_in), bytes.size()));
  }
  text.resize(stream.total_out);
  return text;
}

std::string deflate_gzip(std::string_view text) {
  constexpr int kMemoryLevel = 8;
  Deflater deflater;
  z_stream& stream = deflater.stream;
  if (text.size() >= std::numeric_limits<uInt>::max() ||
      deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipOnly, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("cannot compress {} bytes: the most is 4 GiB, or no memory is left",
                            text.size()));
  }
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = bytes_of(text);
  stream.avail_in = length_of(text.size());
  stream.next_out = bytes_of(packed);
  stream.avail_out = length_of(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) {
    throw Error(ErrorCode::internal, "zlib's bound on the size of compressed text is too small");
  }
  packed.resize(stream.total_out);
  return packed;
}

}  // namespace tessera
