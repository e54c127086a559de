# The pack that comes with the library: the command line builds the essential kernels beside it, so
# that a new user's first call compiles nothing. It is remade when the program changes, which
# carries the templates, rows and sets; kernels that stay the same come from the cache.
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

# NVRTC needs no GPU: where it is found, a pack for machines that have one is made too.
find_file(TESSERA_NVRTC_LIBRARY NAMES libnvrtc.so.13 libnvrtc.so.12
          HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda /usr
          PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu
          DOC "NVRTC, to ship GPU kernels built with it")
cmake_dependent_option(TESSERA_SHIP_CUBINS "Build the GPU kernels that come with the library" ON
                       "TESSERA_NVRTC_LIBRARY" OFF)

# Developers' tests take a sample of those kernels, which compile in a seventh of the time, and of
# one of AMD's GPUs two sets: the tests that emulate kernels compile what they run.
option(TESSERA_SAMPLE_CUBINS "Build a sample of the GPU kernels that come with the library" OFF)
set(sample)
if(TESSERA_SAMPLE_CUBINS)
  find_program(TESSERA_PYTHON3 python3 REQUIRED)
  set(golden ${PROJECT_SOURCE_DIR}/tests/golden/machine_code.txt)
  execute_process(COMMAND ${TESSERA_PYTHON3} ${PROJECT_SOURCE_DIR}/tools/golden_code.py sample
                          ${golden} sm90a
                  OUTPUT_VARIABLE sample COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" sample "${sample}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${golden})
endif()

# Compilers for AMD's GPUs need no GPU either. The command line finds them itself, in the same way.
find_program(TESSERA_HIP_COMPILER NAMES amdclang++ clang++-22
             HINTS ENV ROCM_PATH ENV HIP_PATH PATHS /opt/rocm
             PATH_SUFFIXES bin llvm/bin lib/llvm/bin
             DOC "A compiler for AMD GPUs, to ship kernels built with it")
cmake_dependent_option(TESSERA_SHIP_CODE_OBJECTS
                       "Build the kernels for AMD GPUs that come with the library" ON
                       "TESSERA_HIP_COMPILER" OFF)
if(NOT TESSERA_SHIP_CODE_OBJECTS)
  message(STATUS "Kernels for AMD GPUs are not shipped: there is no amdclang++ or clang++-22 "
                 "('./dev setup' installs one), or TESSERA_SHIP_CODE_OBJECTS is off")
endif()

# tessera_pack(NAME KERNELS targets...): NAME.pack beside libtessera.so.
set(packs)
function(tessera_pack name kernels)
  list(JOIN ARGN "," targets)
  set(pack ${PROJECT_BINARY_DIR}/src/${name}.pack)
  set(nvrtc)
  if(TESSERA_NVRTC_LIBRARY)
    set(nvrtc TESSERA_NVRTC=${TESSERA_NVRTC_LIBRARY})
  endif()
  add_custom_command(
    OUTPUT ${pack}
    COMMAND ${CMAKE_COMMAND} -E env --unset=TESSERA_NO_JIT --unset=TESSERA_PACK
            TESSERA_CACHE_DIR=${PROJECT_BINARY_DIR}/kernel-cache ${nvrtc}
            $<TARGET_FILE:tessera_cli> pack --target ${targets} ${kernels}
            --output ${pack}
    DEPENDS tessera_cli tessera_worker
    COMMENT "Building the kernels that come with the library: ${targets}"
    USES_TERMINAL
    VERBATIM)
  install(FILES ${pack} DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
  set(packs ${packs} ${pack} PARENT_SCOPE)
endfunction()

set(essential --preselected all_essential)
tessera_pack(essential "${essential}" ${targets})
if(TESSERA_SHIP_CUBINS AND sample)
  tessera_pack(cubins "--name;${sample}" sm90a)
elseif(TESSERA_SHIP_CUBINS)
  tessera_pack(cubins "${essential}" sm90a)
endif()
if(TESSERA_SHIP_CODE_OBJECTS AND sample)
  tessera_pack(code_objects "--preselected;fp16_rcr_essential,bf16_rcr_essential" gfx942)
elseif(TESSERA_SHIP_CODE_OBJECTS)
  tessera_pack(code_objects "${essential}" gfx90a gfx942 gfx950)
endif()
add_custom_target(shipped ALL DEPENDS ${packs})
