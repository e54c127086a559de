// Fills in the page's template: tables are written here, and the page's script draws charts from
// one block of JSON. All text from outside is escaped for its place in the page.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/train/report.h"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

constexpr std::size_t kFeatures = 25;

// ---- text ----

// Escapes for text and for attributes in double quotes.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// JSON for a script element: ASCII only, without anything that could end the element or begin a
// comment.
std::string script_json(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

std::string micros(double seconds) { return fmt::format("{:.2f}", 1e6 * seconds); }

// The first cell of a row is its name. The cells of `left` columns hold words.
std::string table(const Cells& header, const std::vector<Cells>& rows, std::size_t left) {
  const auto row_of = [&](const Cells& cells, std::string_view tag) {
    std::string text = "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      text += fmt::format("<{0}{1}>{2}</{0}>", tag, i < left ? " class=\"word\"" : "",
                          escaped(cells[i]));
    }
    return text + "</tr>\n";
  };
  std::string text = "<table>\n<thead>\n" + row_of(header, "th") + "</thead>\n<tbody>\n";
  for (const Cells& cells : rows) text += row_of(cells, "td");
  return text + "</tbody>\n</table>\n";
}

// ---- tables ----

Cells summary_cells(std::string name, const Summary& s) {
  return {std::move(name), fmt::format("{}", s.problems),
          percent(s.mean), percent(s.p50),
          percent(s.p10),  percent(s.min),
          percent(s.top1), percent(s.top3),
          percent(s.top5), fmt::format("{:.4f}", s.ndcg)};
}
Cells summary_header() {
  return {"choice", "problems", "mean", "P50", "P10", "min", "top-1", "top-3", "top-5", "NDCG"};
}

std::string summary_table(const ReportData& data) {
  return table(summary_header(),
               {summary_cells("learned", data.learned.summary),
                summary_cells("analytic", data.analytic.summary),
                summary_cells("random", data.random.summary)},
               1);
}

std::string regret_table(const ReportData& data) {
  Cells header = {"mean (worst) regret after measuring"};
  for (const int top : kTop) header.push_back(fmt::format("best {}", top));
  std::vector<Cells> rows;
  const auto add = [&](const char* name, const Summary& s) {
    Cells cells = {name};
    for (std::size_t i = 0; i < kTop.size(); ++i) {
      cells.push_back(
          fmt::format("{} ({})", percent(s.mean_regret[i]), percent(s.worst_regret[i])));
    }
    rows.push_back(std::move(cells));
  };
  add("learned", data.learned.summary);
  add("analytic", data.analytic.summary);
  add("random", data.random.summary);
  return table(header, rows, 1);
}

std::string slice_table(const ReportData& data) {
  Cells header = summary_header();
  header[0] = "slice (learned)";
  std::vector<Cells> rows;
  for (const Slice& slice : data.learned.slices) {
    rows.push_back(summary_cells(slice.by + " " + slice.value, slice.summary));
  }
  return table(header, rows, 1);
}

std::string worst_table(const ReportData& data) {
  std::vector<Cells> rows;
  for (const ProblemResult& r : data.learned.worst) {
    rows.push_back({to_string(data.problems[r.problem]), r.chosen, r.best, percent(r.efficiency),
                    micros(r.chosen_seconds), micros(r.best_seconds)});
  }
  return table({"problem", "chosen", "best", "efficiency", "chosen, us", "best, us"}, rows, 3);
}

std::string facts_table(const ReportData& data) {
  std::string text = "<dl>\n";
  for (const auto& [name, value] : data.facts) {
    text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
  }
  return text + "</dl>\n";
}

std::string importance_table(const ReportData& data) {
  std::vector<Cells> rows;
  for (const FeatureGain& f : data.importance) {
    if (rows.size() == kFeatures) break;
    rows.push_back({f.feature, percent(f.gain), fmt::format("{}", f.splits)});
  }
  return table({"feature", "share of gain", "splits"}, rows, 1);
}

// ---- charts ----

Json sorted_efficiencies(const Evaluation& evaluation) {
  std::vector<double> values;
  for (const ProblemResult& r : evaluation.results) values.push_back(r.efficiency);
  std::sort(values.begin(), values.end());
  return values;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::array<Axis, 2> axes_of(const Problem& problem) {
  return family_of(problem).facts(problem).axes;
}

// One entry for each octave of the two axes: [floor(log2 row), floor(log2 column), median
// efficiency, number of problems, least efficiency]. A size of 0 belongs to no octave.
Json heat_cells(const ReportData& data) {
  std::map<std::pair<int, int>, std::vector<double>> cells;
  for (const ProblemResult& r : data.learned.results) {
    const auto [row, column] = axes_of(data.problems[r.problem]);
    if (row.size < 1 || column.size < 1) continue;
    cells[{std::ilogb(static_cast<double>(row.size)), std::ilogb(static_cast<double>(column.size))}]
        .push_back(r.efficiency);
  }
  Json list = Json::array();
  for (const auto& [place, values] : cells) {
    list.push_back({place.first, place.second, median(values), values.size(),
                    *std::min_element(values.begin(), values.end())});
  }
  return list;
}

Json chart_data(const ReportData& data) {
  const std::array<Axis, 2> axes = axes_of(data.problems.at(0));
  Json importance = Json::array();
  for (std::size_t i = 0; i < std::min(kFeatures, data.importance.size()); ++i) {
    importance.push_back({data.importance[i].feature, data.importance[i].gain});
  }
  Json times = Json::array();
  for (const PredictedTime& t : data.times) times.push_back({t.predicted, t.measured});
  Json points = Json::array();
  for (const RoofPoint& p : data.chosen) {
    points.push_back({p.intensity, p.flops_per_second, to_string(data.problems[p.problem])});
  }
  Json roofs = Json::array();
  for (const Roof& r : data.roofs) {
    roofs.push_back({r.name, r.flops_per_second, r.bytes_per_second});
  }
  return {{"curves",
           {{"learned", sorted_efficiencies(data.learned)},
            {"analytic", sorted_efficiencies(data.analytic)},
            {"random", sorted_efficiencies(data.random)}}},
          {"axes", {axes[0].name, axes[1].name}},
          {"heat", heat_cells(data)},
          {"importance", importance},
          {"calibration", times},
          {"roofline", {{"points", points}, {"roofs", roofs}}}};
}

std::string calibration_text(const ReportData& data) {
  if (data.times.empty()) {
    return "<p>The model ranks kernels and predicts no times.</p>\n";
  }
  double sum = 0;
  for (const PredictedTime& t : data.times) sum += std::abs(std::log(t.predicted / t.measured));
  const double factor = std::exp(sum / static_cast<double>(data.times.size()));
  return fmt::format(
      "<p>{} rows drawn at random. Predictions are off by a factor of {:.3f} in the mean "
      "(geometric).</p>\n",
      data.times.size(), factor);
}

std::string_view page_file(std::string_view name) {
  for (const EmbeddedFile& file : report_files()) {
    if (file.path == name) return file.content;
  }
  throw Error(ErrorCode::internal, fmt::format("report: the page has no file {}", name));
}

// Replaces each name in double braces by its value. Values are not searched for names.
std::string filled(std::string_view page, const std::map<std::string, std::string>& values) {
  std::string out;
  while (true) {
    const std::size_t open = page.find("{{");
    out += page.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = page.find("}}", open);
    out += values.at(std::string(page.substr(open + 2, close - open - 2)));
    page.remove_prefix(close + 2);
  }
}

}  // namespace

std::string_view report_style() { return page_file("page.css"); }

std::string report_page(const ReportData& data) {
  const std::array<Axis, 2> axes = axes_of(data.problems.at(0));
  return filled(page_file("page.html"), {{"title", escaped(data.title)},
                                         {"rows", escaped(axes[0].name)},
                                         {"columns", escaped(axes[1].name)},
                                         {"style", std::string(page_file("page.css"))},
                                         {"script", std::string(page_file("page.js"))},
                                         {"facts", facts_table(data)},
                                         {"summary", summary_table(data)},
                                         {"regret", regret_table(data)},
                                         {"slices", slice_table(data)},
                                         {"worst", worst_table(data)},
                                         {"importance", importance_table(data)},
                                         {"calibration", calibration_text(data)},
                                         {"data", script_json(chart_data(data))}});
}

}  // namespace tessera::train
