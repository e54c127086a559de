#include "tessera/registry/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/hash.h"
#include "tessera/base/parallel.h"
#include "tessera/families/headers.h"
#include "tessera/families/operations.h"
#include "tessera/registry/folder_internal.h"
#include "tessera/registry/kernel_set_internal.h"
#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

// The result for one kernel: a file with its hash, or an error.
struct Written {
  std::string name;
  std::string instance;  // how another library calls it; of our own kernels empty
  std::string file;
  std::string hash;
  std::shared_ptr<const Headers> headers;
  std::string error;
};

// Calls write(out) for a kernel of the target; what it throws becomes the kernel's error.
template <class Write>
Written write_one(const KernelSpec& spec, const Target& target, Write write) {
  Written out;
  out.name = name_of(spec);
  try {
    if (spec.target != target.name) {
      throw Error(ErrorCode::illegal_spec,
                  fmt::format("the kernel is for target '{}', not '{}'", spec.target, target.name));
    }
    write(out);
  } catch (const std::exception& error) {
    const std::string name = out.name + ": ";  // some errors already begin with the name
    const std::string what = error_of(error).what();
    out.error = what.starts_with(name) ? what : name + what;
  }
  return out;
}

// Checks that files can be created in the folder, before any work is done.
void check_usable(const fs::path& folder) {
  make_folder(folder, "generate");
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
    make_folder(file.parent_path(), "generate");
    write_file_atomic(file, content);
  }
}

std::string index_of(const KernelSet& set, const std::vector<KernelSpec>& specs,
                     const std::vector<Written>& kernels, const Target& target,
                     std::string_view source) {
  nlohmann::ordered_json index;
  index["name"] = set.name;
  index["target"] = target.name;
  if (source != kNativeSource) index["source"] = source;
  index["kernels"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (!kernels[i].error.empty()) continue;
    nlohmann::ordered_json entry;
    entry["name"] = kernels[i].name;
    if (!kernels[i].instance.empty()) entry["instance"] = kernels[i].instance;
    entry["file"] = kernels[i].file;
    entry["hash"] = kernels[i].hash;
    entry["spec"] = json_of(specs[i]);
    index["kernels"].push_back(std::move(entry));
  }
  return dump_json(index) + "\n";
}

using GenerateProgress = std::function<void(std::size_t, std::size_t, const std::string&)>;

// write_kernel(spec) for each of the specs, `jobs` at a time.
template <class WriteKernel>
std::vector<Written> write_all(const std::vector<KernelSpec>& specs, int jobs,
                               const GenerateProgress& progress, WriteKernel write_kernel) {
  std::vector<Written> kernels(specs.size());
  std::mutex mutex;
  std::size_t done = 0;
  in_parallel(specs.size(), jobs, [&](std::size_t i) {
    kernels[i] = write_kernel(specs[i]);
    const std::scoped_lock lock(mutex);
    ++done;
    if (progress) progress(done, specs.size(), kernels[i].name);
  });
  return kernels;
}

GenerateResult result_of(const std::vector<Written>& kernels) {
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

// The first kernel of each instance's name has it.
void refuse_equal_instances(std::vector<Written>& kernels) {
  std::map<std::string_view, std::string_view> owners;
  for (Written& kernel : kernels) {
    if (!kernel.error.empty()) continue;
    const auto [owner, is_new] = owners.emplace(kernel.instance, kernel.name);
    if (is_new) continue;
    kernel.error = fmt::format("{}: its instance {} is that of {}, too", kernel.name,
                               kernel.instance, owner->second);
  }
}

void write_text(const fs::path& file, std::string_view text) {
  make_folder(file.parent_path(), "generate");
  write_file_atomic(file, text);
}

}  // namespace

GenerateResult generate(const KernelSet& set, const Target& target, const fs::path& folder,
                        int jobs, const GenerateProgress& progress) {
  check_usable(folder);
  const std::vector<KernelSpec> specs = unique_by_name(set.specs);
  const std::vector<Written> kernels =
      write_all(specs, jobs, progress, [&](const KernelSpec& spec) {
        return write_one(spec, target, [&](Written& out) {
          const Source source = emit_legal(spec, target);
          out.file = source.name + source.extension;
          out.hash = hash_hex(source.text);
          out.headers = source.headers;
          write_file_atomic(folder / out.file, source.text);
        });
      });
  write_headers(kernels, folder);
  write_file_atomic(folder / "index.json", index_of(set, specs, kernels, target, kNativeSource));
  return result_of(kernels);
}

GenerateResult generate_instances(const InstanceSource& source, const KernelSet& set,
                                  const Target& target, const fs::path& folder, int jobs,
                                  const GenerateProgress& progress) {
  check_usable(folder);
  const std::vector<KernelSpec> specs = unique_by_name(set.specs);
  std::mutex mutex;
  std::map<std::string, Instance> instances;
  std::vector<Written> kernels = write_all(specs, jobs, progress, [&](const KernelSpec& spec) {
    return write_one(spec, target, [&](Written& out) {
      Instance instance = emit_instance(source, spec, target);
      out.instance = instance.name;
      out.file = instance.file.path;
      out.hash = hash_hex(instance.file.text);
      const std::scoped_lock lock(mutex);
      instances.emplace(out.name, std::move(instance));
    });
  });
  refuse_equal_instances(kernels);
  std::vector<Instance> written;
  for (const Written& kernel : kernels) {
    if (!kernel.error.empty()) continue;
    written.push_back(std::move(instances.at(kernel.name)));
    write_text(folder / written.back().file.path, written.back().file.text);
  }
  std::sort(written.begin(), written.end(),
            [](const Instance& a, const Instance& b) { return a.name < b.name; });
  for (const InstanceFile& file : source.registration(written, target)) {
    write_text(folder / file.path, file.text);
  }
  write_file_atomic(folder / "index.json", index_of(set, specs, kernels, target, source.name));
  return result_of(kernels);
}

}  // namespace tessera
