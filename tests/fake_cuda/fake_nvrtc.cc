// A compiler with NVRTC's entry points. Its cubins are the headers of an ELF file for NVIDIA's
// machine and the text's ABI number: what the library and the fake driver look at. A text with the
// word FAKE_ERROR is refused. The environment's FAKE_NVRTC_FAULT names what is wrong with the
// compiler: "mute" (no words for its errors), "log" or "cubin" (of nearly 2^64 bytes).
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "elf_files.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string text;
  std::string log;
};

// The headers and the number that the text gives its symbol NAME_abi.
std::string cubin_for(const Program& program) {
  const auto at = program.text.find("_abi =");
  const int number = at == std::string::npos ? 0 : std::atoi(program.text.c_str() + at + 6);
  return tessera::cubin_of(std::to_string(number) + '\0');
}

bool has_fault(const char* which) {
  const char* fault = std::getenv("FAKE_NVRTC_FAULT");
  return fault != nullptr && std::strcmp(fault, which) == 0;
}

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
  *bytes = has_fault("log") ? -std::size_t{2} : program->log.size() + 1;
  return 0;
}
EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  std::strcpy(log, program->log.c_str());
  return 0;
}
EXPORT int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  *bytes = has_fault("cubin") ? -std::size_t{2} : cubin_for(*program).size();
  return 0;
}
EXPORT int nvrtcGetCUBIN(Program* program, char* bytes) {
  const std::string cubin = cubin_for(*program);
  std::memcpy(bytes, cubin.data(), cubin.size());
  return 0;
}
EXPORT const char* nvrtcGetErrorString(int) {
  return has_fault("mute") ? nullptr : "NVRTC_ERROR_COMPILATION";
}
