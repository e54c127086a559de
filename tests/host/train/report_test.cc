#include "tessera/train/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "host/train/report_data.h"

namespace tessera::train {
namespace {

using testing_support::estimate_forest;
using testing_support::estimate_model;
using testing_support::noisy_data;
using Json = nlohmann::json;

const Target& target() {
  static const Target row = load_target("avx512");
  return row;
}

struct Made {
  std::uint64_t seed = std::random_device{}();
  Dataset data = noisy_data(target(), 40, 3, seed);
  ReportData report =
      make_report(data, target(), estimate_model(target()),
                  feature_gains(estimate_forest(family_of(Op::gemm).features()), "model"));
};

// What stands between two texts, the first of which comes once.
std::string between(const std::string& page, const std::string& from, const std::string& to) {
  const std::size_t begin = page.find(from);
  EXPECT_NE(begin, std::string::npos) << from;
  EXPECT_EQ(page.find(from, begin + 1), std::string::npos) << from;
  const std::size_t start = begin + from.size();
  return page.substr(start, page.find(to, start) - start);
}

Json data_of(const std::string& page) {
  return Json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
}

// Every element is closed in order; raw text of scripts and styles is skipped. Returns the tags.
std::vector<std::string> tags_of(const std::string& page) {
  static const std::vector<std::string> kVoid = {"meta", "link", "!doctype"};
  std::vector<std::string> open, all;
  std::size_t at = 0;
  while ((at = page.find('<', at)) != std::string::npos) {
    const std::size_t end = page.find('>', at);
    const bool closes = page[at + 1] == '/';
    const std::size_t name_at = at + (closes ? 2 : 1);
    const std::string name = page.substr(name_at, page.find_first_of(" >", name_at) - name_at);
    at = end + 1;
    all.push_back(name);
    if (closes) {
      EXPECT_FALSE(open.empty());
      if (open.empty()) return all;
      EXPECT_EQ(open.back(), name);
      open.pop_back();
    } else if (std::find(kVoid.begin(), kVoid.end(), name) == kVoid.end()) {
      open.push_back(name);
      if (name == "script" || name == "style") at = page.find("</" + name, at);
    }
  }
  EXPECT_TRUE(open.empty());
  return all;
}

TEST(Report, PageIsWellFormedAndAlone) {
  const Made made;
  SCOPED_TRACE(made.seed);
  const std::string page = report_page(made.report);
  const std::vector<std::string> tags = tags_of(page);
  EXPECT_EQ(std::count(tags.begin(), tags.end(), "figure"), 2 * 5);
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("}) {
    std::string rest = page;
    const std::string space = "http://www.w3.org/2000/svg";  // a name, not an address
    const std::size_t found = rest.find(space);
    if (found != std::string::npos) rest.erase(found, space.size());
    EXPECT_EQ(rest.find(outside), std::string::npos) << outside;
  }
}

TEST(Report, TablesHoldTheMetrics) {
  const Made made;
  SCOPED_TRACE(made.seed);
  const ReportData& r = made.report;
  const std::string page = report_page(r);
  const auto percent = [](double share) { return fmt::format("<td>{:.2f}%</td>", 100 * share); };
  const auto row = [&](const std::string& name, const Summary& s) {
    return fmt::format("<tr><td class=\"word\">{}</td><td>{}</td>{}{}{}{}{}{}{}", name, s.problems,
                       percent(s.mean), percent(s.p50), percent(s.p10), percent(s.min),
                       percent(s.top1), percent(s.top3), percent(s.top5));
  };
  const std::string summary = between(page, "<section id=\"summary\">", "</section>");
  EXPECT_NE(summary.find(row("learned", r.learned.summary)), std::string::npos);
  EXPECT_NE(summary.find(row("analytic", r.analytic.summary)), std::string::npos);
  EXPECT_NE(summary.find(row("random", r.random.summary)), std::string::npos);
  EXPECT_NE(page.find(" kernels, on an EPYC, another one"), std::string::npos);
  const std::string slices = between(page, "<section id=\"slices\">", "</section>");
  for (const Slice& slice : r.learned.slices) {
    EXPECT_NE(slices.find(row(slice.by + " " + slice.value, slice.summary)), std::string::npos);
  }
  const std::string worst = between(page, "<section id=\"worst\">", "</section>");
  ASSERT_EQ(r.learned.worst.size(), 10U);
  for (const ProblemResult& o : r.learned.worst) {
    EXPECT_NE(worst.find(fmt::format("<td class=\"word\">{}</td><td class=\"word\">{}</td>"
                                     "<td class=\"word\">{}</td>{}",
                                     to_string(r.problems[o.problem]), o.chosen, o.best,
                                     percent(o.efficiency))),
              std::string::npos);
  }
}

TEST(Report, ChartsHoldTheMetrics) {
  const Made made;
  SCOPED_TRACE(made.seed);
  const ReportData& r = made.report;
  const Json data = data_of(report_page(r));
  std::vector<double> efficiencies;
  for (const ProblemResult& o : r.learned.results) efficiencies.push_back(o.efficiency);
  std::sort(efficiencies.begin(), efficiencies.end());
  EXPECT_EQ(data.at("curves").at("learned"), efficiencies);
  EXPECT_EQ(data.at("curves").at("random").size(), efficiencies.size());
  std::size_t counted = 0;
  for (const Json& cell : data.at("heat")) counted += cell.at(3).get<std::size_t>();
  EXPECT_EQ(counted, r.learned.results.size());
  EXPECT_EQ(data.at("axes"), Json::parse(R"(["M", "N"])"));
  EXPECT_NE(report_page(r).find("<h2>Efficiency by M and N</h2>"), std::string::npos);
  EXPECT_EQ(data.at("importance").size(), 25U);
  EXPECT_EQ(data.at("importance").at(0), Json::parse(R"(["log2_seconds", 1.0])"));
  EXPECT_EQ(data.at("calibration").size(), std::min(made.data.rows.size(), kMostPoints));
  EXPECT_EQ(data.at("roofline").at("points").size(), efficiencies.size());
  // 2 threads x 3 GHz x 2 instructions x 16 lanes x 2; 204.8 GB/s.
  EXPECT_EQ(data.at("roofline").at("roofs"), Json::parse(R"([["fp32", 384e9, 204.8e9]])"));
}

TEST(Report, PredictionsAreTheModels) {
  const Made made;
  SCOPED_TRACE(made.seed);
  std::multiset<std::pair<double, double>> expected;
  for (const ScoredRow& row : score_model(made.data, target(), estimate_model(target()))) {
    expected.emplace(-row.score, row.seconds);
  }
  EXPECT_EQ(made.report.times.size(), std::min(expected.size(), kMostPoints));
  for (const PredictedTime& t : made.report.times) {
    const auto found = expected.find({t.predicted, t.measured});
    ASSERT_NE(found, expected.end());
    expected.erase(found);
  }
}

TEST(Report, SameDataSamePage) {
  const Made made;
  const ReportData again =
      make_report(made.data, target(), estimate_model(target()), made.report.importance);
  EXPECT_EQ(report_page(again), report_page(made.report));
}

TEST(Report, HostileNamesStayText) {
  Made made;
  const std::string hostile = "</script><script>alert(1)</script>&\"'<!--\xff {{data}}";
  ReportData& r = made.report;
  const std::vector<std::string> tags = tags_of(report_page(r));
  r.title += hostile;
  r.facts.emplace_back(hostile, hostile);
  r.learned.worst[0].chosen = r.learned.worst[0].best = hostile;
  r.learned.slices[0].value = hostile;
  r.importance[0].feature = hostile;
  r.roofs[0].name = hostile;
  std::vector<std::string> expected = tags;
  const std::string page = report_page(r);
  std::vector<std::string> got = tags_of(page);
  EXPECT_EQ(got.size(), expected.size() + 4) << "one more fact: dt and dd";
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  const Json data = data_of(page);
  EXPECT_EQ(data.at("importance").at(0).at(0),
            "</script><script>alert(1)</script>&\"'<!--\xef\xbf\xbd {{data}}");
}

TEST(Report, RankingModelHasNoCalibration) {
  const Made made;
  auto model = std::make_shared<Model>(*estimate_model(target()));
  model->manifest.quantity = ModelQuantity::rank;
  model->manifest.transform = ModelTransform::none;
  const ReportData r = make_report(made.data, target(), model, {});
  EXPECT_TRUE(r.times.empty());
  EXPECT_NE(report_page(r).find("The model ranks kernels and predicts no times."),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
