# Turns files into one C++ source; see tessera_embed(). Texts become raw string literals, of known
# length: a compiler that counts characters at compile time reaches its limit of steps. With
# BINARY the assembler copies the bytes as they are, which takes megabytes in no time.
set(rows "")
set(symbols "")
set(count 0)
string(REPLACE " " ";" FILES "${FILES}")
foreach(file ${FILES})
  file(RELATIVE_PATH path ${BASE} ${file})
  if(BINARY)
    set(begin "tessera_${FUNCTION}_${count}")
    foreach(symbol ${begin} ${begin}_end)
      string(APPEND symbols
             "extern \"C\" __attribute__((visibility(\"hidden\"))) const char ${symbol}[];\n")
    endforeach()
    string(APPEND symbols
           "asm(\".pushsection .rodata\\n.global ${begin}\\n.global ${begin}_end\\n\"\n"
           "    \"${begin}:\\n.incbin \\\"${file}\\\"\\n${begin}_end:\\n.popsection\\n\");\n")
    string(APPEND rows "      EmbeddedFile{\"${path}\", {${begin}, ${begin}_end}},\n")
  else()
    file(READ ${file} content)
    string(APPEND rows "      EmbeddedFile{\"${path}\", R\"tessera~(${content})tessera~\"sv},\n")
  endif()
  math(EXPR count "${count} + 1")
endforeach()
set(storage "constexpr")
if(BINARY)  # where the assembler's bytes end is known to the linker only
  set(storage "const")
endif()
file(WRITE ${OUTPUT}
  "// Generated from the files named below by cmake/embed.cmake. Do not edit.\n"
  "#include \"tessera/base/embedded.h\"\n\n#include <array>\n#include <string_view>\n\n"
  "${symbols}using std::string_view_literals::operator\"\"sv;\n\nnamespace tessera {\n\n"
  "std::span<const EmbeddedFile> ${FUNCTION}() {\n"
  "  static ${storage} std::array<EmbeddedFile, ${count}> kFiles = {\n${rows}  };\n"
  "  return kFiles;\n}\n\n}  // namespace tessera\n")
