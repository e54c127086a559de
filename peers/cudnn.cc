// cuDNN as a peer, with its own search on: all engines that its heuristics propose for the graph of
// one convolution are built and timed at the first call, and the fastest take part. The first
// choice of the heuristics, which is what one gets without a search, takes part too.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "peers/conv_tensors.h"
#include "peers/cudnn_api.h"
#include "peers/peers.h"

namespace tessera::peers {
namespace {

using cudnn::As;
using cudnn::Attribute;
using cudnn::DataType;
using cudnn::Descriptor;
using cudnn::Kind;

constexpr std::int64_t kLeastWorkspace = std::int64_t{64} << 20;
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 30;
constexpr std::int64_t kMostKnobs = 64;
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
std::optional<DataType> data_type_of(DType dtype) {
  for (const DataTypeRow& row : kDataTypes) {
    if (row.dtype == dtype) return row.type;
  }
  return std::nullopt;
}

struct OperationRow {
  Kind kind;
  Attribute alpha;  // beta, convolution, w, x and y follow
};
constexpr std::array kOperations = {
    OperationRow{Kind::forward, Attribute::forward_alpha},
    OperationRow{Kind::backward_data, Attribute::backward_data_alpha},
    OperationRow{Kind::backward_weight, Attribute::backward_weight_alpha}};

// The names of the tensors in the graph, and their pointers.
constexpr std::array<std::int64_t, 3> kIds = {1, 2, 3};  // x, w, y
std::array<const void*, 3> pointers_of(const ConvProblem& p, const ConvOperands& o) {
  const void* const x = p.direction == ConvDirection::backward_data ? o.grad_in : o.in;
  const void* const w = p.direction == ConvDirection::backward_weight ? o.grad_weight : o.weight;
  const void* const y = p.direction == ConvDirection::forward ? o.out : o.grad_out;
  return {x, w, y};
}

// The largest power of two up to 128 that divides the address.
std::int64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::int64_t alignment = 1;
  while (alignment < 128 && address % (2 * static_cast<std::uintptr_t>(alignment)) == 0) {
    alignment *= 2;
  }
  return alignment;
}

// What all problems share on the device.
struct Session {
  std::shared_ptr<cudnn::Library> library;
  runtime::Place place;
  runtime::DeviceBuffer workspace;

  // Gives the workspace at least so many bytes; it may then lie elsewhere.
  void reserve(std::int64_t bytes) {
    const auto wanted = static_cast<std::size_t>(bytes);
    if (wanted <= workspace.size()) return;
    workspace = runtime::DeviceBuffer();
    workspace = runtime::DeviceBuffer(place, wanted);
  }
};

// An engine with its knobs, and its plan once it was made.
struct Choice {
  Descriptor config;
  Descriptor plan;  // null: not made yet, or refused
  bool is_tried = false;
};

class Convolution {
 public:
  Convolution(std::shared_ptr<Session> session, const ConvProblem& problem,
              const ConvTensors& tensors, const ConvOperands& operands)
      : session_(std::move(session)),
        problem_(with_strides(problem)),
        pointers_(pointers_of(problem_, operands)) {
    make_graph(tensors);
    add_choices();
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
  const cudnn::Library& library() const { return *session_->library; }

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

  void set_type(const Descriptor& descriptor, Attribute attribute, DataType type) const {
    library().set(descriptor, attribute, As::data_type, 1, &type);
  }

  // A part of the graph, which lives as long as the graph.
  Descriptor make_part(Kind kind) { return parts_.emplace_back(library().make(kind)); }

  Descriptor tensor_of(const ConvTensor& tensor, std::int64_t id, const void* pointer) {
    const cudnn::Library& lib = library();
    const Descriptor made = make_part(Kind::tensor);
    set_type(made, Attribute::tensor_type, *data_type_of(tensor.dtype));
    lib.set(made, Attribute::tensor_dims, tensor.dims);
    lib.set(made, Attribute::tensor_strides, tensor.strides);
    lib.set(made, Attribute::tensor_id, id);
    lib.set(made, Attribute::tensor_alignment, alignment_of(pointer));
    lib.finish(made);
    return made;
  }

  Descriptor convolution(std::int64_t places) {
    constexpr int kCrossCorrelation = 1;
    const cudnn::Library& lib = library();
    const ConvProblem& p = problem_;
    const Descriptor made = make_part(Kind::convolution);
    set_type(made, Attribute::convolution_compute,
             p.in == DType::int8 ? DataType::int32 : DataType::fp32);
    lib.set(made, Attribute::convolution_mode, As::convolution_mode, 1, &kCrossCorrelation);
    lib.set(made, Attribute::convolution_places, places);
    lib.set(made, Attribute::convolution_strides, conv_places(p, places, p.stride));
    lib.set(made, Attribute::convolution_dilations, conv_places(p, places, p.dilation));
    lib.set(made, Attribute::convolution_pads, conv_places(p, places, p.pad));
    lib.set(made, Attribute::convolution_pads_right, conv_places(p, places, p.pad_right));
    lib.finish(made);
    return made;
  }

  void make_graph(const ConvTensors& tensors) {
    const cudnn::Library& lib = library();
    const OperationRow& row = kOperations[static_cast<std::size_t>(problem_.direction)];
    const auto attribute = [&](int behind) {
      return static_cast<Attribute>(static_cast<int>(row.alpha) + behind);
    };
    const Descriptor operation = make_part(row.kind);
    lib.set(operation, attribute(0), problem_.alpha);
    lib.set(operation, attribute(1), 0.0F);
    lib.set(operation, attribute(2),
            convolution(static_cast<std::int64_t>(tensors.x.dims.size()) - 2));
    lib.set(operation, attribute(3), tensor_of(tensors.w, kIds[1], pointers_[1]));
    lib.set(operation, attribute(4), tensor_of(tensors.x, kIds[0], pointers_[0]));
    lib.set(operation, attribute(5), tensor_of(tensors.y, kIds[2], pointers_[2]));
    lib.finish(operation);
    graph_ = lib.make(Kind::graph);
    lib.set_handle(graph_, Attribute::graph_handle);
    lib.set(graph_, Attribute::graph_operations, operation);
    lib.finish(graph_);
  }

  void make_pack() {
    const cudnn::Library& lib = library();
    packed_workspace_ = session_->workspace.data();
    pack_ = lib.make(Kind::pack);
    lib.set(pack_, Attribute::pack_ids, {kIds.begin(), kIds.end()});
    lib.set(pack_, Attribute::pack_pointers, As::pointer, pointers_.size(),
            static_cast<const void*>(pointers_.data()));
    lib.set(pack_, Attribute::pack_workspace, As::pointer, 1,
            static_cast<const void*>(&packed_workspace_));
    lib.finish(pack_);
  }

  // The two kinds of heuristics take turns, so that a search that ends early has asked both.
  void add_choices() {
    const std::vector<Descriptor> instant = proposed(cudnn::Mode::instant);
    const std::vector<Descriptor> by_network = proposed(cudnn::Mode::by_network);
    for (std::size_t i = 0; i < std::max(instant.size(), by_network.size()); ++i) {
      if (i < instant.size()) add_choice(instant[i]);
      if (i < by_network.size()) add_choice(by_network[i]);
    }
    for (const Descriptor& config : proposed(cudnn::Mode::fallback)) add_choice(config);
  }

  // Adds what is not there yet.
  void add_choice(const Descriptor& config) {
    if (known_.insert(tag_of(config)).second) {
      choices_.push_back({.config = config, .plan = nullptr});
    }
  }

  // A mode may know nothing of a problem.
  std::vector<Descriptor> proposed(cudnn::Mode mode) {
    const cudnn::Library& lib = library();
    try {
      const Descriptor heuristics = lib.make(Kind::heuristics);
      lib.set(heuristics, Attribute::heuristics_graph, graph_);
      lib.set(heuristics, Attribute::heuristics_mode, As::heuristics_mode, 1, &mode);
      lib.finish(heuristics);
      const std::int64_t count =
          lib.get(heuristics, Attribute::heuristics_results, As::descriptor, 0, nullptr);
      std::vector<Descriptor> configs =
          lib.get_all(heuristics, Attribute::heuristics_results, Kind::config, count);
      std::erase_if(configs, [&](const Descriptor& each) { return !keeps_precision(each); });
      return configs;
    } catch (const Error& error) {
      last_refusal_ = error.what();
      return {};
    }
  }

  Descriptor engine_of(const Descriptor& config) const {
    return library().get_all(config, Attribute::config_engine, Kind::engine, 1).at(0);
  }

  // Engines that compute fp32 in tf32, or narrower types in narrower ones, answer another question.
  bool keeps_precision(const Descriptor& config) const {
    std::array<cudnn::Note, 10> notes{};
    const std::int64_t count = library().get(engine_of(config), Attribute::engine_notes, As::note,
                                             std::ssize(notes), notes.data());
    const bool is_fp32 = problem_.in == DType::fp32;
    return std::none_of(notes.begin(), notes.begin() + std::min(count, std::ssize(notes)),
                        [&](cudnn::Note note) {
                          return note == cudnn::Note::converts_inputs_down ||
                                 (is_fp32 && note == cudnn::Note::tensor_core);
                        });
  }

  // Names the engine with its knobs.
  std::string tag_of(const Descriptor& config) const {
    const cudnn::Library& lib = library();
    std::string tag = fmt::format("{}", lib.get_number(engine_of(config), Attribute::engine_index));
    for (const Descriptor& knob :
         lib.get_all(config, Attribute::config_knobs, Kind::knob, kMostKnobs)) {
      int type = 0;
      lib.get(knob, Attribute::knob_type, As::knob_type, 1, &type);
      tag += fmt::format(" {}={}", type, lib.get_number(knob, Attribute::knob_value));
    }
    return tag;
  }

  // Whether the choice has a plan, which is made at the first question.
  bool build(Choice& choice) {
    if (choice.is_tried) return choice.plan != nullptr;
    choice.is_tried = true;
    const cudnn::Library& lib = library();
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
  ConvProblem problem_;
  std::array<const void*, 3> pointers_;  // x, w, y
  std::vector<Descriptor> parts_;        // of the graph
  Descriptor graph_, pack_;
  const void* packed_workspace_ = nullptr;  // of the pack
  std::vector<Choice> choices_;
  std::set<std::string> known_;
  std::vector<std::size_t> best_;  // indices of choices, fastest first
  std::string last_refusal_;
};

class CuDnn : public Peer {
 public:
  explicit CuDnn(std::shared_ptr<cudnn::Library> library) : library_(std::move(library)) {}

  std::string name() const override { return "cudnn"; }
  std::string version() const override { return library_->version(); }

  std::vector<PeerCall> calls(const Problem& problem, const Operands& pointers) const override {
    if (op_of(problem) != Op::conv) return {};
    const auto& p = std::get<ConvProblem>(problem);
    const auto tensors = conv_tensors(p, 2);
    const bool is_known = data_type_of(p.in) && data_type_of(p.weight) && data_type_of(p.out);
    if (!tensors || !is_known || num_ops(p.epilogue) > 0 || p.beta != 0 || p.n == 0) return {};
    const auto convolution =
        std::make_shared<Convolution>(session(), p, *tensors, std::get<ConvOperands>(pointers));
    std::vector<PeerCall> calls = {
        {"cudnn_first", "heuristics' first choice", [convolution] { convolution->run_first(); }}};
    for (std::size_t i = 0; i < std::min(kKept, convolution->proposals()); ++i) {
      calls.push_back({"cudnn", kPlaces[i], [convolution, i] { convolution->run_best(i); }});
    }
    return calls;
  }

 private:
  // Made at the first problem, when a GPU is present.
  std::shared_ptr<Session> session() const {
    if (session_ != nullptr) return session_;
    const runtime::Place place{&runtime::backend_for(load_target("sm90a")), {}};
    auto made = std::make_shared<Session>(
        Session{library_, place, runtime::DeviceBuffer(place, std::size_t{kLeastWorkspace})});
    library_->start();
    session_ = std::move(made);
    return session_;
  }

  std::shared_ptr<cudnn::Library> library_;
  mutable std::shared_ptr<Session> session_;
};

}  // namespace

std::unique_ptr<Peer> load_cudnn(int) {
  std::shared_ptr<cudnn::Library> library = cudnn::Library::load();
  if (library == nullptr) return nullptr;
  return std::make_unique<CuDnn>(std::move(library));
}

}  // namespace tessera::peers
