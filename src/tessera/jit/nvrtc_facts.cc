#include <fmt/format.h>

#include <array>
#include <charconv>

#include "tessera/base/text.h"
#include "tessera/jit/nvrtc_internal.h"

namespace tessera::jit {
namespace {

// "168 registers", "0 bytes spill stores": a number and the words after it.
struct Phrase {
  std::string_view words;
  std::string_view fact;
};
constexpr std::array kPhrases = {Phrase{" bytes stack frame", "stack_bytes"},
                                 Phrase{" bytes spill stores", "spill_store_bytes"},
                                 Phrase{" bytes spill loads", "spill_load_bytes"},
                                 Phrase{" registers", "registers"},
                                 Phrase{" barriers", "barriers"},
                                 Phrase{" bytes smem", "shared_bytes"}};

// The number that ends where `end` is; -1 when there is none.
std::int64_t number_before(std::string_view line, std::size_t end) {
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int64_t value = -1;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

}  // namespace

std::map<std::string, std::int64_t> cubin_facts(std::string_view log, std::string_view name) {
  std::map<std::string, std::int64_t> facts;
  const std::string wanted = fmt::format("'{}'", name);
  bool ours = false;
  for (const std::string_view line : split(log, '\n')) {
    if (line.find("Compiling entry function") != line.npos) ours = line.find(wanted) != line.npos;
    if (!ours) continue;
    for (const Phrase& phrase : kPhrases) {
      const std::size_t at = line.find(phrase.words);
      if (at == line.npos) continue;
      const std::int64_t value = number_before(line, at);
      if (value >= 0) facts[std::string(phrase.fact)] = value;
    }
  }
  return facts;
}

}  // namespace tessera::jit
