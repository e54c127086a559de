// The packs that a builder looks into, opened at the first question.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/fork.h"
#include "tessera/jit/pack.h"

namespace tessera::jit {

// <folder of the library>/tessera/*.pack and <folder of the library>/*.pack, sorted.
std::vector<std::filesystem::path> shipped_packs();

// Thread-safe.
class PackSet {
 public:
  // `named` must be good; those of TESSERA_PACK and the shipped ones are skipped with a warning
  // when they are not.
  PackSet(std::vector<std::string> named, bool use_shipped);

  bool empty();

  // Whether a pack lists it, or one of its name; its bytes are not read.
  bool lists(const std::string& name, const std::string& source_key);
  bool lists(const std::string& name);

  // From the first pack that has it. Throws what opening or reading a named pack throws.
  std::optional<Artifact> find(const std::string& name, const std::string& source_key);

 private:
  struct Member {
    Pack pack;
    bool is_named;
  };
  void open();
  void open_one(const std::filesystem::path& file, bool is_named);

  Mutex mutex_;
  std::vector<std::string> named_;
  bool use_shipped_;
  bool opened_ = false;
  std::vector<Member> members_;
};

}  // namespace tessera::jit
