# One library per folder of src/. A folder sees the headers of the folders named after DEPENDS and
# of what those depend on, and of nothing else: a forbidden include fails to compile.
function(tessera_library name)
  cmake_parse_arguments(ARG "" "FOLDER" "DEPENDS;PRIVATE;GENERATED" ${ARGN})
  set(folder ${name})
  if(ARG_FOLDER)
    set(folder ${ARG_FOLDER})
  endif()
  set(include_root ${PROJECT_BINARY_DIR}/include/${name})
  get_filename_component(parent ${include_root}/tessera/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  if(NOT EXISTS ${include_root}/tessera/${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${folder} ${include_root}/tessera/${folder} SYMBOLIC)
  endif()

  set(closure ${name})
  foreach(dependency ${ARG_DEPENDS})
    get_property(more GLOBAL PROPERTY TESSERA_CLOSURE_${dependency})
    list(APPEND closure ${more})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  set_property(GLOBAL PROPERTY TESSERA_CLOSURE_${name} ${closure})
  set_property(GLOBAL PROPERTY TESSERA_PRIVATE_${name} ${ARG_PRIVATE})

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cc)
  list(APPEND sources ${ARG_GENERATED})
  if(NOT sources)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES ${name})
  add_library(tessera_${name} OBJECT ${sources})
  target_link_libraries(tessera_${name} PRIVATE ${ARG_PRIVATE})
  foreach(member ${closure})
    target_include_directories(tessera_${name} PRIVATE ${PROJECT_BINARY_DIR}/include/${member})
  endforeach()
endfunction()

# Gives `target` the headers and objects of the named libraries and of all that they depend on.
function(tessera_link target)
  set(all)
  foreach(name ${ARGN})
    get_property(closure GLOBAL PROPERTY TESSERA_CLOSURE_${name})
    list(APPEND all ${closure})
  endforeach()
  if(families IN_LIST all)
    list(APPEND all gemm device)  # families.cc names every family
  endif()
  list(REMOVE_DUPLICATES all)
  foreach(name ${all})
    target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/include/${name})
    if(TARGET tessera_${name})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:tessera_${name}>)
      get_property(private GLOBAL PROPERTY TESSERA_PRIVATE_${name})
      target_link_libraries(${target} PRIVATE ${private})
    endif()
  endforeach()
endfunction()

# Writes a C++ file that holds the files' text, or bytes with BINARY: `span<const EmbeddedFile>
# tessera::FUNCTION()`.
function(tessera_embed output function)
  cmake_parse_arguments(ARG "BINARY" "BASE;PREFIX" "FILES" ${ARGN})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${function} -DBASE=${ARG_BASE}
            -DPREFIX=${ARG_PREFIX} -DBINARY=${ARG_BINARY}
            "-DFILES=${ARG_FILES}" -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARG_FILES} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  if(ARG_BINARY)
    set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${ARG_FILES}")
  endif()
endfunction()
