#include "tessera/registry/generate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "support.h"
#include "tessera/base/hash.h"
#include "tessera/families/headers.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

KernelSet small_set() {
  KernelSetBuilder builder("small", "avx512");
  builder.gemm().dtype("fp32").layout("rrr").variant("standard").pipeline("packb");
  builder.tile("48x1920x512");
  return builder.build();
}

TEST(Generate, WritesTheSameBytesWithOneJobAndWithFour) {
  const TemporaryFolder folder;
  const Target target = load_target("avx512");
  const KernelSet set = small_set();
  ASSERT_GT(set.specs.size(), 4U);
  EXPECT_EQ(generate(set, target, folder.path / "one", 1).written, set.specs.size());
  EXPECT_EQ(generate(set, target, folder.path / "four" / "deep", 4).written, set.specs.size());
  const auto one = contents_of(folder.path / "one");
  EXPECT_EQ(one, contents_of(folder.path / "four" / "deep"));
  EXPECT_EQ(generate(set, target, folder.path / "one", 0).errors.size(), 0U);
  EXPECT_EQ(one, contents_of(folder.path / "one"));
}

TEST(Generate, WritesOneSourcePerKernelAndTheHeadersAndTheIndex) {
  const TemporaryFolder folder;
  const Target target = load_target("avx512");
  const KernelSet set = small_set();
  generate(set, target, folder.path, 2);
  std::map<std::string, std::string> expected;
  for (const KernelSpec& spec : set.specs) {
    const Source source = family_of(spec).emit(spec, target);
    expected[source.name + source.extension] = source.text;
    for (const EmbeddedFile& header : source.headers->files) {
      expected["include/" + std::string(header.path)] = header.content;
    }
  }
  std::map<std::string, std::string> written = contents_of(folder.path);
  const nlohmann::json index = nlohmann::json::parse(written.at("index.json"));
  written.erase("index.json");
  EXPECT_EQ(written, expected);

  EXPECT_EQ(index["name"], "small");
  EXPECT_EQ(index["target"], "avx512");
  ASSERT_EQ(index["kernels"].size(), set.specs.size());
  for (std::size_t i = 0; i < set.specs.size(); ++i) {
    const nlohmann::json& entry = index["kernels"][i];
    EXPECT_EQ(entry["name"], name_of(set.specs[i]));
    EXPECT_EQ(kernel_spec_from_json(entry["spec"].dump()), set.specs[i]);
    EXPECT_EQ(entry["hash"], hash_hex(expected.at(entry["file"].get<std::string>())));
  }
}

TEST(Generate, ReportsEveryKernelOnce) {
  const TemporaryFolder folder;
  const KernelSet set = small_set();
  std::set<std::string> names;
  std::size_t calls = 0;
  generate(set, load_target("avx512"), folder.path, 4,
           [&](std::size_t done, std::size_t total, const std::string& name) {
             EXPECT_EQ(done, ++calls);
             EXPECT_EQ(total, set.specs.size());
             names.insert(name);
           });
  EXPECT_EQ(names.size(), set.specs.size());
}

TEST(Generate, GoesOnPastAnIllegalKernel) {
  const TemporaryFolder folder;
  const Target target = load_target("avx512");
  const std::string bad = "gemm_fp32_rrr_packb_193x960x256_1x1x1_12x32x1_avx512";
  const std::string foreign = "gemm_fp32_rrr_packb_48x192x256_1x1x1_6x16x1_avx2";
  KernelSet set = small_set();
  const std::size_t good = set.specs.size();
  set.specs.push_back(parse_name(bad));
  set.specs.push_back(parse_name(foreign));
  const GenerateResult result = generate(set, target, folder.path, 2);
  EXPECT_EQ(result.written, good);
  const std::string reason = family_of(Op::gemm).is_legal(parse_name(bad), target).reason;
  const std::vector<std::string> expected = {
      fmt::format("{}: {}", bad, reason),
      fmt::format("{}: the kernel is for target 'avx2', not 'avx512'", foreign)};
  EXPECT_EQ(result.errors, expected);
  EXPECT_EQ(contents_of(folder.path).count(bad + ".cc"), 0U);
  EXPECT_EQ(contents_of(folder.path).at("index.json").find(bad), std::string::npos);
}

TEST(Generate, RefusesAFolderThatCannotBeMade) {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "file";
  write_file(file, "in the way");
  for (const fs::path& bad : {file / "out", file}) {
    const std::string text = message_of(
        [&] { generate(small_set(), load_target("avx512"), bad, 4); }, ErrorCode::io_error);
    EXPECT_EQ(text.rfind(fmt::format("generate: cannot make the folder '{}': ", bad.string()), 0),
              0U)
        << text;
  }
  EXPECT_EQ(read_file(file), "in the way");
}

TEST(Generate, RefusesAFolderThatCannotBeWritten) {
  message_of([] { generate(small_set(), load_target("avx512"), "/proc/self", 4); },
             ErrorCode::io_error);
}

TEST(Generate, PassesOnWhatProgressThrows) {
  const TemporaryFolder folder;
  EXPECT_THROW(generate(small_set(), load_target("avx512"), folder.path, 4,
                        [](std::size_t, std::size_t, const std::string&) {
                          throw std::runtime_error("stop");
                        }),
               std::runtime_error);
}

TEST(Generate, WritesAnEmptyIndexForAnEmptySet) {
  const TemporaryFolder folder;
  const GenerateResult result = generate({"none", {}}, load_target("avx2"), folder.path, 4);
  EXPECT_EQ(result.written, 0U);
  EXPECT_EQ(contents_of(folder.path),
            (std::map<std::string, std::string>{
                {"index.json",
                 "{\n  \"name\": \"none\",\n  \"target\": \"avx2\",\n  \"kernels\": []\n}\n"}}));
}

}  // namespace
}  // namespace tessera
