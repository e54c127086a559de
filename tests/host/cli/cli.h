// Runs the built command line as a user would: a program, its words, its two streams, its status.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/base/subprocess.h"
#include "tessera/tools.hpp"

namespace tessera::cli_test {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

// "run gemm m=1" as words.
inline Words words_of(std::string_view line) {
  Words words;
  for (const std::string_view word : split_words(line)) words.emplace_back(word);
  return words;
}

struct CliResult {
  int status = -1;
  std::string out;
  std::string err;
};

// A test in a folder of its own, which holds the kernel cache too and is gone at the end.
class CliTest : public testing::Test {
 protected:
  ~CliTest() override { remove_tree(folder_); }

  const fs::path& folder() const { return folder_; }

  // `script` is a line of the shell that runs the program "$0" with the words "$@". `extra` are
  // "NAME=value" and "NAME" as in SubprocessOptions.
  CliResult run_in_shell(const std::string& script, const Words& words,
                         const std::vector<std::string>& extra = {}) const {
    const fs::path err = folder_ / "stderr";
    write_file(err, "");
    Words argv = {"/bin/sh", "-c", script, TESSERA_CLI};
    argv.insert(argv.end(), words.begin(), words.end());
    SubprocessOptions options{.working_folder = folder_, .timeout_seconds = 240};
    options.extra_environment = {"CLI_STDERR=" + err.string(),
                                 "TESSERA_CACHE_DIR=" + (folder_ / "cache").string(),
                                 "TESSERA_CXX",
                                 "TESSERA_NO_JIT",
                                 "TESSERA_VERIFY_EVERY",
                                 "TESSERA_TARGET",
                                 "TESSERA_PACK",
                                 "TESSERA_RECORD",
                                 "TESSERA_MODELS",
                                 "TESSERA_PROGRESS_SECONDS",
                                 "TESSERA_NVRTC",
                                 "TESSERA_HIPCC",
                                 "TESSERA_CUDA_DRIVER=/no/libcuda.so.1",  // no GPU, anywhere
                                 "TESSERA_HIP=/no/libamdhip64.so",
                                 "ASAN_OPTIONS=allocator_may_return_null=1"};
    options.extra_environment.insert(options.extra_environment.end(), extra.begin(), extra.end());
    const SubprocessResult result = run_subprocess(argv, options);
    EXPECT_TRUE(result.started && result.signal == 0 && !result.timed_out) << join(words, " ");
    return {result.exit_code, result.output, read_file(err)};
  }
  CliResult run(const Words& words, const std::vector<std::string>& extra = {}) const {
    return run_in_shell("exec \"$0\" \"$@\" 2>\"$CLI_STDERR\"", words, extra);
  }
  CliResult run(const char* line, const std::vector<std::string>& extra = {}) const {
    return run(words_of(line), extra);
  }

  // Nothing on stdout, one sentence on stderr.
  void expect_failure(const Words& words, const std::string& sentence, int status = 1,
                      const std::vector<std::string>& extra = {}) const {
    const CliResult result = run(words, extra);
    EXPECT_EQ(result.err, "tessera: " + sentence + "\n") << join(words, " ");
    EXPECT_EQ(result.out, "") << join(words, " ");
    EXPECT_EQ(result.status, status) << join(words, " ");
  }
  void expect_failure(const char* line, const std::string& sentence, int status = 1,
                      const std::vector<std::string>& extra = {}) const {
    expect_failure(words_of(line), sentence, status, extra);
  }

  // What a command that succeeds prints with --json, which is one line.
  Json run_json(const Words& words, const std::vector<std::string>& extra = {}) const {
    Words all = words;
    all.emplace_back("--json");
    const CliResult result = run(all, extra);
    EXPECT_EQ(result.status, 0) << join(words, " ") << "\n" << result.err << result.out;
    EXPECT_EQ(result.out.find('\n') + 1, result.out.size()) << result.out;
    return Json::parse(result.out, nullptr, false);
  }
  Json run_json(const char* line, const std::vector<std::string>& extra = {}) const {
    return run_json(words_of(line), extra);
  }

  void write(const char* file, std::string_view content) const {
    write_file(folder_ / file, content);
  }

  // A row of the user's own: no shipped pack holds its kernels. `from` is a row's name or "host".
  void write_target(const char* file, const std::string& name, const std::string& from) const {
    Target target = from == "host" ? host_target() : load_target(from);
    target.name = name;
    write(file, to_json(target));
  }

 private:
  fs::path folder_ = make_unique_folder(fs::temp_directory_path(), "tessera-cli-");
};

// A .npy file, version 1. `shape` is NumPy's tuple, such as "(2, 3)".
inline std::string npy_text(const std::string& descr, const std::string& shape, bool fortran,
                            std::string_view data) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
  std::string text = "\x93NUMPY";
  text +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return text + header + std::string(data);
}

template <class Element>
std::string bytes_of(const std::vector<Element>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(Element)};
}

// The data of a .npy file written by the command line.
template <class Element>
std::vector<Element> npy_data(const fs::path& file, std::string& header) {
  const std::string text = read_file(file);
  const std::size_t length = static_cast<unsigned char>(text.at(8)) +
                             std::size_t{256} * static_cast<unsigned char>(text.at(9));
  header = text.substr(10, length);
  header.erase(header.find_last_not_of(" \n") + 1);
  std::vector<Element> data((text.size() - 10 - length) / sizeof(Element));
  std::memcpy(data.data(), text.data() + 10 + length, data.size() * sizeof(Element));
  return data;
}

}  // namespace tessera::cli_test
