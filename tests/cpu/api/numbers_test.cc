// Enums that hold a number which they have no value for, as a binding to another language may pass:
// each public call refuses it with a sentence.
#include <array>
#include <functional>

#include "cpu/api/fixture.h"

namespace tessera::api_test {
namespace {

template <class Enum>
constexpr Enum bad() {
  return static_cast<Enum>(99);
}

std::string refusal(const std::string& field, int last) {
  return "invalid_argument: " + field + " must be a number from 0 to " + std::to_string(last) +
         ", got 99";
}

TEST(ApiNumbers, HaveAWordOrAreRefused) {
  struct Case {
    std::function<void()> call;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[] { to_string(bad<DType>()); }, refusal("dtype", 7)},
      {[] { to_string(bad<Op>()); }, refusal("operation", 4)},
      {[] { to_string(bad<GemmLayout>()); }, refusal("layout", 3)},
      {[] { to_string(bad<ConvDirection>()); }, refusal("direction", 2)},
      {[] { to_string(bad<ConvLayout>()); }, refusal("layout", 1)},
      {[] { to_string(bad<EpilogueOp>()); }, refusal("epilogue op", 14)},
      {[] { to_string(bad<Pipeline>()); }, refusal("pipeline", 20)},
      {[] { to_string(bad<Scheduler>()); }, refusal("scheduler", 4)},
      {[] { to_string(bad<Store>()); }, refusal("store", 3)},
      {[] { to_string(bad<SplitK>()); }, refusal("split_k", 2)},
      {[] { to_string(bad<ErrorCode>()); }, refusal("error code", 17)},
      {[] { to_string(static_cast<ErrorCode>(-1)); },
       "invalid_argument: error code must be a number from 0 to 17, got -1"},
      {[] { to_string(bad<ChoiceSource>()); }, refusal("choice source", 4)},
      {[] { to_string(bad<FeatureGroup>()); }, refusal("feature group", 3)},
      {[] { to_string(bad<ModelQuantity>()); }, refusal("quantity", 4)},
      {[] { to_string(bad<ModelTransform>()); }, refusal("transform", 2)},
      {[] { to_string(bad<measure::Outcome>()); }, refusal("outcome", 5)},
      {[] { to_string(bad<train::Goal>()); }, refusal("goal", 4)},
      {[] { to_string(bad<tune::SearchStrategy>()); }, refusal("search strategy", 2)},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of(c.call), c.message);
}

TEST(ApiNumbers, OfADtypeAreRefusedByAllThatIsKnownOfIt) {
  const DType dtype = bad<DType>();
  const std::vector<std::function<void()>> calls = {
      [&] { size_of(dtype); },
      [&] { is_integer(dtype); },
      [&] { default_accumulator(dtype); },
      [&] { default_output(dtype); },
      [&] { epsilon(dtype); },
      [&] { max_finite(dtype); },
      [&] { min_normal(dtype); },
      [&] { gemm_problem(dtype, GemmLayout::rcr, 1, 1, 1); },
      [&] {
        float element = 1;
        load_element(dtype, &element, 0);
      },
      [&] {
        float element = 1;
        store_element(dtype, &element, 0, 2);
      },
  };
  for (const auto& call : calls) EXPECT_EQ(error_of(call), refusal("dtype", 7));
}

// Whatever a problem is handed to names the field, before anything is chosen or built.
TEST_F(ApiTest, ProblemsWithNumbersThatHaveNoValueAreRefused) {
  struct Case {
    std::function<void(GemmProblem&)> change;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](GemmProblem& p) { p.a = bad<DType>(); }, refusal("gemm: a", 7)},
      {[](GemmProblem& p) { p.b = bad<DType>(); }, refusal("gemm: b", 7)},
      {[](GemmProblem& p) { p.acc = bad<DType>(); }, refusal("gemm: acc", 7)},
      {[](GemmProblem& p) { p.out = bad<DType>(); }, refusal("gemm: out", 7)},
      {[](GemmProblem& p) { p.d = bad<DType>(); }, refusal("gemm: d", 7)},
      {[](GemmProblem& p) { p.layout = bad<GemmLayout>(); }, refusal("gemm: layout", 3)},
      {[](GemmProblem& p) { p.epilogue.ops[0] = bad<EpilogueOp>(); },
       "invalid_argument: gemm: " + refusal("epilogue op", 14).substr(18)},
  };
  Dispatcher dispatcher(options());
  measure::OwnedOperands owned = operands_of(small());
  for (const Case& c : cases) {
    GemmProblem p = small();
    c.change(p);
    EXPECT_EQ(error_of([&] { family_of(Problem(p)).validate(p); }), c.message);
    EXPECT_EQ(error_of([&] { dispatcher.run(p, owned.operands); }), c.message);
    EXPECT_EQ(error_of([&] { dispatcher.explain(p); }), c.message);
    EXPECT_EQ(error_of([&] { choose(p, dispatcher.target(), {}); }), c.message);
    for (const auto& write : {+[](const Problem& q) { return to_string(q); },
                              +[](const Problem& q) { return to_json(q); }}) {
      EXPECT_EQ(error_of([&] { write(p); }).substr(0, 18), "invalid_argument: ") << c.message;
    }
  }
}

// A spec's name is what everything begins with.
TEST_F(ApiTest, SpecsWithNumbersThatHaveNoValueAreRefused) {
  const Target target = load_target("generic");
  const KernelSpec good = parse_name("gemm_fp32_rcr_packab_96x384x256_0x0x1_8x8x1_generic");
  const std::vector<std::function<void(KernelSpec&)>> changes = {
      [](KernelSpec& s) { std::get<GemmSignature>(s.signature).a = bad<DType>(); },
      [](KernelSpec& s) { std::get<GemmSignature>(s.signature).b = bad<DType>(); },
      [](KernelSpec& s) { std::get<GemmSignature>(s.signature).acc = bad<DType>(); },
      [](KernelSpec& s) { std::get<GemmSignature>(s.signature).out = bad<DType>(); },
      [](KernelSpec& s) { std::get<GemmSignature>(s.signature).d = bad<DType>(); },
      [](KernelSpec& s) { std::get<GemmSignature>(s.signature).layout = bad<GemmLayout>(); },
      [](KernelSpec& s) {
        std::get<GemmSignature>(s.signature).epilogue.ops[2] = bad<EpilogueOp>();
      },
      [](KernelSpec& s) { s.algorithm.pipeline = bad<Pipeline>(); },
      [](KernelSpec& s) { s.algorithm.scheduler = bad<Scheduler>(); },
      [](KernelSpec& s) { s.algorithm.store = bad<Store>(); },
      [](KernelSpec& s) { s.algorithm.split_k = bad<SplitK>(); },
  };
  Registry registry("numbers", build_options());
  const Family& family = family_of(Op::gemm);
  for (const auto& change : changes) {
    KernelSpec spec = good;
    change(spec);
    const std::vector<std::function<void()>> calls = {
        [&] { static_cast<void>(name_of(spec)); },
        [&] { static_cast<void>(to_json(spec)); },
        [&] { registry.declare(spec); },
        [&] { registry.get(spec); },
        [&] { static_cast<void>(family.emit(spec, target)); },
    };
    const std::string legality = error_of([&] {
      if (family.is_legal(spec, target)) throw std::logic_error("it is legal");
    });
    EXPECT_TRUE(legality == "no error" || legality.starts_with("invalid_argument: ")) << legality;
    for (const auto& call : calls) {
      const std::string error = error_of(call);
      EXPECT_EQ(error.substr(0, 18), "invalid_argument: ") << error;
      EXPECT_NE(error.find(", got 99"), std::string::npos) << error;
    }
  }
}

TEST_F(ApiTest, OptionsWithNumbersThatHaveNoValueAreRefused) {
  const Target target = load_target("generic");
  const Problem p = small();
  const LearnedModel model{.value = bad<LearnedValue>()};
  EXPECT_EQ(error_of([&] { make_learned_ranker(model); }), refusal("learned model: value", 2));
  EXPECT_EQ(error_of([] { learned_value(bad<ModelQuantity>()); }), refusal("quantity", 4));
  EXPECT_EQ(error_of([] { can_use(bad<ForestSimd>()); }), refusal("forest: simd", 2));
  EXPECT_EQ(error_of([&] { save_model(folder, {}, "", bad<ModelFile>()); }),
            refusal("model: form", 1));
  EXPECT_EQ(error_of([] { log(bad<LogLevel>(), "unheard"); }), refusal("log level", 1));
  EXPECT_EQ(
      error_of([&] { measure::SweepStore store(folder / "a.sqlite", bad<measure::OpenMode>()); }),
      refusal("sweep store: mode", 1));
  EXPECT_EQ(
      error_of([&] { measure::SweepStore(folder / "b.sqlite").add({}, bad<measure::Conflict>()); }),
      refusal("sweep store: conflict", 1));
  EXPECT_EQ(error_of([&] {
              tune::search(p, target, tune::analytic_surrogate(),
                           {.strategy = bad<tune::SearchStrategy>()});
            }),
            refusal("search: strategy", 2));
  EXPECT_EQ(error_of([] { family_of(bad<Op>()); }), refusal("operation", 4));
  EXPECT_EQ(error_of([&] {
              const std::vector<KernelSpec> specs = family_of(p).candidates(p, target);
              const std::size_t features = family_of(p).features().size();
              const std::vector<FeatureUse> use(features, bad<FeatureUse>());
              std::vector<double> columns(features * specs.size());
              family_of(p).extract(p, target, 1, specs, columns, use);
            }),
            refusal("gemm: use of a feature", 2));
}

}  // namespace
}  // namespace tessera::api_test
