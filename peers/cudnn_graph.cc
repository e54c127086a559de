#include "peers/cudnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <iterator>
#include <limits>
#include <set>

namespace tessera::peers::cudnn {
namespace {

constexpr std::int64_t kLeastWorkspace = std::int64_t{64} << 20;
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 30;
constexpr std::int64_t kMostKnobs = 64;
constexpr std::int64_t kInnerAlignment = 16;
constexpr std::size_t kKept = 3;  // of the search; the benchmark takes the fastest of them
// A search ends after so long, when so many engines were timed: some are compiled when their plan
// is made. PyTorch's own search ends after ten.
constexpr double kSearchSeconds = 4;
constexpr std::size_t kLeastTimed = 10;
constexpr std::array kPlaces = {"fastest of the search", "second of the search",
                                "third of the search"};

struct DataTypeRow {
  DType dtype;
  DataType type;
};
constexpr std::array kDataTypes = {
    DataTypeRow{DType::fp32, DataType::fp32}, DataTypeRow{DType::tf32, DataType::fp32},
    DataTypeRow{DType::fp16, DataType::fp16}, DataTypeRow{DType::bf16, DataType::bf16},
    DataTypeRow{DType::fp8, DataType::e4m3},  DataTypeRow{DType::bf8, DataType::e5m2},
    DataTypeRow{DType::int8, DataType::int8}, DataTypeRow{DType::int32, DataType::int32}};

// The largest power of two up to 128 that divides the address.
std::int64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::int64_t alignment = 1;
  while (alignment < 128 && address % (2 * static_cast<std::uintptr_t>(alignment)) == 0) {
    alignment *= 2;
  }
  return alignment;
}

// An engine with its knobs, and its plan once it was made.
struct Choice {
  Descriptor config;
  Descriptor plan;  // null: not made yet, or refused
  bool is_tried = false;
};

// ---- what the heuristics propose ----

class Proposals {
 public:
  Proposals(const Graph& graph, const Descriptor& finished) : graph_(graph), finished_(finished) {
    add_choices();
  }

  std::vector<Choice> choices;
  std::string last_refusal;

 private:
  const Library& library() const { return graph_.library(); }

  // The two kinds of heuristics take turns, so that a search that ends early has asked both.
  void add_choices() {
    const std::vector<Descriptor> instant = proposed(Mode::instant);
    const std::vector<Descriptor> by_network = proposed(Mode::by_network);
    for (std::size_t i = 0; i < std::max(instant.size(), by_network.size()); ++i) {
      if (i < instant.size()) add_choice(instant[i]);
      if (i < by_network.size()) add_choice(by_network[i]);
    }
    for (const Descriptor& config : proposed(Mode::fallback)) add_choice(config);
  }

  // Adds what is not there yet.
  void add_choice(const Descriptor& config) {
    if (known_.insert(tag_of(config)).second) {
      choices.push_back({.config = config, .plan = nullptr});
    }
  }

  // A mode may know nothing of a problem.
  std::vector<Descriptor> proposed(Mode mode) {
    const Library& lib = library();
    try {
      const Descriptor heuristics = lib.make(Kind::heuristics);
      lib.set(heuristics, Attribute::heuristics_graph, finished_);
      lib.set(heuristics, Attribute::heuristics_mode, As::heuristics_mode, 1, &mode);
      lib.finish(heuristics);
      const std::int64_t count =
          lib.get(heuristics, Attribute::heuristics_results, As::descriptor, 0, nullptr);
      std::vector<Descriptor> configs =
          lib.get_all(heuristics, Attribute::heuristics_results, Kind::config, count);
      std::erase_if(configs, [&](const Descriptor& each) { return !keeps_precision(each); });
      return configs;
    } catch (const Error& error) {
      last_refusal = error.what();
      return {};
    }
  }

  Descriptor engine_of(const Descriptor& config) const {
    return library().get_all(config, Attribute::config_engine, Kind::engine, 1).at(0);
  }

  // Engines that compute fp32 in tf32, or narrower types in narrower ones, answer another question.
  bool keeps_precision(const Descriptor& config) const {
    std::array<Note, 10> notes{};
    const std::int64_t count = library().get(engine_of(config), Attribute::engine_notes, As::note,
                                             std::ssize(notes), notes.data());
    return std::none_of(notes.begin(), notes.begin() + std::min(count, std::ssize(notes)),
                        [&](Note note) {
                          return note == Note::converts_inputs_down ||
                                 (graph_.is_fp32() && note == Note::tensor_core);
                        });
  }

  // Names the engine with its knobs.
  std::string tag_of(const Descriptor& config) const {
    const Library& lib = library();
    std::string tag = fmt::format("{}", lib.get_number(engine_of(config), Attribute::engine_index));
    for (const Descriptor& knob :
         lib.get_all(config, Attribute::config_knobs, Kind::knob, kMostKnobs)) {
      int type = 0;
      lib.get(knob, Attribute::knob_type, As::knob_type, 1, &type);
      tag += fmt::format(" {}={}", type, lib.get_number(knob, Attribute::knob_value));
    }
    return tag;
  }

  const Graph& graph_;
  const Descriptor& finished_;
  std::set<std::string> known_;
};

// ---- plans ----

class Plans {
 public:
  Plans(std::shared_ptr<Session> session, Graph graph)
      : session_(std::move(session)), graph_(std::move(graph)) {
    const Library& lib = library();
    finished_ = lib.make(Kind::graph);
    lib.set_handle(finished_, Attribute::graph_handle);
    lib.set(finished_, Attribute::graph_operations, graph_.operations());
    lib.finish(finished_);
    Proposals proposals(graph_, finished_);
    choices_ = std::move(proposals.choices);
    last_refusal_ = std::move(proposals.last_refusal);
    if (choices_.empty()) refuse();
  }

  std::size_t proposals() const { return choices_.size(); }

  // The first of the heuristics' choices that the library can build.
  void run_first() {
    for (Choice& choice : choices_) {
      if (build(choice)) return execute(choice);
    }
    refuse();
  }

  // The place-th fastest, counted from 0.
  void run_best(std::size_t place) {
    if (best_.empty()) search();
    execute(choices_[best_[std::min(place, best_.size() - 1)]]);
  }

 private:
  const Library& library() const { return *session_->library; }

  [[noreturn]] void refuse() const {
    throw Error(ErrorCode::unsupported,
                !last_refusal_.empty()
                    ? last_refusal_
                    : "cudnn cannot compute this problem: its heuristics propose no engine");
  }

  void execute(const Choice& choice) {
    if (pack_ == nullptr || packed_workspace_ != session_->workspace.data()) make_pack();
    library().execute(choice.plan, pack_);
  }

  void make_pack() {
    const Library& lib = library();
    packed_workspace_ = session_->workspace.data();
    pack_ = lib.make(Kind::pack);
    lib.set(pack_, Attribute::pack_ids, graph_.ids());
    lib.set(pack_, Attribute::pack_pointers, As::pointer, std::ssize(graph_.pointers()),
            static_cast<const void*>(graph_.pointers().data()));
    lib.set(pack_, Attribute::pack_workspace, As::pointer, 1,
            static_cast<const void*>(&packed_workspace_));
    lib.finish(pack_);
  }

  // Whether the choice has a plan, which is made at the first question.
  bool build(Choice& choice) {
    if (choice.is_tried) return choice.plan != nullptr;
    choice.is_tried = true;
    const Library& lib = library();
    try {
      const Descriptor plan = lib.make(Kind::plan);
      lib.set_handle(plan, Attribute::plan_handle);
      lib.set(plan, Attribute::plan_config, choice.config);
      lib.finish(plan);
      const std::int64_t bytes = lib.get_number(plan, Attribute::plan_workspace);
      if (bytes <= kMostWorkspace) {
        session_->reserve(bytes);
        choice.plan = plan;
      } else {
        last_refusal_ = fmt::format(
            "cudnn cannot compute this problem: it wants a workspace of {} bytes, at most {} bytes "
            "are lent",
            bytes, kMostWorkspace);
      }
    } catch (const Error& error) {
      last_refusal_ = error.what();
    }
    return choice.plan != nullptr;
  }

  // The seconds of a plan with cold caches, as the benchmark takes them. One that is far behind is
  // read twice only; the first reading loads its kernels.
  double seconds_of(const Choice& choice, double best, runtime::Stopwatch& watch) {
    constexpr int kReadings = 5;
    constexpr double kNear = 1.3;
    const auto call = [&] { execute(choice); };
    watch.read(call, 0);
    std::vector<double> seconds = {watch.read(call, 0)};
    while (std::ssize(seconds) < kReadings && seconds.front() < kNear * best) {
      seconds.push_back(watch.read(call, 0));
    }
    return runtime::quantile(seconds, 0.5);
  }

  void search() {
    runtime::Stopwatch watch(session_->place, {.min_seconds = 0, .flush_caches = true});
    std::vector<std::pair<double, std::size_t>> found;
    double best = std::numeric_limits<double>::infinity();
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      if (found.size() >= kLeastTimed && spent.count() > kSearchSeconds) break;
      if (!build(choices_[i])) continue;
      try {
        found.emplace_back(seconds_of(choices_[i], best, watch), i);
        best = std::min(best, found.back().first);
      } catch (const Error& error) {
        last_refusal_ = error.what();
      }
    }
    if (found.empty()) refuse();
    std::sort(found.begin(), found.end());
    for (std::size_t i = 0; i < std::min(kKept, found.size()); ++i) {
      best_.push_back(found[i].second);
    }
  }

  std::shared_ptr<Session> session_;
  Graph graph_;
  Descriptor finished_, pack_;
  const void* packed_workspace_ = nullptr;  // of the pack
  std::vector<Choice> choices_;
  std::vector<std::size_t> best_;  // indices of choices, fastest first
  std::string last_refusal_;
};

}  // namespace

std::optional<DataType> data_type_of(DType dtype) {
  for (const DataTypeRow& row : kDataTypes) {
    if (row.dtype == dtype) return row.type;
  }
  return std::nullopt;
}

Layout dense(DataType type, const std::vector<std::int64_t>& dims) {
  Layout layout{type, dims, std::vector<std::int64_t>(dims.size(), 1)};
  for (std::size_t i = dims.size() - 1; i-- > 0;) {
    layout.strides[i] = layout.strides[i + 1] * dims[i + 1];
  }
  return layout;
}

// ---- the graph ----

Descriptor Graph::tensor(const Layout& layout, std::int64_t alignment) {
  const Library& lib = library();
  const Descriptor made = make(Kind::tensor);
  lib.set(made, Attribute::tensor_type, layout.type);
  lib.set(made, Attribute::tensor_dims, layout.dims);
  lib.set(made, Attribute::tensor_strides, layout.strides);
  lib.set(made, Attribute::tensor_id, ++tensors_);
  lib.set(made, Attribute::tensor_alignment, alignment);
  return made;
}

Descriptor Graph::stored(const Layout& layout, const void* memory, const Descriptor& offsets) {
  const Descriptor made = tensor(layout, alignment_of(memory));
  ids_.push_back(tensors_);
  pointers_.push_back(memory);
  if (offsets != nullptr) library().set(made, Attribute::tensor_offsets, offsets);
  library().finish(made);
  return made;
}

Descriptor Graph::inner(const Layout& layout) {
  constexpr bool kYes = true;
  const Descriptor made = tensor(layout, kInnerAlignment);
  library().set(made, Attribute::tensor_is_virtual, As::boolean, 1, &kYes);
  library().finish(made);
  return made;
}

Descriptor Graph::number(DataType type, std::uint32_t bits) {
  constexpr bool kYes = true;
  const Descriptor made = tensor(dense(type, {1, 1, 1, 1}), kInnerAlignment);
  ids_.push_back(tensors_);
  pointers_.push_back(&numbers_.emplace_back(bits));
  library().set(made, Attribute::tensor_is_value, As::boolean, 1, &kYes);
  library().finish(made);
  return made;
}

Descriptor Graph::value(float number) {
  return this->number(DataType::fp32, std::bit_cast<std::uint32_t>(number));
}

Descriptor Graph::value(std::int32_t number) {
  return this->number(DataType::int32, std::bit_cast<std::uint32_t>(number));
}

void Graph::add(const Descriptor& operation) {
  library().finish(operation);
  operations_.push_back(operation);
}

// ---- calls ----

void Session::reserve(std::int64_t bytes) {
  const auto wanted = static_cast<std::size_t>(bytes);
  if (wanted <= workspace.size()) return;
  workspace = runtime::DeviceBuffer();
  workspace = runtime::DeviceBuffer(place, wanted);
}

std::shared_ptr<Session> start_session(std::shared_ptr<Library> library) {
  const runtime::Place place = place_of_peer("cudnn");
  auto session = std::make_shared<Session>(
      Session{library, place, runtime::DeviceBuffer(place, std::size_t{kLeastWorkspace})});
  library->start();
  return session;
}

std::vector<PeerCall> calls_of(std::shared_ptr<Session> session, Graph graph) {
  const auto plans = std::make_shared<Plans>(std::move(session), std::move(graph));
  std::vector<PeerCall> calls = {
      {"cudnn_first", "heuristics' first choice", [plans] { plans->run_first(); }}};
  for (std::size_t i = 0; i < std::min(kKept, plans->proposals()); ++i) {
    calls.push_back({"cudnn", kPlaces[i], [plans, i] { plans->run_best(i); }});
  }
  return calls;
}

}  // namespace tessera::peers::cudnn
