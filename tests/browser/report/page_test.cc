// The report page in a real browser. Needs Chromium; skips with a sentence where there is none.
#include <gtest/gtest.h>

#include <filesystem>

#include "host/train/report_data.h"
#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/train/report.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

// The first of Chromium's names that is on PATH; empty: none.
std::string find_browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    const fs::path found = find_executable(name);
    if (!found.empty()) return found.string();
  }
  return {};
}

class ReportPage : public testing::Test {
 protected:
  void SetUp() override {
    browser_ = find_browser();
    if (browser_.empty()) {
      GTEST_SKIP() << "Chromium is not on PATH; 'apt-get install chromium' brings it";
    }
    const Target target = load_target("avx512");
    const std::string forest = testing_support::estimate_forest(family_of(Op::gemm).features());
    train::ReportData report =
        make_report(testing_support::noisy_data(target, 200, 5, 1), target,
                    testing_support::estimate_model(target), feature_gains(forest, "model"));
    // Gains as a trained forest has them; the tests' forest asks for one feature only.
    for (std::size_t i = 0; i < report.importance.size(); ++i) {
      report.importance[i].gain = 0.3 / static_cast<double>((i + 1) * (i + 1));
    }
    report.facts.emplace_back("</script><script>console.error('escaped')</script>", "<b>bold</b>");
    points_ = report.times.size();
    problems_ = report.problems.size();
    // Errors that no script catches become an attribute that the test finds.
    std::string page = train::report_page(report);
    const std::string head = "<head>\n";
    page.insert(page.find(head) + head.size(),
                "<script>addEventListener('error', (e) => "
                "document.documentElement.setAttribute('data-error', e.message));</script>\n");
    write_file(folder_ / "page.html", page);
  }
  ~ReportPage() override { remove_tree(folder_); }

  // What the browser prints on both streams.
  std::string browse(std::vector<std::string> words) const {
    std::vector<std::string> argv = {browser_,
                                     "--headless",
                                     "--no-sandbox",
                                     "--disable-gpu",
                                     "--disable-dev-shm-usage",
                                     "--enable-logging=stderr",
                                     "--virtual-time-budget=5000",
                                     "--user-data-dir=" + (folder_ / "profile").string()};
    argv.insert(argv.end(), words.begin(), words.end());
    argv.push_back("file://" + (folder_ / "page.html").string());
    SubprocessOptions options;
    options.timeout_seconds = 120;
    const SubprocessResult result = run_subprocess(argv, options);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  }

  static std::size_t count(const std::string& text, const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
    return found;
  }

  // The marks in a chart's figure.
  static std::size_t marks(const std::string& dom, const std::string& chart) {
    const std::size_t begin = dom.find("<figure data-chart=\"" + chart + "\"");
    EXPECT_NE(begin, std::string::npos) << chart;
    return count(dom.substr(begin, dom.find("</figure>", begin) - begin), "data-mark");
  }

  std::string browser_;
  fs::path folder_ = make_unique_folder(fs::temp_directory_path(), "tessera-page-");
  std::size_t points_ = 0;
  std::size_t problems_ = 0;
};

TEST_F(ReportPage, EveryChartIsDrawnWithoutErrors) {
  const std::string dom = browse({"--dump-dom"});
  EXPECT_EQ(dom.find("data-error=\""), std::string::npos) << dom.substr(0, 2000);
  EXPECT_EQ(dom.find(":CONSOLE"), std::string::npos) << dom.substr(0, 2000);
  EXPECT_EQ(marks(dom, "curves"), 3U);
  EXPECT_GT(marks(dom, "heat"), 10U);
  EXPECT_EQ(marks(dom, "importance"), 25U);
  EXPECT_EQ(marks(dom, "calibration"), points_);
  EXPECT_EQ(marks(dom, "roofline"), problems_ + 1);
  EXPECT_EQ(count(dom, "NaN"), 0U);
}

TEST_F(ReportPage, FitsAPhoneAndADesk) {
  for (const char* size : {"390,4000", "1200,3600"}) {
    const fs::path picture = folder_ / "page.png";
    browse({"--hide-scrollbars", fmt::format("--window-size={}", size),
            "--screenshot=" + picture.string()});
    ASSERT_TRUE(fs::exists(picture));
    EXPECT_GT(fs::file_size(picture), 20000U) << "an empty page is smaller";
    fs::remove(picture);
  }
}

}  // namespace
}  // namespace tessera::train
