#include "tessera/jit/pack_set_internal.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/base/text.h"
#include "tessera/jit/shipped_packs.h"

namespace tessera::jit {

PackSet::PackSet(std::vector<std::string> named, bool use_shipped)
    : named_(std::move(named)), use_shipped_(use_shipped) {}

bool PackSet::empty() {
  const std::lock_guard lock(mutex_);
  open();
  return members_.empty();
}

bool PackSet::lists(const std::string& name, const std::string& source_key) {
  const std::lock_guard lock(mutex_);
  open();
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.pack.lists(name, source_key); });
}

bool PackSet::lists(const std::string& name) {
  const std::lock_guard lock(mutex_);
  open();
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.pack.lists(name); });
}

std::optional<Artifact> PackSet::find(const std::string& name, const std::string& source_key) {
  const std::lock_guard lock(mutex_);
  open();
  for (const Member& member : members_) {
    try {
      if (std::optional<Artifact> found = member.pack.find(name, source_key)) return found;
    } catch (const Error& error) {
      if (member.is_named) throw;
      warn_once(error.what());
    }
  }
  warn_of_other_versions(name, source_key);
  return std::nullopt;
}

// Kernels of another version's sources serve nobody. The first one that is asked for says so.
// Within a version the sources differ where rows of equal names do, as users make them.
void PackSet::warn_of_other_versions(const std::string& name, const std::string& source_key) {
  for (Member& member : members_) {
    if (member.is_said || member.pack.maker().version == kVersion) continue;
    const std::string sentence = member.pack.other_source(name, source_key);
    if (sentence.empty()) continue;
    member.is_said = true;
    warn_once(sentence);
  }
}

void PackSet::open() {
  if (opened_) return;
  members_.clear();
  for (const std::string& file : named_) open_one(file, true);
  const std::string from_environment = environment("TESSERA_PACK");
  for (const std::string_view file : split(from_environment, ':')) {
    if (!file.empty()) open_one(file, false);
  }
  if (use_shipped_) {
    for (const fs::path& file : shipped_packs()) open_one(file, false);
  }
  opened_ = true;
}

void PackSet::open_one(const fs::path& file, bool is_named) try {
  members_.push_back({.pack = Pack(file), .is_named = is_named});
} catch (const Error& error) {
  if (is_named) throw;
  warn_once(error.what());
}

}  // namespace tessera::jit
