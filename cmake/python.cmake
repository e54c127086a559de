# What the Python package holds besides Python: the extension _fast, the library, the worker and the
# packs, in the folder of the package. `cmake --install BUILD --component python` copies them;
# pyproject.toml and tools/make_wheel.py make a wheel of that. The library finds the worker and the
# packs beside itself.
if(SKBUILD)
  find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
else()
  find_package(Python 3.9 QUIET COMPONENTS Interpreter Development.Module)
endif()

if(Python_Development.Module_FOUND)
  enable_language(C)
  # Every version since 3.9 loads it: see python/src/fast.c. It finds Python's functions in the
  # program that loads it.
  add_library(tessera_fast MODULE EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/python/src/fast.c
              ${PROJECT_SOURCE_DIR}/python/src/tensors.c
              ${PROJECT_SOURCE_DIR}/python/src/reading.c ${PROJECT_SOURCE_DIR}/python/src/making.c)
  target_include_directories(tessera_fast SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
  target_include_directories(tessera_fast PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(tessera_fast PRIVATE _GNU_SOURCE)
  target_link_libraries(tessera_fast PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(tessera_fast PROPERTIES PREFIX "" OUTPUT_NAME _fast SUFFIX .abi3.so
                        C_STANDARD 99 C_STANDARD_REQUIRED ON UNITY_BUILD OFF
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python)
  if(TESSERA_WHEEL_TARGETS)
    tessera_old_glibc(tessera_fast)
    target_link_options(tessera_fast PRIVATE -Wl,-z,undefs)  # Python's functions
  endif()
  install(TARGETS tessera_fast LIBRARY DESTINATION tessera COMPONENT python EXCLUDE_FROM_ALL)
  add_custom_target(python_package DEPENDS tessera_fast tessera tessera_worker
                    ${TESSERA_WHEEL_TARGETS})
  if(TARGET shipped)
    add_dependencies(python_package shipped)
  endif()
else()
  message(STATUS "Python package: no extension, Python's headers were not found")
endif()

# A wheel holds no links, so that the library has the name by which it is loaded.
set(library tessera)
set(worker tessera_worker)
if(TESSERA_WHEEL_TARGETS)
  list(GET TESSERA_WHEEL_TARGETS 0 library)
  list(GET TESSERA_WHEEL_TARGETS 1 worker)
endif()
install(PROGRAMS $<TARGET_FILE:${library}> DESTINATION tessera/lib COMPONENT python
        EXCLUDE_FROM_ALL RENAME $<TARGET_SONAME_FILE_NAME:tessera>)
install(PROGRAMS $<TARGET_FILE:${worker}> DESTINATION tessera/lib COMPONENT python
        EXCLUDE_FROM_ALL)
install(FILES ${packs} DESTINATION tessera/lib COMPONENT python EXCLUDE_FROM_ALL)
