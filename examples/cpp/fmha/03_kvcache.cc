// A server's cache: texts of different lengths grow in the pages of one cache. Each step appends
// their new tokens, turned by their positions, and attends over all that they have.
#include <tessera/tessera.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kServerTexts = 3, kServerHeads = 8, kServerHeadsKv = 2, kServerHdim = 32;
constexpr std::int64_t kServerPageSize = 16, kServerPages = 24, kServerMostPages = 8;
constexpr std::int64_t kServerRoom = kServerMostPages * kServerPageSize,
                       kServerPairs = kServerHdim / 2;

std::vector<float> table_of(double (*of)(double)) {
  std::vector<float> table;
  for (std::int64_t i = 0; i < kServerRoom * kServerPairs; ++i) {
    const double rate = std::pow(10000.0, -double(i % kServerPairs) / kServerPairs);
    table.push_back(float(of(double(i / kServerPairs) * rate)));
  }
  return table;
}

// Numbers of a token of a text, which are the same however texts are batched.
float number(std::int64_t text, std::int64_t token, std::int64_t i) {
  return float((text * 7 + token * 13 + i * 29) % 31) / 16.0F - 1.0F;
}

// Pages are given out as texts grow.
struct Server {
  std::vector<float> k, v, cos = table_of(std::cos), sin = table_of(std::sin);
  std::vector<std::int32_t> table, lengths;
  std::int32_t next_page = 0;
  tessera::Dispatcher dispatcher;

  explicit Server(std::int64_t texts)
      : k(std::size_t(kServerPages * kServerPageSize * kServerHeadsKv * kServerHdim), NAN),
        v(k.size(), NAN),
        table(std::size_t(texts * kServerMostPages), 0),
        lengths(std::size_t(texts), 0) {}

  void take_pages(std::int64_t tokens) {
    for (std::size_t text = 0; text < lengths.size(); ++text) {
      const std::int64_t has = (lengths[text] + kServerPageSize - 1) / kServerPageSize;
      const std::int64_t needs = (lengths[text] + tokens + kServerPageSize - 1) / kServerPageSize;
      for (std::int64_t i = has; i < needs; ++i) {
        table[text * kServerMostPages + std::size_t(i)] = next_page++;
      }
    }
  }

  tessera::FmhaProblem problem(std::int64_t tokens) const {
    tessera::FmhaProblem p =
        tessera::fmha_problem(tessera::DType::fp32, std::int64_t(lengths.size()), kServerHeads,
                              kServerHeadsKv, tokens, kServerRoom, kServerHdim);
    p.pages = tessera::FmhaPages::table;
    p.page_size = kServerPageSize;
    p.num_pages = kServerPages;
    p.check_pages = true;
    return p;
  }

  // What attention gives for `tokens` new tokens of each text, (texts, tokens, heads, hdim); empty
  // where a page is out of range. `first` is the number of the first text.
  std::vector<float> step(std::int64_t first, std::int64_t tokens) {
    take_pages(tokens);
    const std::int64_t texts = std::int64_t(lengths.size());
    const auto draw = [&](std::int64_t heads) {
      std::vector<float> all;
      for (std::int64_t t = 0; t < texts * tokens; ++t) {
        const std::int64_t place = lengths[std::size_t(t / tokens)] + t % tokens;
        for (std::int64_t i = 0; i < heads * kServerHdim; ++i) {
          all.push_back(number(first + t / tokens, place, i + heads));
        }
      }
      return all;
    };
    std::vector<float> q = draw(kServerHeads), out(q.size(), NAN);
    const std::vector<float> k_new = draw(kServerHeadsKv), v_new = draw(kServerHeadsKv);
    std::int32_t bad_page[4] = {};

    tessera::FmhaProblem append = problem(tokens);
    append.kind = tessera::FmhaKind::append;
    append.rotary = tessera::FmhaRotary::half;
    append.rotate_q = true;
    dispatcher.run(append, tessera::FmhaOperands{.q = q.data(),
                                                 .k = k.data(),
                                                 .v = v.data(),
                                                 .seqlens_k = lengths.data(),
                                                 .page_table = table.data(),
                                                 .out = q.data(),
                                                 .bad_page = bad_page,
                                                 .k_new = k_new.data(),
                                                 .v_new = v_new.data(),
                                                 .cos = cos.data(),
                                                 .sin = sin.data()});
    if (bad_page[0] != 0) {
      std::printf("text %d has page %d\n", bad_page[1], bad_page[3]);
      return {};
    }
    for (std::int32_t& length : lengths) length += std::int32_t(tokens);

    tessera::FmhaProblem read = problem(tokens);
    read.lengths = tessera::FmhaLengths::padded;
    read.mask = tessera::FmhaMask::bottom_right;
    const std::vector<std::int32_t> queries(lengths.size(), std::int32_t(tokens));
    dispatcher.run(read, tessera::FmhaOperands{.q = q.data(),
                                               .k = k.data(),
                                               .v = v.data(),
                                               .seqlens_q = queries.data(),
                                               .seqlens_k = lengths.data(),
                                               .page_table = table.data(),
                                               .out = out.data(),
                                               .bad_page = bad_page});
    return out;
  }
};

}  // namespace

int main() {
  Server all(kServerTexts);
  std::vector<std::vector<float>> results;
  for (const std::int64_t tokens : {20, 1, 1, 13}) results.push_back(all.step(0, tokens));

  // Each text by itself, its pages in another order, gives the same.
  double largest = 0;
  for (std::int64_t text = 0; text < kServerTexts; ++text) {
    Server alone(1);
    std::size_t step = 0;
    for (const std::int64_t tokens : {20, 1, 1, 13}) {
      const std::vector<float> own = alone.step(text, tokens);
      const float* const batched = results[step++].data() + std::size_t(text) * own.size();
      for (std::size_t i = 0; i < own.size(); ++i) {
        const double apart = std::abs(double(own[i]) - double(batched[i]));
        largest = apart >= largest || std::isnan(apart) ? apart : largest;
      }
    }
  }
  std::printf("%d tokens of each text in %d pages; alone and in a batch they differ by %.1e\n",
              all.lengths[0], all.next_page, largest);

  all.table[kServerMostPages + 2] = 99;  // where the second text's next token goes
  return largest < 1e-6 && all.step(0, 1).empty() ? 0 : 1;
}
