#include <fmt/format.h>

#include "tessera/base/hash.h"
#include "tessera/families/headers.h"
#include "tessera/jit/cache_entry_internal.h"
#include "tessera/jit/compilers_internal.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {
namespace {

// Each field is written with its length, so that different lists of fields give different texts.
class KeyText {
 public:
  void add(std::string_view field) {
    text_ += fmt::format("{}:", field.size());
    text_ += field;
  }
  void add(const std::vector<std::string>& fields) {
    add(std::to_string(fields.size()));
    for (const std::string& field : fields) add(field);
  }
  std::string hash() const { return hash_hex(text_); }

 private:
  std::string text_;
};

std::string_view hash_of_headers(const Source& source) {
  return source.headers == nullptr ? std::string_view() : source.headers->hash;
}

std::string binary_of(const Source& source, const Target& target) {
  return std::string(binary_kind(compiler_for(target, source.name), source).file);
}

}  // namespace

// The options make NVRTC write machine code, treat every function as device code (the text includes
// only our headers), and log the assembler's numbers of registers and spills. From version 13 on
// NVRTC has a cache of its own; it is turned off, because it would hide what we build. So are
// declarations of textures and of CUDA's runtime, which no kernel of ours reads.
std::vector<std::string> nvrtc_command(const Toolchain& nvrtc, const Target& target,
                                       const Source& source) {
  std::vector<std::string> command = {nvrtc.runner.string(), "nvrtc", nvrtc.path.string()};
  command.insert(command.end(), target.compile_flags.begin(), target.compile_flags.end());
  command.insert(command.end(), {"--std=c++17", "-default-device", "--ptxas-options=-v"});
  if (!nvrtc.version.starts_with("NVRTC 12.")) {
    command.insert(command.end(), {"--no-cache", "--minimal"});
  }
  command.insert(command.end(), {source_file(source), "-o", binary_of(source, target)});
  return command;
}

// The file's name is part of the binary.
std::string source_file(const Source& source) {
  return (source.is_object ? "object" : "kernel") + source.extension;
}

std::string linked_object(std::size_t index) { return fmt::format("object{}.o", index); }

std::vector<std::string> compile_command(const Toolchain& toolchain, const Target& target,
                                         const Source& source) {
  return compiler_for(target, source.name).command(toolchain, target, source);
}

std::vector<std::string> cpp_command(const Toolchain& compiler, const Target& target,
                                     const Source& source) {
  std::vector<std::string> command = {compiler.path.string()};
  const auto append = [&command](const std::vector<std::string>& words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  append(compiler.arguments);
  append(target.compile_flags);

  // Products are fused with sums, which ISO mode would forbid. No other option relaxes IEEE
  // arithmetic.
  append({"-std=c++17", "-O2", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"});
  // A kernel uses no exceptions, no run-time types, no start files and no C++ library. Without them
  // it links in a third of the time.
  append({"-fPIC", source.is_object ? "-c" : "-shared", "-fvisibility=hidden", "-fno-exceptions",
          "-fno-rtti", "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-nostdlib", "-w",
          "-pipe", "-I."});
  if (!source.objects.empty()) append({"-include", kDeclarationsFile});
  append({source_file(source), "-o", binary_of(source, target)});
  if (source.is_object) return command;
  for (std::size_t i = 0; i < source.objects.size(); ++i) command.push_back(linked_object(i));
  append({"-Wl,--as-needed", "-lm"});
  return command;
}

std::vector<std::string> compile_environment() {
  return {"LC_ALL=C",
          "CPATH",
          "C_INCLUDE_PATH",
          "CPLUS_INCLUDE_PATH",
          "LIBRARY_PATH",
          "COMPILER_PATH",
          "GCC_EXEC_PREFIX",
          "GCC_COMPARE_DEBUG",
          "DEPENDENCIES_OUTPUT",
          "SUNPRO_DEPENDENCIES",
          "CCC_OVERRIDE_OPTIONS",
          "LD_RUN_PATH",
          "SOURCE_DATE_EPOCH",
          "NVCC_PREPEND_FLAGS",
          "NVCC_APPEND_FLAGS",
          "HIPRTC_COMPILE_OPTIONS_APPEND",
          "HIPRTC_LINK_OPTIONS_APPEND",
          "AMD_COMGR_SAVE_TEMPS",
          "AMD_COMGR_EMIT_VERBOSE_LOGS",
          "AMD_COMGR_REDIRECT_LOGS",
          "AMD_COMGR_CACHE=0"};
}

std::string source_key(const Source& source, const Target& target) {
  KeyText key;
  key.add(std::to_string(source.abi));
  key.add(source.name);
  key.add(source.extension);
  key.add(source.text);
  key.add(hash_of_headers(source));
  key.add(target.name);
  key.add(target.compile_flags);
  if (source.is_object) key.add("object");
  if (!source.objects.empty()) key.add(source.declarations);
  for (const Source& object : source.objects) {
    key.add(object.text);
    key.add(hash_of_headers(object));
  }
  return key.hash();
}

std::string cache_key(const Source& source, const Target& target, const Toolchain& toolchain) {
  KeyText key;
  key.add(source_key(source, target));
  key.add(toolchain.version);
  key.add(toolchain.build_id);
  Toolchain anywhere = toolchain;  // the program that runs NVRTC does not change the output
  if (!toolchain.runner.empty()) anywhere.runner = "tessera-worker";
  key.add(compile_command(anywhere, target, source));
  return key.hash();
}

}  // namespace tessera::jit
