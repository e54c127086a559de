# The pack that comes with the library: the command line builds the essential kernels beside it, so
# that a new user's first call compiles nothing. It is remade when the program or the library
# changes, which carry the templates, rows and sets; kernels that stay the same come from the cache.
include(CMakeDependentOption)
cmake_dependent_option(TESSERA_SHIP_PACK "Build the kernels that come with the library" ON
                       "NOT CMAKE_CROSSCOMPILING" OFF)
if(NOT TESSERA_SHIP_PACK)
  return()
endif()

set(targets generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(targets avx512 avx2)
endif()
list(JOIN targets "," targets)
set(pack ${PROJECT_BINARY_DIR}/src/essential.pack)  # beside libtessera.so
add_custom_command(
  OUTPUT ${pack}
  COMMAND ${CMAKE_COMMAND} -E env --unset=TESSERA_NO_JIT --unset=TESSERA_PACK
          TESSERA_CACHE_DIR=${PROJECT_BINARY_DIR}/kernel-cache
          $<TARGET_FILE:tessera_cli> pack --target ${targets} --preselected all_essential
          --output ${pack}
  DEPENDS tessera_cli tessera
  COMMENT "Building the kernels that come with the library"
  USES_TERMINAL
  VERBATIM)
add_custom_target(shipped ALL DEPENDS ${pack})
install(FILES ${pack} DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
