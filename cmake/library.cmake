# What most files include from outside of the project is parsed once. No header of the project is
# among it, so that the compiler still says who includes whom.
add_library(library_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/library_headers.cc)
target_link_libraries(library_headers PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
target_precompile_headers(library_headers PRIVATE <algorithm> <array> <filesystem> <functional>
                          <map> <memory> <mutex> <optional> <set> <span> <string> <string_view>
                          <unordered_map> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# One library per folder of src/tessera. A folder includes headers of the folders named after
# DEPENDS and of what those depend on, and of nothing else: tools/check_includes.py holds every
# object against the list that is written here.
function(tessera_library name)
  cmake_parse_arguments(ARG "" "FOLDER" "DEPENDS;PRIVATE;GENERATED" ${ARGN})
  set(folder ${name})
  if(ARG_FOLDER)
    set(folder ${ARG_FOLDER})
  endif()
  set(closure ${name})
  set(folders ${folder})
  foreach(dependency ${ARG_DEPENDS})
    get_property(more GLOBAL PROPERTY TESSERA_CLOSURE_${dependency})
    list(APPEND closure ${more})
    get_property(more GLOBAL PROPERTY TESSERA_FOLDERS_${dependency})
    list(APPEND folders ${more})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  list(REMOVE_DUPLICATES folders)
  set_property(GLOBAL PROPERTY TESSERA_CLOSURE_${name} ${closure})
  set_property(GLOBAL PROPERTY TESSERA_FOLDERS_${name} ${folders})
  set_property(GLOBAL PROPERTY TESSERA_PRIVATE_${name} ${ARG_PRIVATE})
  list(JOIN folders " " words)
  set_property(GLOBAL APPEND_STRING PROPERTY TESSERA_INCLUDE_TABLE "tessera_${name}: ${words}\n")

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/tessera/${folder}/*.cc)
  list(APPEND sources ${ARG_GENERATED})
  if(NOT sources)
    return()
  endif()
  add_library(tessera_${name} OBJECT ${sources})
  target_link_libraries(tessera_${name} PRIVATE ${ARG_PRIVATE})
  target_include_directories(tessera_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  # A precompiled header asks for equal flags.
  if("fmt::fmt" IN_LIST ARG_PRIVATE AND NOT "OpenMP::OpenMP_CXX" IN_LIST ARG_PRIVATE)
    target_precompile_headers(tessera_${name} REUSE_FROM library_headers)
  endif()
endfunction()

# The library of an operation, in src/tessera/families/<name>. What operations share is in `tile`.
function(tessera_family name)
  tessera_library(${name} FOLDER families/${name} DEPENDS tile ${ARGN})
  set_property(GLOBAL APPEND PROPERTY TESSERA_FAMILIES ${name})
endfunction()

# The named libraries and all that they depend on.
function(tessera_closure result)
  set(all)
  foreach(name ${ARGN})
    get_property(closure GLOBAL PROPERTY TESSERA_CLOSURE_${name})
    list(APPEND all ${closure})
  endforeach()
  if(families IN_LIST all)
    get_property(families GLOBAL PROPERTY TESSERA_FAMILIES)
    list(APPEND all ${families} tile device)  # families.cc names every family
  endif()
  list(REMOVE_DUPLICATES all)
  set(${result} ${all} PARENT_SCOPE)
endfunction()

# Gives `target` the headers and objects of the named libraries and of all that they depend on.
function(tessera_link target)
  tessera_closure(all ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(name ${all})
    if(TARGET tessera_${name})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:tessera_${name}>)
      get_property(private GLOBAL PROPERTY TESSERA_PRIVATE_${name})
      target_link_libraries(${target} PRIVATE ${private})
    endif()
  endforeach()
endfunction()

# The same objects once more for `target`, with gcov's counters and without optimisation. Nobody
# else links them, and they are compiled for nobody else. Each folder is one file, and what nearly
# every folder includes is parsed once, so that this takes a fourth of compiling the library.
function(tessera_link_counted target)
  tessera_closure(all ${ARGN})
  set(flags $<TARGET_PROPERTY:OpenMP::OpenMP_CXX,INTERFACE_COMPILE_OPTIONS> -O0 --coverage)
  set(private)
  foreach(name ${all})
    get_property(more GLOBAL PROPERTY TESSERA_PRIVATE_${name})
    list(APPEND private ${more})
  endforeach()
  list(REMOVE_DUPLICATES private)
  set(headers)
  foreach(name ${all})
    if(NOT TARGET tessera_${name})
      continue()
    endif()
    get_target_property(sources tessera_${name} SOURCES)
    add_library(counted_${name} OBJECT EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(counted_${name} PRIVATE ${private})
    target_include_directories(counted_${name} PRIVATE
                               $<TARGET_PROPERTY:tessera_${name},INCLUDE_DIRECTORIES>)
    target_compile_options(counted_${name} PRIVATE ${flags})
    set_target_properties(counted_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0
                          EXPORT_COMPILE_COMMANDS OFF)
    if(headers)
      target_precompile_headers(counted_${name} REUSE_FROM ${headers})
    else()
      set(headers counted_${name})
      target_precompile_headers(counted_${name} PRIVATE <fmt/format.h> <nlohmann/json.hpp>
                                <algorithm> <array> <chrono> <functional> <map> <memory> <mutex>
                                <optional> <random> <set> <span> <string> <unordered_map> <variant>
                                <vector>)
    endif()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:counted_${name}>)
  endforeach()
  target_link_libraries(${target} PRIVATE ${private})
  target_link_options(${target} PRIVATE --coverage)
endfunction()

# Writes a C++ file that holds the files' text, or bytes with BINARY: `span<const EmbeddedFile>
# tessera::FUNCTION()`.
function(tessera_embed output function)
  cmake_parse_arguments(ARG "BINARY" "BASE" "FILES" ${ARGN})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${function} -DBASE=${ARG_BASE}
            -DBINARY=${ARG_BINARY}
            "-DFILES=${ARG_FILES}" -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARG_FILES} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  if(ARG_BINARY)
    set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${ARG_FILES}")
  endif()
endfunction()
