// Later parts of several prompts at once: packed queries of any lengths over a cache of pages, by a
// table with a row for each text (vLLM) and by a list of all pages (SGLang).
#include <tessera/tessera.hpp>

#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kPromptTexts = 3, kPromptHeads = 8, kPromptHeadsKv = 2, kPromptHdim = 32;
constexpr std::int64_t kPromptPageSize = 16, kPromptPages = 12, kPromptMostPages = 3;

struct Texts {
  std::vector<std::int32_t> starts = {0, 7, 8, 28};  // of queries: 7, 1 and 20
  std::vector<std::int32_t> keys = {40, 33, 20};     // with the queries' own
  std::vector<std::int32_t> table = {5, 0, 9, 2, 11, 7, 4, 1, 0};
  std::vector<std::int32_t> list = {5, 0, 9, 2, 11, 7, 4, 1};  // without the entry that is not used
  std::vector<std::int32_t> list_starts = {0, 3, 6, 8};
};

std::vector<float> draw(std::int64_t count, int seed) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(float((i * 37 + seed) % 64) / 32.0F - 1);
  return all;
}

// Throws unless every element is within its tolerance of the fp64 reference.
void run(tessera::Dispatcher& dispatcher, const tessera::FmhaProblem& problem,
         const tessera::FmhaOperands& operands) {
  dispatcher.run(problem, operands, {.verify = true});
  std::printf("%s\n  %s: right\n", to_string(tessera::Problem(problem)).c_str(),
              dispatcher.kernel_for(problem).name.c_str());
}

}  // namespace

int main() {
  const Texts texts;
  const std::int64_t tokens = texts.starts.back();
  const std::vector<float> q = draw(tokens * kPromptHeads * kPromptHdim, 1);
  const std::vector<float> k =
      draw(kPromptPages * kPromptPageSize * kPromptHeadsKv * kPromptHdim, 2);
  const std::vector<float> v =
      draw(kPromptPages * kPromptPageSize * kPromptHeadsKv * kPromptHdim, 3);
  std::vector<float> by_table(q.size()), by_list(q.size());

  tessera::FmhaProblem problem =
      tessera::fmha_problem(tessera::DType::fp32, kPromptTexts, kPromptHeads, kPromptHeadsKv, 20,
                            kPromptMostPages * kPromptPageSize, kPromptHdim);  // the longest texts
  problem.lengths = tessera::FmhaLengths::packed;
  problem.tokens_q = tokens;
  problem.mask = tessera::FmhaMask::bottom_right;
  problem.page_size = kPromptPageSize;
  problem.num_pages = kPromptPages;
  problem.pages = tessera::FmhaPages::table;

  tessera::FmhaOperands operands = {.q = q.data(),
                                    .k = k.data(),
                                    .v = v.data(),
                                    .seqlens_q = texts.starts.data(),
                                    .seqlens_k = texts.keys.data(),
                                    .page_table = texts.table.data(),
                                    .out = by_table.data()};
  tessera::Dispatcher dispatcher;
  run(dispatcher, problem, operands);

  problem.pages = tessera::FmhaPages::list;
  problem.page_entries = std::int64_t(texts.list.size());
  operands.page_table = texts.list.data();
  operands.page_starts = texts.list_starts.data();
  operands.out = by_list.data();
  run(dispatcher, problem, operands);
  return by_table == by_list ? 0 : 1;
}
