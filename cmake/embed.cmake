# Turns text files into one C++ source with raw string literals; see tessera_embed().
string(CONCAT text
  "// Generated from the files named below by cmake/embed.cmake. Do not edit.\n"
  "#include \"tessera/base/embedded.h\"\n\n#include <array>\n\nnamespace tessera {\n\n"
  "std::span<const EmbeddedFile> ${FUNCTION}() {\n")
set(rows "")
set(count 0)
string(REPLACE " " ";" FILES "${FILES}")
foreach(file ${FILES})
  file(READ ${file} content)
  file(RELATIVE_PATH path ${BASE} ${file})
  set(path "${PREFIX}${path}")
  string(APPEND rows "      EmbeddedFile{\"${path}\", R\"tessera~(${content})tessera~\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
string(APPEND text
  "  static constexpr std::array<EmbeddedFile, ${count}> kFiles = {\n${rows}  };\n"
  "  return kFiles;\n}\n\n}  // namespace tessera\n")
file(WRITE ${OUTPUT} "${text}")
