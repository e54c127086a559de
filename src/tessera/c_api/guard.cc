#include "tessera/c_api/guard_internal.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <unordered_set>

#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/log.h"
#include "tessera/base/per_thread.h"
#include "tessera/base/python_packages.h"
#include "tessera/commands/console.h"
#include "tessera/jit/shipped_packs.h"
#include "tessera/tessera.hpp"

namespace tessera::c_api {
namespace {

// The last failure of a thread. The sentence is in an array, so that it can be kept where no memory
// is left.
struct Failure {
  std::array<char, 4400> sentence{};
  std::string details;
};

Failure& failure() { return per_thread<Failure>(); }

tsr_status_t remember(ErrorCode code, std::string_view sentence, std::string_view details) {
  Failure& last = failure();
  const std::size_t bytes = std::min(sentence.size(), last.sentence.size() - 1);
  std::copy_n(sentence.data(), bytes, last.sentence.data());
  last.sentence[bytes] = '\0';
  last.details = details;
  return static_cast<tsr_status_t>(code);
}

struct Live {
  Mutex mutex;
  std::unordered_set<const void*> handles;
};

Live& live() {
  static Forever<Live> all;
  return *all;
}

}  // namespace

tsr_status_t remember_failure() noexcept {
  try {
    const Error error = commands::current_error();
    return remember(error.code(), error.what(), error.context());
  } catch (const std::bad_alloc&) {  // no memory for the sentence or the details
    return TSR_OUT_OF_MEMORY;
  } catch (...) {  // an exception of a call-back, of no type of std
    return TSR_INTERNAL;
  }
}

void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

void add_live(const void* handle) {
  const std::lock_guard lock(live().mutex);
  live().handles.insert(handle);
}

void remove_live(const void* handle) {
  const std::lock_guard lock(live().mutex);
  live().handles.erase(handle);
}

void check_live(const void* handle, std::string_view what) {
  const std::lock_guard lock(live().mutex);
  if (live().handles.contains(handle)) return;
  refuse(fmt::format("the {} at {} was destroyed, or never was one", what, handle));
}

std::string_view text_of(const char* text, std::string_view what) {
  if (text == nullptr) refuse(fmt::format("the {} must not be NULL", what));
  return text;
}

char* copy_of(std::string_view text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

char* json_copy(const Json& json) {
  return copy_of(std::string_view(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

void read_options(const void* given, void* options, std::size_t size, std::string_view name) {
  std::size_t theirs = 0;
  std::memcpy(&theirs, given, sizeof(theirs));
  constexpr std::size_t kMost = 4096;
  if (theirs < 2 * sizeof(theirs) || theirs > kMost) {
    refuse(fmt::format("{}.struct_size must be {}, set by TSR_INIT, got {}", name, size, theirs));
  }
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = size; i < theirs; ++i) {
    if (bytes[i] == 0) continue;
    refuse(fmt::format("{} has a field beyond its first {} bytes, which this release does not know",
                       name, size));
  }
  std::memcpy(options, given, std::min(size, theirs));
}

void check_least(std::string_view field, double value, double least) {
  if (value >= least) return;  // NaN is not
  refuse(fmt::format("{} must be at least {}, got {}", field, least, value));
}

#pragma GCC visibility push(default)
extern "C" {

const char* tsr_version(void) { return kVersion.data(); }
int tsr_abi(void) { return TSR_ABI; }

const char* tsr_status_name(tsr_status_t status) {
  if (status < TSR_OK || status > TSR_CANCELLED) return "unknown";
  return to_string(static_cast<ErrorCode>(status)).data();
}

const char* tsr_error(void) { return failure().sentence.data(); }
const char* tsr_error_details(void) { return failure().details.c_str(); }

void tsr_free(char* text) { std::free(text); }

tsr_status_t tsr_add_python_prefix(const char* prefix) {
  return guarded([&] { add_python_prefix(text_of(prefix, "prefix")); });
}

tsr_status_t tsr_add_packs(const char* folder) {
  return guarded([&] { jit::add_packs(text_of(folder, "folder")); });
}

tsr_status_t tsr_set_log_sink(tsr_log_sink_t sink, void* user) {
  return guarded([&] {
    if (sink == nullptr) return set_log_sink({});
    set_log_sink([sink, user](LogLevel level, std::string_view sentence) {
      sink(user, level == LogLevel::warning ? 0 : 1, std::string(sentence).c_str());
    });
  });
}

tsr_status_t tsr_set_compile_hook(tsr_compile_hook_t hook, void* user) {
  return guarded([&] {
    if (hook == nullptr) return jit::set_compile_hook({});
    jit::set_compile_hook([hook, user](const jit::Compilation& compilation) {
      return hook(user, compilation.kernel.c_str(), compilation.why.c_str()) == 0;
    });
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
