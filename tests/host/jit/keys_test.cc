// Which headers' changes change which kernels' keys.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "host/jit/fixtures.h"
#include "tessera/base/error.h"
#include "tessera/families/headers.h"
#include "tessera/jit/toolchain.h"
#include "tessera/targets/targets.h"

namespace tessera::jit {
namespace {

std::vector<EmbeddedFile> library_headers() {
  std::vector<EmbeddedFile> all;
  for (const auto some : {cpu_headers(), cuda_headers(), hip_headers()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// One kernel of each group that includes the same headers.
std::vector<Source> kernels(const Target& target) {
  std::map<std::shared_ptr<const Headers>, Source> sources;
  for (const Family* family : all_families()) {
    for (const std::string& set : family->preselected_names()) {
      try {
        const std::vector<KernelSpec> specs = family->preselected(set, target);
        for (const KernelSpec& spec : specs) {
          const Source source = family->emit(spec, target);
          sources.emplace(source.headers, source);
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::not_found);  // the set is another target's
      }
    }
  }
  std::vector<Source> all;
  for (const auto& [headers, source] : sources) all.push_back(source);
  return all;
}

// The source as it is emitted by a library that carries these headers.
Source with(Source source, HeaderMap& headers) {
  source.headers = headers.of(source.text + source.declarations);
  for (Source& object : source.objects) object.headers = headers.of(object.text);
  return source;
}

bool includes(const Source& source, std::string_view path) {
  const auto is_it = [&](const EmbeddedFile& file) { return file.path == path; };
  return std::any_of(source.headers->files.begin(), source.headers->files.end(), is_it);
}

class HeaderKeys : public testing::TestWithParam<const char*> {
 protected:
  const Target target_ = load_target(GetParam());
  const std::vector<Source> sources_ = kernels(target_);
};

INSTANTIATE_TEST_SUITE_P(Of, HeaderKeys, testing::Values("avx512", "sm90a"),
                         [](const auto& chosen) { return std::string(chosen.param); });

TEST_P(HeaderKeys, ChangeWithTheHeadersThatTheKernelIncludes) {
  ASSERT_GT(sources_.size(), 1U);
  const std::vector<EmbeddedFile> original = library_headers();
  std::size_t changed = 0, kept = 0;
  for (std::size_t i = 0; i < original.size(); ++i) {
    const std::string text = std::string(original[i].content) + "// a comment\n";
    std::vector<EmbeddedFile> other = original;
    for (EmbeddedFile& file : other) {
      if (file.path == original[i].path) file.content = text;
    }
    HeaderMap map(other);
    for (const Source& source : sources_) {
      SCOPED_TRACE(fmt::format("{} in {}", original[i].path, source.name));
      const std::string key = source_key(source, target_);
      const bool differs = source_key(with(source, map), target_) != key;
      ASSERT_EQ(differs, includes(source, original[i].path));
      ++(differs ? changed : kept);
    }
  }
  EXPECT_GT(changed, 0U);
  EXPECT_GT(kept, 0U);
}

TEST_P(HeaderKeys, IgnoreAHeaderThatNobodyIncludes) {
  std::vector<EmbeddedFile> more = library_headers();
  more.push_back({"tessera/device/cpu/another_family.h", "int x;"});
  HeaderMap map(more);
  for (const Source& source : sources_) {
    EXPECT_EQ(source_key(with(source, map), target_), source_key(source, target_)) << source.name;
  }
}

// Kernels of one backend have nothing of another's in their folders.
TEST_P(HeaderKeys, LeaveTheOtherBackendOut) {
  const std::string other = target_.backend == "cpu" ? "device/cuda/" : "device/cpu/";
  for (const Source& source : sources_) {
    for (const EmbeddedFile& file : source.headers->files) {
      EXPECT_EQ(file.path.find(other), file.path.npos) << source.name << ": " << file.path;
    }
  }
}

}  // namespace
}  // namespace tessera::jit
