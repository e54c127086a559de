// The packs that a builder searches, opened at the first search.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/fork.h"
#include "tessera/jit/pack.h"

namespace tessera::jit {

// Thread-safe.
class PackSet {
 public:
  // A damaged pack in `named` is an error. A damaged pack of TESSERA_PACK or a damaged shipped one
  // is skipped with a warning.
  PackSet(std::vector<std::string> named, bool use_shipped);

  bool empty();

  // Whether a pack lists the kernel, or any kernel of its name; the kernel's bytes are not read.
  bool lists(const std::string& name, const std::string& source_key);
  bool lists(const std::string& name);

  // The kernel from the first pack that holds it. Throws what opening or reading a named pack
  // throws.
  std::optional<Artifact> find(const std::string& name, const std::string& source_key);

 private:
  struct Member {
    Pack pack;
    bool is_named;
    bool is_said = false;  // that it is of another version
  };
  void warn_of_other_versions(const std::string& name, const std::string& source_key);
  void open();
  void open_one(const std::filesystem::path& file, bool is_named);

  Mutex mutex_;
  std::vector<std::string> named_;
  bool use_shipped_;
  bool opened_ = false;
  std::vector<Member> members_;
};

}  // namespace tessera::jit
