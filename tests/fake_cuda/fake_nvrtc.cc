// A compiler with NVRTC's entry points. Its cubins are an ELF file's first bytes and nothing else:
// what the fake driver looks at. A text with the word FAKE_ERROR is refused.
#include <cstddef>
#include <cstring>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string text;
  std::string log;
};

constexpr char kCubin[] = "\177ELF compiled by a fake";

}  // namespace

EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
EXPORT int nvrtcCreateProgram(Program** program, const char* text, const char*, int,
                              const char* const*, const char* const*) {
  *program = new Program{text, "a fake compiled it"};
  return 0;
}
EXPORT int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
EXPORT int nvrtcCompileProgram(Program* program, int, const char* const*) {
  if (program->text.find("FAKE_ERROR") == std::string::npos) return 0;
  program->log = "error: FAKE_ERROR";
  return 6;
}
EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}
EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  std::strcpy(log, program->log.c_str());
  return 0;
}
EXPORT int nvrtcGetCUBINSize(Program*, std::size_t* bytes) {
  *bytes = sizeof(kCubin);
  return 0;
}
EXPORT int nvrtcGetCUBIN(Program*, char* cubin) {
  std::memcpy(cubin, kCubin, sizeof(kCubin));
  return 0;
}
EXPORT const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
