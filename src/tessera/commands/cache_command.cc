// tessera cache: lists, checks and clears the kernel cache.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/table.h"
#include "tessera/tools.hpp"

namespace tessera::commands {
namespace {

struct CacheCommand {
  std::string action;
  std::string folder;
  std::string pattern = "*";
  std::string place;  // the cache's folder, whether it is there or not
};

// "3 kernels and 5 objects that they share".
std::string counted(const std::vector<jit::EntryInfo>& entries) {
  const auto objects = std::count_if(entries.begin(), entries.end(),
                                     [](const jit::EntryInfo& entry) { return entry.is_object; });
  const std::string kernels = fmt::format("{} kernels", entries.size() - objects);
  return objects == 0 ? kernels
                      : fmt::format("{} and {} objects that they share", kernels, objects);
}

int list(const CacheCommand& command, const jit::Cache& cache, const Console& console) {
  std::vector<jit::EntryInfo> listed = cache.list();
  std::erase_if(listed, [&](const jit::EntryInfo& entry) {
    return !matches_wildcard(command.pattern, entry.name);
  });
  Json entries = Json::array();
  Table table({"kernel or object", "key", "size"});
  for (const jit::EntryInfo& entry : listed) {
    entries.push_back({{entry.is_object ? "object" : "kernel", entry.name},
                       {"key", entry.key},
                       {"folder", entry.folder.string()},
                       {"bytes", entry.bytes},
                       {"last_used_unix", entry.last_used_unix},
                       {"facts", entry.facts}});
    table.add(
        {entry.name, entry.key.substr(0, 12), format_bytes(static_cast<double>(entry.bytes))});
  }
  if (console.json) {
    console.print_json({{"folder", command.place}, {"entries", entries}});
  } else {
    console.write_out("{}{} in {}\n", entries.empty() ? "" : table.text(), counted(listed),
                      command.place);
  }
  return 0;
}

int verify(const CacheCommand&, const jit::Cache& cache, const Console& console) {
  const jit::VerifyReport report = cache.verify();
  if (console.json) {
    console.print_json({{"good", report.good}, {"damaged", report.damaged}});
  } else {
    for (const std::string& sentence : report.damaged) console.write_out("{}\n", sentence);
    console.write_out("{} entries are sound, {} were damaged and set aside\n", report.good,
                      report.damaged.size());
  }
  return report.damaged.empty() ? 0 : 1;
}

int size(const CacheCommand& command, const jit::Cache& cache, const Console& console) {
  const std::int64_t bytes = cache.size_bytes();
  const std::vector<jit::EntryInfo> entries = cache.list();
  if (console.json) {
    console.print_json({{"folder", command.place}, {"entries", entries.size()}, {"bytes", bytes}});
  } else {
    console.write_out("{} in {} in {}\n", format_bytes(static_cast<double>(bytes)),
                      counted(entries), command.place);
  }
  return 0;
}

int clear(const CacheCommand& command, jit::Cache& cache, const Console& console) {
  const jit::ClearReport report = cache.clear(command.pattern);
  if (console.json) {
    console.print_json({{"removed", report.removed}, {"kept", report.kept}});
    return report.kept.empty() ? 0 : 1;
  }
  console.write_out("{} entries removed from {}\n", report.removed, command.place);
  if (report.kept.empty()) return 0;
  throw Error(ErrorCode::io_error,
              fmt::format("cache: {} entries could not be removed, the first being: {}",
                          report.kept.size(), report.kept.front()));
}

// The Cache class creates its folder, and looking at a cache must not. Below a file no folder can
// be made, so that this is a cache in memory, which holds nothing.
constexpr const char* kNoFolder = "/dev/null/cache";

// A folder that is named here must exist, because its name may be misspelt.
int run(CacheCommand command, const Console& console) {
  if (!command.folder.empty() && !fs::is_directory(command.folder)) {
    throw Error(ErrorCode::not_found,
                fmt::format("cache: there is no folder '{}'", command.folder));
  }
  const fs::path place =
      command.folder.empty() ? jit::cache_folder_here() : fs::path(command.folder);
  const bool is_there = fs::exists(place);
  jit::Cache cache({.folder = is_there ? fs::path(command.folder) : kNoFolder});
  command.place = is_there ? cache.folder().string() : place.string();
  if (command.action == "list") return list(command, cache, console);
  if (command.action == "verify") return verify(command, cache, console);
  if (command.action == "size") return size(command, cache, console);
  if (command.action == "clear") return clear(command, cache, console);
  const std::vector<std::string> actions = {"list", "verify", "size", "clear"};
  throw Error(ErrorCode::not_found,
              fmt::format("cache: unknown action '{}'{} (known: {})", command.action,
                          did_you_mean(command.action, actions), join(actions, ", ")));
}

}  // namespace

Action declare_cache(CLI::App& app) {
  auto command = std::make_shared<CacheCommand>();
  app.add_option("action", command->action, "list, verify, size or clear")->required();
  app.add_option("--folder", command->folder, "Another cache than TESSERA_CACHE_DIR's");
  app.add_option("--pattern", command->pattern, "Only entries whose name matches")
      ->capture_default_str();
  return [command](const Console& console) { return run(*command, console); };
}

}  // namespace tessera::commands
