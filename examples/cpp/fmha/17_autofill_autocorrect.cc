// Fields that a declaration leaves out are filled with every value that is legal, and what is not
// legal is refused with the rule and both numbers: nothing is changed silently. What to take
// instead is asked for, not guessed.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <string>

namespace {

using Wishes = std::initializer_list<std::pair<const char*, const char*>>;

tessera::KernelSet filled(Wishes wishes) {
  tessera::KernelSetBuilder builder("filled", "sm90a");
  builder.op(tessera::Op::fmha);
  for (const auto& [field, pattern] : wishes) builder.where(field, pattern);
  return builder.build();
}

// The sentence that refuses a declaration; empty where nothing does.
std::string refusal_of(Wishes wishes) {
  try {
    filled(wishes);
  } catch (const tessera::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

int main() {
  // A pipeline and a type are enough: tiles, waves and stages are filled in.
  const tessera::KernelSet few = filled({{"pipeline", "tmaws"}, {"dtype", "bf16"}});
  std::printf("%zu kernels, the first is %s\n", few.specs.size(),
              name_of(few.specs.front()).c_str());
  for (const tessera::KernelSpec& spec : few.specs) {
    if (!tessera::is_legal(spec, tessera::load_target("sm90a"))) return 1;
  }

  const Wishes wrong[] = {{{"dtype", "bf16"}, {"tile", "100x*x*"}},    // no such tile
                          {{"dtype", "fp32"}, {"pipeline", "tmaws"}},  // 16 bits only
                          {{"dtype", "bf16"}, {"pipelin", "tmaws"}}};  // misspelt
  for (const Wishes& wishes : wrong) {
    const std::string sentence = refusal_of(wishes);
    std::printf("refused: %s\n", sentence.c_str());
    if (sentence.empty()) return 1;
  }

  // The correction: the kernels that are best for the problem that was meant.
  const tessera::Problem meant =
      tessera::parse_problem("fmha batch=1 heads=16 seqlen_q=100 seqlen_k=100 hdim=128 dtype=fp32");
  const tessera::KernelSet instead =
      tessera::KernelSetBuilder("instead", "sm90a").for_problem(meant, 1).build();
  std::printf("instead: %s\n", name_of(instead.specs.front()).c_str());
  return instead.specs.size() == 1 ? 0 : 1;
}
