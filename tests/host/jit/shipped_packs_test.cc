#include "tessera/jit/shipped_packs.h"

#include <algorithm>

#include "host/jit/fixtures.h"
#include "tessera/jit/build.h"
#include "tessera/jit/pack.h"

namespace tessera::jit {
namespace {

class ShippedPacks : public testing::Test {
 protected:
  void add_pack(const fs::path& file) {
    write_file(temp_ / "binary", "a kernel");
    const PackInput input{.entry = {.name = "gemm_a", .source_key = kKeyA, .target = "avx2"},
                          .binary = temp_ / "binary"};
    write_pack(file, std::vector{input});
  }
  std::vector<fs::path> of_folder(const fs::path& folder) const {
    std::vector<fs::path> found = shipped_packs();
    std::erase_if(found, [&](const fs::path& file) { return file.parent_path() != folder; });
    return found;
  }

  TempFolder temp_;
};

TEST_F(ShippedPacks, OfAnAddedFolderAreListedOnceAndSorted) {
  const fs::path folder = temp_ / "package";
  fs::create_directories(folder);
  for (const char* name : {"second.pack", "first.pack"}) add_pack(folder / name);
  write_file(folder / "notes.txt", "not a pack");
  EXPECT_TRUE(of_folder(folder).empty());
  for (int i = 0; i < 2; ++i) add_packs(folder);
  EXPECT_EQ(of_folder(folder), (std::vector{folder / "first.pack", folder / "second.pack"}));
}

TEST_F(ShippedPacks, OfAFolderThatIsMissingAreNone) {
  add_packs(temp_ / "nowhere");
  EXPECT_TRUE(of_folder(temp_ / "nowhere").empty());
}

}  // namespace
}  // namespace tessera::jit
