#include "tessera/jit/elf_internal.h"

#include <cstring>
#include <random>
#include <stdexcept>

#include "host/jit/fixtures.h"
#include "tessera/jit/compilers_internal.h"

namespace tessera::jit {
namespace {

BinaryKind kind(std::string_view file) {
  for (const BinaryKind& each : binary_kinds()) {
    if (each.file == file) return each;
  }
  throw std::out_of_range("no binary is a file of this name");
}

// A library that a linker wrote.
std::string real_library() { return read_file(FAKE_NVRTC); }

TEST(Elf, AWholeLibraryIsSound) {
  EXPECT_EQ(elf_damage(kind("kernel.so"), real_library()), "");
  EXPECT_EQ(elf_damage(kind("kernel.so"), library_of("more")), "");
  EXPECT_EQ(elf_damage(kind("object.o"), object_of("more")), "");
  EXPECT_EQ(elf_damage(kind("kernel.cubin"), cubin_of("more")), "");
}

TEST(Elf, NoTruncationOfALibraryGoesUnseen) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string whole = real_library();
  std::vector<std::size_t> sizes = {0, 1, 63, 64, 65, whole.size() / 2, whole.size() - 1};
  for (int i = 0; i < 200; ++i) sizes.push_back(random() % whole.size());
  for (const std::size_t size : sizes) {
    EXPECT_NE(elf_damage(kind("kernel.so"), std::string_view(whole).substr(0, size)), "") << size;
  }
}

// Whatever the headers say, nothing is read outside of the content: the sanitizers look on.
TEST(Elf, RandomHeadersAreReadWithinTheContent) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string whole = library_of("");
  for (int i = 0; i < 20000; ++i) {
    const std::unique_ptr<char[]> content(new char[whole.size()]);
    std::memcpy(content.get(), whole.data(), whole.size());
    for (int change = 0; change < 3; ++change) {
      content[EI_NIDENT + random() % (whole.size() - EI_NIDENT)] = static_cast<char>(random());
    }
    elf_damage(kind("kernel.so"), {content.get(), whole.size()});
  }
}

TEST(Elf, SaysWhatIsWrong) {
  const auto changed = [](std::size_t offset, auto value) {
    std::string content = library_of("");
    std::memcpy(content.data() + offset, &value, sizeof(value));
    return content;
  };
  constexpr std::size_t kSegment = sizeof(Elf64_Ehdr);
  constexpr std::size_t kSection = kSegment + sizeof(Elf64_Phdr) + sizeof(Elf64_Shdr);
  struct Case {
    std::string content;
    std::string damage;
  };
  const std::vector<Case> cases = {
      {"", "has 0 bytes, but an ELF header has 64"},
      {std::string(100, 'x'), "is not a 64-bit little-endian ELF file"},
      {changed(EI_CLASS, char{ELFCLASS32}), "is not a 64-bit little-endian ELF file"},
      {object_of(""), "must be an ELF file of type 3, got type 1"},
      {changed(offsetof(Elf64_Ehdr, e_machine), Elf64_Half{1}),
       fmt::format("must be for ELF machine {}, got machine 1", kMachine)},
      {changed(offsetof(Elf64_Ehdr, e_phentsize), Elf64_Half{32}),
       "must have program headers of 56 bytes, got 32"},
      {changed(offsetof(Elf64_Ehdr, e_shentsize), Elf64_Half{40}),
       "must have section headers of 64 bytes, got 40"},
      {changed(offsetof(Elf64_Ehdr, e_phoff), Elf64_Off{200}),
       "has 248 bytes, but its table of program headers has 56 at byte 200"},
      {changed(offsetof(Elf64_Ehdr, e_shoff), Elf64_Off{240}),
       "has 248 bytes, but its table of section headers has 128 at byte 240"},
      {changed(offsetof(Elf64_Ehdr, e_shoff), ~Elf64_Off{0}),
       "has 248 bytes, but its table of section headers has 128 at byte 18446744073709551615"},
      {changed(offsetof(Elf64_Ehdr, e_shnum), Elf64_Half{0}), "has no sections"},
      {changed(offsetof(Elf64_Ehdr, e_phnum), Elf64_Half{0}), "has no segment to load"},
      {changed(kSegment + offsetof(Elf64_Phdr, p_offset), Elf64_Off{1}),
       "has 248 bytes, but its segment 0 has 248 at byte 1"},
      {changed(kSection + offsetof(Elf64_Shdr, sh_size), Elf64_Xword{249}),
       "has 248 bytes, but its section 1 has 249 at byte 0"},
  };
  for (const Case& c : cases) EXPECT_EQ(elf_damage(kind("kernel.so"), c.content), c.damage);
  EXPECT_EQ(elf_damage(kind("kernel.cubin"), library_of("")),
            "must be an ELF file of type 2, got type 3");
}

}  // namespace
}  // namespace tessera::jit
