// Kernels that compile and cannot be loaded, and who notices.
#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/registry/registry.h"
#include "tessera/targets/targets.h"

namespace tessera::jit {
namespace {

const int kAbi = family_of(Op::gemm).abi;

Source gemm_source(const std::string& name, const std::string& text) {
  Source source = make_source(name, text);
  source.abi = kAbi;
  return source;
}

// A kernel that does nothing.
std::string kernel_text(const std::string& name, int abi, const std::string& more = "") {
  return fmt::format(R"(static long bytes(const void*, int) {{ return 0; }}
static void run(const void*, const void*) {{}}
{}
struct Table {{ int abi; long (*bytes)(const void*, int); void (*run)(const void*, const void*);
  void* others[2]; }};
extern "C" {{ __attribute__((visibility("default"))) extern const Table {}; }}
const Table {} = {{{}, bytes, run, {{}}}};
)",
                     more, name, name, abi);
}

struct BadKernel {
  const char* name;
  std::string text;
  std::string damage;  // part of what is said
  bool is_deadly = false;
};

BadKernel deadly(const std::string& constructor, const std::string& end) {
  return {"gemm_bad",
          kernel_text("gemm_bad", kAbi,
                      "extern \"C\" int puts(const char*);\nextern \"C\" void exit(int);\n"
                      "__attribute__((constructor)) static void f() { " +
                          constructor + " }"),
          "loading it ends a process with " + end, true};
}

const std::vector<BadKernel>& bad_kernels() {
  static const std::vector<BadKernel> kernels = {
      {"gemm_bad", kernel_text("gemm_other", kAbi),
       "must export a symbol of that name, but has none"},
      {"gemm_bad", kernel_text("gemm_bad", kAbi + 1),
       fmt::format("its ABI version must be {}, got {}", kAbi, kAbi + 1)},
      {"gemm_bad",
       kernel_text("gemm_bad", kAbi,
                   "extern \"C\" void no_such_function();\n"
                   "__attribute__((visibility(\"default\"))) void f() { no_such_function(); }"),
       "undefined symbol: no_such_function"},
      deadly("__builtin_trap();", "signal "),
      deadly("exit(0);", "exit code 0"),
      deadly("puts(\"loads\"); exit(3);", "exit code 3"),
  };
  return kernels;
}

class Load : public testing::Test {
 protected:
  ~Load() override { set_log_sink({}); }
  BuildOptions options(const std::string& folder, const std::string& worker = "") const {
    BuildOptions options;
    options.cache.folder = temp_ / folder;
    options.use_shipped_packs = false;
    options.worker = worker;
    return options;
  }
  ScopedVariable no_jit_{"TESSERA_NO_JIT", std::nullopt};
  ScopedVariable no_pack_{"TESSERA_PACK", std::nullopt};
  TempFolder temp_;
};

TEST_F(Load, IsTriedInAWorkerBeforeAKernelIsKept) {
  Builder builder(options("cache", TESSERA_WORKER));
  EXPECT_NO_THROW(
      builder.build(gemm_source("gemm_good", kernel_text("gemm_good", kAbi)), make_target()));
  for (const BadKernel& bad : bad_kernels()) {
    try {
      builder.build(gemm_source(bad.name, bad.text), make_target());
      ADD_FAILURE() << bad.text;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(error.code(), ErrorCode::compile_failed);
      EXPECT_NE(what.find(" reported success but its kernel.so is of no use: "), what.npos) << what;
      EXPECT_NE(what.find(bad.damage), what.npos) << what;
    }
  }
  EXPECT_EQ(builder.cache().list().size(), 1U);
}

// Nobody looks where there is no worker; verify then finds them all with one, whoever dies.
TEST_F(Load, IsTriedByVerify) {
  Builder builder(options("cache", "/no/worker"));
  for (const BadKernel& bad : bad_kernels()) {
    builder.build(gemm_source(bad.name, bad.text), make_target());
  }
  builder.build(gemm_source("gemm_good", kernel_text("gemm_good", kAbi)), make_target());
  set_log_sink([](LogLevel, std::string_view) {});
  EXPECT_EQ(builder.cache().verify("/no/worker").good, bad_kernels().size() + 1);
  const VerifyReport report = builder.cache().verify(TESSERA_WORKER);
  EXPECT_EQ(report.good, 1U);
  ASSERT_EQ(report.damaged.size(), bad_kernels().size());
  for (const BadKernel& bad : bad_kernels()) {
    EXPECT_TRUE(
        std::any_of(report.damaged.begin(), report.damaged.end(),
                    [&](const std::string& line) { return line.find(bad.damage) != line.npos; }))
        << bad.damage;
  }
  EXPECT_EQ(names_in(temp_ / "cache" / "damaged").size(), bad_kernels().size());
}

// What a kernel prints while it is loaded is no answer, neither of its own nor of the next.
TEST_F(Load, IsNotDisturbedByWhatKernelsPrint) {
  Builder builder(options("cache", "/no/worker"));
  const BadKernel& bad = bad_kernels().front();
  builder.build(gemm_source(bad.name, bad.text), make_target());
  const std::string loud =
      "extern \"C\" int puts(const char*);\nextern \"C\" int printf(const char*, ...);\n"
      "__attribute__((constructor)) static void f() {{ puts(\"fails\"); printf(\"{}\"); }}\n";
  for (const char* name : {"gemm_a", "gemm_b"}) {
    const std::string text = kernel_text(name, kAbi, fmt::format(fmt::runtime(loud), name));
    builder.build(gemm_source(name, text), make_target());
  }
  set_log_sink([](LogLevel, std::string_view) {});
  const VerifyReport report = builder.cache().verify(TESSERA_WORKER);
  EXPECT_EQ(report.good, 2U);
  ASSERT_EQ(report.damaged.size(), 1U);
  EXPECT_TRUE(report.damaged.front().starts_with("gemm_bad-")) << report.damaged.front();
}

// A worker of another version answers nothing, and is as good as none.
TEST_F(Load, IsNotTriedInAWorkerThatKnowsNothingOfIt) {
  write_file(temp_ / "worker", "#!/bin/sh\necho usage; exit 2\n");
  fs::permissions(temp_ / "worker", fs::perms::owner_all);
  Builder builder(options("cache", (temp_ / "worker").string()));
  builder.build(gemm_source("gemm_good", kernel_text("gemm_good", kAbi)), make_target());
  EXPECT_EQ(builder.cache().verify((temp_ / "worker").string()).good, 1U);
}

KernelSpec host_kernel() {
  KernelSetBuilder builder("host", host_target());
  builder.gemm().dtype("fp32").layout("rrr").variant("standard").pipeline("direct").wave("1x1x1");
  return builder.build().specs.front();
}

// The library of a bad kernel, by another name.
std::string bad_library(const BuildOptions& options, const std::string& name, BadKernel bad) {
  for (std::size_t at; (at = bad.text.find("gemm_bad")) != std::string::npos;) {
    bad.text.replace(at, 8, name);
  }
  return read_file(Builder(options).build(gemm_source(name, bad.text), make_target()).binary);
}

TEST_F(Load, ThatFailsLaterBuildsOnceMore) {
  const KernelSpec spec = host_kernel();
  const std::string name = name_of(spec);
  const Artifact good =
      Builder(options("cache")).build(family_of(spec).emit(spec, host_target()), host_target());
  const fs::path entry = good.binary.parent_path();
  for (const std::string worker : {"/no/worker", TESSERA_WORKER}) {
    for (const BadKernel& bad : bad_kernels()) {
      if (bad.is_deadly) continue;  // it would end this process
      write_file(good.binary, bad_library(options("bad", "/no/worker"), name, bad));
      reseal(entry);
      std::vector<std::string> log;
      set_log_sink([&](LogLevel level, std::string_view line) {
        if (level == LogLevel::warning) log.emplace_back(line);
      });
      EXPECT_NE(Registry("mine", options("cache", worker)).get(spec), nullptr);
      ASSERT_EQ(log.size(), 1U);
      EXPECT_TRUE(log[0].starts_with("the cache entry " + entry.string() +
                                     " is damaged: cannot load kernel '" + name + "': "))
          << log[0];
      EXPECT_NE(log[0].find(bad.damage), std::string::npos) << log[0];
      const fs::path kept = temp_ / "cache" / "damaged" / entry.filename();
      EXPECT_EQ(fs::remove_all(kept) > 0, true);
    }
  }
}

// A second failure is the kernel's own: it is reported, and nothing goes on for ever.
TEST_F(Load, ThatFailsTwiceIsAnError) {
  const KernelSpec spec = host_kernel();
  write_file(temp_ / "c++",
             "#!/bin/sh\ncase \"$*\" in *-shared*) echo > kernel.cc; esac\n"
             "exec g++ \"$@\"\n");
  fs::permissions(temp_ / "c++", fs::perms::owner_all);
  BuildOptions wrong = options("cache", "/no/worker");
  wrong.compiler = (temp_ / "c++").string();
  set_log_sink([](LogLevel, std::string_view) {});
  try {
    Registry("mine", wrong).get(spec);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::load_failed);
  }
  Registry registry("mine", wrong);
  registry.declare(spec);
  EXPECT_NE(registry.build(1).front().error.find("must export a symbol"), std::string::npos);
}

}  // namespace
}  // namespace tessera::jit
