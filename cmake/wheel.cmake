# The library and the worker that `./dev wheel` packs: the objects of the build, linked so that they
# need glibc 2.28, libgcc_s and an OpenMP library, and nothing else (docs/decisions/wheels.md).
find_library(TESSERA_STATIC_SQLITE libsqlite3.a)
find_library(TESSERA_STATIC_ZLIB libz.a)
set(TESSERA_WHEEL_TARGETS)
if(SKBUILD OR TESSERA_SANITIZE OR NOT TESSERA_STATIC_SQLITE OR NOT TESSERA_STATIC_ZLIB OR
   NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()

# Gives a target the functions of old_glibc.c that it calls, and leaves out what nobody calls.
function(tessera_old_glibc target)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/python/wheel/old_glibc.c)
  target_compile_options(${target} PRIVATE -ffunction-sections)
  target_link_options(${target} PRIVATE -s -Wl,-z,defs -Wl,--gc-sections)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
endfunction()

function(tessera_portable target output)
  tessera_old_glibc(${target})
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/python/wheel/fmt.cc)
  # libpthread and libdl are part of libc since glibc 2.34, and are needed before.
  target_link_libraries(${target} PRIVATE ${TESSERA_STATIC_SQLITE} ${TESSERA_STATIC_ZLIB}
                        OpenMP::OpenMP_CXX
                        -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
                        -Wl,--pop-state m)
  target_link_options(${target} PRIVATE -static-libstdc++)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output}
                        BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN"
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/portable
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/portable)
endfunction()

add_library(tessera_portable SHARED EXCLUDE_FROM_ALL
            ${PROJECT_SOURCE_DIR}/src/tessera/never_destroyed.cc)
tessera_closure(all c_api)
foreach(name ${all})
  if(TARGET tessera_${name})
    target_sources(tessera_portable PRIVATE $<TARGET_OBJECTS:tessera_${name}>)
  endif()
endforeach()
tessera_portable(tessera_portable tessera)
set(exported ${PROJECT_SOURCE_DIR}/python/wheel/exported.map)
target_link_options(tessera_portable PRIVATE -Wl,-z,nodelete -Wl,--version-script=${exported})
set_target_properties(tessera_portable PROPERTIES SOVERSION 0 LINK_DEPENDS ${exported})

add_executable(tessera_portable_worker EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tessera_worker>
               ${PROJECT_SOURCE_DIR}/python/wheel/old_start.c)
target_link_libraries(tessera_portable_worker PRIVATE $<TARGET_FILE:tessera_tools>)
add_dependencies(tessera_portable_worker tessera_tools)
tessera_portable(tessera_portable_worker tessera-worker)
set(TESSERA_WHEEL_TARGETS tessera_portable tessera_portable_worker)
