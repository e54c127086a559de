// Problems that are run while a program or a thread ends, when what was made later is gone. Like a
// user, this program includes tessera.hpp and nothing else of the library, and links the shared
// library.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tessera/tessera.hpp>
#include <thread>
#include <vector>

namespace tessera::shared_test {
namespace {

namespace fs = std::filesystem;

const char* g_folder = nullptr;  // the children's cache

// Exact in fp32: sums of small whole numbers. Forced models, target and cache make it a first call
// of all that a dispatch goes through.
bool gives_the_right_result() {
  constexpr std::int64_t kM = 37, kN = 45, kK = 61;
  std::vector<float> a(kM * kK, 2.0F), b(kN * kK, 3.0F), out(kM * kN, -1.0F);
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, kM, kN, kK);
  DispatcherOptions options;
  options.build.cache.folder = g_folder;
  runtime::set_default_threads(2);
  Dispatcher dispatcher(options);
  dispatcher.run(p, GemmOperands{.a = a.data(), .b = b.data(), .out = out.data()});
  for (const float value : out) {
    if (value != 2.0F * 3.0F * kK) return false;
  }
  return true;
}

// Says on stderr what came of it; what throws ends the child by a signal.
void run_and_say() noexcept {
  const std::string_view words = gives_the_right_result() ? "right " : "wrong ";
  static_cast<void>(::write(STDERR_FILENO, words.data(), words.size()));
}

struct RunsWhenDestroyed {
  ~RunsWhenDestroyed() { run_and_say(); }
  int value = 0;
};

// Each child starts from the beginning, so that nothing of the library has been used in it.
struct ApiExit : testing::Test {
  std::string folder;
  ApiExit() {
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    const char* const given = std::getenv("TESSERA_EXIT_TEST");
    folder = given != nullptr ? given : (fs::temp_directory_path() / "exit-XXXXXX").string();
    if (given == nullptr && mkdtemp(folder.data()) == nullptr) std::abort();
    if (given == nullptr) setenv("TESSERA_EXIT_TEST", folder.c_str(), 1);
    g_folder = folder.c_str();
    owns_ = given == nullptr;
  }
  ~ApiExit() override {
    if (!owns_) return;
    unsetenv("TESSERA_EXIT_TEST");
    fs::remove_all(folder);
  }

 private:
  bool owns_;
};
using ApiExitDeathTest = ApiExit;

// The names that a loaded library imports or exports.
std::string_view names_of(const link_map& library) {
  const char* names = nullptr;
  std::size_t bytes = 0;
  for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRSZ) bytes = entry->d_un.d_val;
  }
  return {names, bytes};
}

// A static or thread_local variable with a destructor is registered through these functions.
TEST(Library, HasNothingToDestroyWhenAProgramOrAThreadEnds) {
  void* const library = dlopen("libtessera.so.0", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  link_map* map = nullptr;
  ASSERT_EQ(dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)), 0);
  const std::string_view names = names_of(*map);
  ASSERT_NE(names.find(std::string("\0pthread_key_create", 19)), std::string::npos);
  for (const std::string name : {"__cxa_atexit", "__cxa_thread_atexit", "atexit", "on_exit"}) {
    EXPECT_EQ(names.find('\0' + name + '\0'), std::string::npos) << name;
  }
  dlclose(library);
}

TEST_F(ApiExitDeathTest, FirstProblemInAHandlerOfAtexit) {
  EXPECT_EXIT(
      {
        std::atexit(run_and_say);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^right $");
}

TEST_F(ApiExitDeathTest, FirstProblemInTheDestructorOfAStatic) {
  EXPECT_EXIT(
      {
        static const RunsWhenDestroyed kOlder;
        std::exit(kOlder.value);
      },
      testing::ExitedWithCode(0), "^right $");
}

// The statics and the thread's workspaces exist by then, and are younger than who uses them.
TEST_F(ApiExitDeathTest, LaterProblemsInEveryKindOfDestructor) {
  EXPECT_EXIT(
      {
        static const RunsWhenDestroyed kOlder;
        std::atexit(run_and_say);
        std::thread([] {
          thread_local const RunsWhenDestroyed kOfThread;
          if (kOfThread.value == 0) run_and_say();
        }).join();
        thread_local const RunsWhenDestroyed kOfMain;
        if (kOfMain.value == 0) run_and_say();
        std::exit(kOlder.value);
      },
      testing::ExitedWithCode(0), "^right right right right right right $");
}

}  // namespace
}  // namespace tessera::shared_test
