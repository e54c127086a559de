// A private folder, a compiler made of shell, and sources for it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elf_files.h"
#include "resource_limit.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/jit/build.h"

namespace tessera::jit {

// Removed with everything below it. In memory where possible: a disk makes each flush wait.
class TempFolder {
 public:
  TempFolder()
      : path_(make_unique_folder(fs::exists("/dev/shm") ? "/dev/shm" : "/tmp", "tessera-test-")) {}
  ~TempFolder() { remove_tree(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

// Sets a variable of the environment, or removes it, and puts back what was there.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, std::optional<std::string> value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedVariable() { set(old_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    value ? ::setenv(name_, value->c_str(), 1) : ::unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> old_;
};

// A file system in memory of a given size, where the tests may mount one.
class SmallDisk {
 public:
  SmallDisk(const fs::path& folder, const std::string& size) : folder_(folder) {
    fs::create_directory(folder);
    mounted_ =
        ::mount("tmpfs", folder.c_str(), "tmpfs", 0, ("mode=0700,size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool is_mounted() const { return mounted_; }
  bool make_read_only() const { return remount(MS_RDONLY); }
  bool forbid_execution() const { return remount(MS_NOEXEC); }

 private:
  bool remount(unsigned long flags) const {
    return ::mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT | flags, nullptr) == 0;
  }

  fs::path folder_;
  bool mounted_ = false;
};

// What a test's binary holds behind its headers.
inline std::string text_of(const fs::path& binary) {
  return read_file(binary).substr(kHeaderBytes);
}

// A shell script that answers like a compiler. `body` runs before the output is written; each
// compilation adds a line to `calls`.
class FakeCompiler {
 public:
  explicit FakeCompiler(const fs::path& folder, const std::string& body = "")
      : path_(folder / "fake-c++"), calls_(folder / "calls") {
    write_file(folder / "kernel.so.headers", library_of(""));
    write_file(folder / "object.o.headers", object_of(""));
    write(body);
  }

  void write(const std::string& body, const std::string& version = "fake-c++ 1.0") const {
    write_file(path_, fmt::format(R"(#!/bin/sh
case "$1" in
  --version) echo "{}"; exit 0;;
  -print-prog-name=*) echo "${{1#-print-prog-name=}}"; exit 0;;
  '') exit 1;;
esac
echo call >> {}
{}
while [ $# -gt 0 ]; do [ "$1" = -o ] && output=$2; shift; done
cat "{}/$output.headers" > "$output"
echo "a binary made of:" >> "$output"
cat objects.h kernel.cc object.cc >> "$output" 2> /dev/null
for object in object?.o; do tail -c +{} "$object" >> "$output" 2> /dev/null; done
true
)",
                                  version, calls_.string(), body, path_.parent_path().string(),
                                  kHeaderBytes + 1));
    fs::permissions(path_, fs::perms::owner_all);
  }

  std::string path() const { return path_.string(); }
  std::ptrdiff_t calls() const {
    const std::string text = try_read_file(calls_).value_or("");
    return std::count(text.begin(), text.end(), '\n');
  }

 private:
  fs::path path_;
  fs::path calls_;
};

inline Source make_source(const std::string& name, const std::string& text = "int x;\n") {
  return {.name = name, .extension = ".cc", .text = text, .headers = {}};
}

inline Source make_object(const std::string& name, const std::string& text = "int a;\n") {
  Source object = make_source(name, text);
  object.is_object = true;
  return object;
}

inline Target make_target(std::vector<std::string> flags = {}) {
  Target target;
  target.name = "generic";
  target.backend = "cpu";
  target.compile_flags = std::move(flags);
  return target;
}

inline BuildOptions make_options(const fs::path& cache, const FakeCompiler& compiler) {
  BuildOptions options;
  options.cache.folder = cache;
  options.compiler = compiler.path();
  options.use_shipped_packs = false;
  return options;
}

// The names in a folder, sorted; empty when there is no such folder.
inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Writes an entry's files; for Cache::insert.
inline auto produces(const std::string& text) {
  return [text](const fs::path& folder) {
    write_file(folder / "kernel.cc", "the source");
    fs::create_directories(folder / "tessera" / "device");
    write_file(folder / "tessera" / "device" / "a.h", "header");
    write_file(folder / "kernel.so", library_of(text));
  };
}

// Vouches for what lies in an entry's folder now, as the cache would have.
inline void reseal(const fs::path& entry) {
  auto meta = nlohmann::json::parse(read_file(entry / "meta.json"));
  std::string text = fmt::format("{}\n{}\n{}\n", meta["format"].get<int>(),
                                 meta["name"].get<std::string>(), meta["key"].get<std::string>());
  for (auto& [file, stamp] : meta["files"].items()) {
    const std::string content = read_file(entry / file);
    stamp = {{"bytes", content.size()}, {"checksum", hash_hex(content)}};
    text += fmt::format("{}\n{}\n{}\n", file, content.size(), hash_hex(content));
  }
  meta["seal"] = hash_hex(text);
  write_file(entry / "meta.json", meta.dump());
}

inline constexpr const char* kKeyA = "000102030405060708090a0b0c0d0e0f";
inline constexpr const char* kKeyB = "ffeeddccbbaa99887766554433221100";

}  // namespace tessera::jit
