#include "tessera/registry/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/base/parallel.h"
#include "tessera/families/headers.h"
#include "tessera/registry/kernel_set_internal.h"
#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

// The result for one kernel: a file with its hash, or an error.
struct Written {
  std::string name;
  std::string file;
  std::string hash;
  std::shared_ptr<const Headers> headers;
  std::string error;
};

Written write_one(const KernelSpec& spec, const Target& target, const fs::path& folder) {
  Written out;
  out.name = name_of(spec);
  try {
    if (spec.target != target.name) {
      throw Error(ErrorCode::illegal_spec,
                  fmt::format("the kernel is for target '{}', not '{}'", spec.target, target.name));
    }
    const Source source = emit_legal(spec, target);
    out.file = source.name + source.extension;
    out.hash = hash_hex(source.text);
    out.headers = source.headers;
    write_file_atomic(folder / out.file, source.text);
  } catch (const std::exception& error) {
    const std::string name = out.name + ": ";  // some errors already begin with the name
    const std::string_view what = error.what();
    out.error = what.starts_with(name) ? std::string(what) : name + std::string(what);
  }
  return out;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (fs::is_directory(folder, error)) return;
  throw Error(ErrorCode::io_error,
              fmt::format("generate: cannot make the folder '{}': {}", folder.string(),
                          error ? error.message() : "something else is in the way"));
}

// Checks that files can be created in the folder, before any work is done.
void check_usable(const fs::path& folder) {
  make_folder(folder);
  remove_tree(make_unique_folder(folder, ".generate-"));
}

void write_headers(const std::vector<Written>& kernels, const fs::path& folder) {
  std::map<std::string_view, std::string_view> headers;
  for (const Written& kernel : kernels) {
    if (kernel.headers == nullptr) continue;
    for (const EmbeddedFile& header : kernel.headers->files) headers[header.path] = header.content;
  }
  for (const auto& [path, content] : headers) {
    const fs::path file = folder / "include" / path;
    make_folder(file.parent_path());
    write_file_atomic(file, content);
  }
}

std::string index_of(const KernelSet& set, const std::vector<KernelSpec>& specs,
                     const std::vector<Written>& kernels, const Target& target) {
  nlohmann::ordered_json index;
  index["name"] = set.name;
  index["target"] = target.name;
  index["kernels"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (!kernels[i].error.empty()) continue;
    nlohmann::ordered_json entry;
    entry["name"] = kernels[i].name;
    entry["file"] = kernels[i].file;
    entry["hash"] = kernels[i].hash;
    entry["spec"] = json_of(specs[i]);
    index["kernels"].push_back(std::move(entry));
  }
  return dump_json(index) + "\n";
}

}  // namespace

GenerateResult generate(const KernelSet& set, const Target& target, const fs::path& folder,
                        int jobs,
                        const std::function<void(std::size_t done, std::size_t total,
                                                 const std::string& name)>& progress) {
  check_usable(folder);
  const std::vector<KernelSpec> specs = unique_by_name(set.specs);
  std::vector<Written> kernels(specs.size());
  std::mutex mutex;
  std::size_t done = 0;
  in_parallel(specs.size(), jobs, [&](std::size_t i) {
    kernels[i] = write_one(specs[i], target, folder);
    const std::scoped_lock lock(mutex);
    ++done;
    if (progress) progress(done, specs.size(), kernels[i].name);
  });
  write_headers(kernels, folder);
  write_file_atomic(folder / "index.json", index_of(set, specs, kernels, target));
  GenerateResult result;
  for (const Written& kernel : kernels) {
    if (kernel.error.empty()) {
      ++result.written;
    } else {
      result.errors.push_back(kernel.error);
    }
  }
  return result;
}

}  // namespace tessera
