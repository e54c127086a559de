// tessera version: what this installation consists of, so that a report can say it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <set>

#include "tessera/commands/console.h"
#include "tessera/commands/doctor.h"
#include "tessera/commands/format.h"
#include "tessera/commands/table.h"
#include "tessera/tessera.h"

namespace tessera::commands {
namespace {

// Files are named "gemm_avx512_bf16/manifest.json".
std::vector<std::string> names_of_shipped_models() {
  std::set<std::string> names;
  for (const EmbeddedFile& file : shipped_models()) {
    names.emplace(file.path.substr(0, file.path.find('/')));
  }
  return {names.begin(), names.end()};
}

Json pack_row(const fs::path& file) try {
  const jit::Pack pack(file);
  std::set<std::string> targets;
  std::int64_t bytes = 0;
  for (const jit::PackEntry& entry : pack.entries()) {
    targets.insert(entry.target);
    bytes += entry.bytes;
  }
  return {{"file", file.string()},
          {"kernels", pack.entries().size()},
          {"targets", targets},
          {"bytes", bytes}};
} catch (const Error& error) {
  return {{"file", file.string()}, {"error", error.what()}};
}

std::string words_of_pack(const Json& row) {
  if (row.contains("error")) return row.at("error").get<std::string>();
  return fmt::format("{}, {} kernels for {}, {}", row.at("file").get<std::string>(),
                     row.at("kernels").get<std::size_t>(),
                     join(row.at("targets").get<std::vector<std::string>>(), ", "),
                     format_bytes(static_cast<double>(row.at("bytes").get<std::int64_t>())));
}

Json kernel_abis() {
  Json abis = Json::object();
  for (const Family* family : all_families()) {
    abis[std::string(to_string(family->op))] = int{family->abi};
  }
  return abis;
}

// What people read, as the doctor's findings are: a word and what there is to say.
Json findings_of(const Json& all) {
  Json findings = Json::array();
  const auto add = [&](std::string_view what, const std::string& detail) {
    findings.push_back({{"what", what}, {"detail", detail}});
  };
  std::vector<std::string> abis;
  for (const auto& [op, abi] : all.at("abi").items()) {
    abis.push_back(fmt::format("{} {}", op, abi.get<int>()));
  }
  add("C ABI", fmt::format("{}", TSR_ABI));
  add("kernels' ABI", join(abis, ", "));
  add("folder", all.at("folder").get<std::string>());
  add("models", join(all.at("models").get<std::vector<std::string>>(), ", "));
  for (const Json& row : all.at("packs")) add("pack", words_of_pack(row));
  for (const Finding& finding : find_tools()) add(finding.what, finding.detail);
  return findings;
}

Json all_versions() {
  Json packs = Json::array();
  for (const fs::path& file : jit::shipped_packs()) packs.push_back(pack_row(file));
  Json all = {{"version", kVersion},
              {"c_abi", TSR_ABI},
              {"abi", kernel_abis()},
              {"folder", jit::library_folder().string()},
              {"models", names_of_shipped_models()},
              {"packs", packs}};
  all["findings"] = findings_of(all);
  return all;
}

int version(const Console& console) {
  const Json all = all_versions();
  if (console.json) {
    console.print_json(all);
    return 0;
  }
  console.write_out("tessera {}\n", kVersion);
  for (const Json& row : all.at("findings")) {
    console.write_out("{:<16} {}\n", row.at("what").get<std::string>(),
                      row.at("detail").get<std::string>());
  }
  return 0;
}

}  // namespace

Action declare_version(CLI::App&) { return version; }

}  // namespace tessera::commands
