// The headers that a kernel's text includes, out of those that the library carries.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/embedded.h"
#include "tessera/base/fork.h"

namespace tessera {

// Headers sorted by path, with one hash of their paths and contents.
struct Headers {
  std::vector<EmbeddedFile> files;
  std::string hash;

  Headers() = default;
  explicit Headers(std::vector<EmbeddedFile> unsorted);
};

// Files that include each other by lines such as `#include "tessera/device/cpu/math.h"`. The files
// must outlive the map and all that it returns. Thread-safe.
class HeaderMap {
 public:
  explicit HeaderMap(std::span<const EmbeddedFile> files);

  // The headers that the text includes directly or through others. Texts that include the same
  // headers share the result. Throws Error{internal} when the text includes a file that the map
  // does not hold.
  std::shared_ptr<const Headers> of(std::string_view text);

 private:
  std::shared_ptr<const Headers> closure(const std::vector<std::string>& roots) const;

  std::map<std::string, EmbeddedFile, std::less<>> files_;
  Mutex mutex_;
  std::map<std::vector<std::string>, std::shared_ptr<const Headers>> answers_;
};

// The same for the headers that the library carries, of every backend.
std::shared_ptr<const Headers> headers_of(std::string_view text);

}  // namespace tessera
