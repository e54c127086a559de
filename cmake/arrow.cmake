# Arrow, which the Parquet plug-in needs: its headers and libraries come with Python's pyarrow.
# Every configuration looks for it anew, and a build configures again when pyarrow has come, changed
# or gone since.
set(TESSERA_PYTHON "" CACHE FILEPATH "The Python whose pyarrow is taken before that of others")

# The Pythons to ask: the one that is named, the one that had pyarrow the last time, the Pythons of
# the environments that are active, and the first on PATH.
function(tessera_pythons result)
  set(pythons ${TESSERA_PYTHON} ${TESSERA_ARROW_PYTHON})
  foreach(environment VIRTUAL_ENV CONDA_PREFIX)
    if(NOT "$ENV{${environment}}" STREQUAL "")
      list(APPEND pythons "$ENV{${environment}}/bin/python3")
    endif()
  endforeach()
  find_program(first_on_path NAMES python3 NO_CACHE)
  if(first_on_path)
    list(APPEND pythons ${first_on_path})
  endif()
  list(REMOVE_DUPLICATES pythons)
  set(${result} ${pythons} PARENT_SCOPE)
endfunction()

# Where packages of a Python are installed, also of one that does not exist yet, and what its
# pyarrow says of itself (nothing without one).
function(tessera_ask_python python places arrow)
  cmake_path(GET python PARENT_PATH folder)
  cmake_path(GET folder PARENT_PATH prefix)
  set(found ${prefix}/lib/python3*/site-packages)
  set(said)
  if(EXISTS ${python})
    execute_process(COMMAND ${python} -c "import site, sysconfig
print(sysconfig.get_path('platlib'))
print(site.getusersitepackages())"
                    OUTPUT_VARIABLE own ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" ";" own "${own}")
    list(APPEND found ${own})
    execute_process(COMMAND ${python} -c "import pyarrow
print(pyarrow.get_include())
print(pyarrow.get_library_dirs()[0])"
                    OUTPUT_VARIABLE said ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" ";" said "${said}")
  endif()
  set(${places} ${found} PARENT_SCOPE)
  set(${arrow} ${said} PARENT_SCOPE)
endfunction()

# Sets ARROW_INCLUDE, ARROW_FOLDER and ARROW_LIBRARIES, which is empty where there is no Arrow.
function(tessera_find_arrow)
  set(libraries)
  tessera_pythons(pythons)
  foreach(python ${pythons})
    tessera_ask_python(${python} places arrow)
    foreach(place ${places})
      file(GLOB ignored CONFIGURE_DEPENDS ${place}/pyarrow/libarrow.so.[0-9]*)
    endforeach()
    list(LENGTH arrow answers)
    if(libraries OR NOT answers EQUAL 2)
      continue()
    endif()
    list(GET arrow 1 folder)
    file(GLOB files CONFIGURE_DEPENDS ${folder}/libarrow.so.[0-9]* ${folder}/libparquet.so.[0-9]*)
    list(LENGTH files count)
    if(count EQUAL 2)
      set(libraries ${files})
      list(GET arrow 0 ARROW_INCLUDE)
      set(ARROW_INCLUDE ${ARROW_INCLUDE} PARENT_SCOPE)
      set(ARROW_FOLDER ${folder} PARENT_SCOPE)
      set(TESSERA_ARROW_PYTHON ${python} CACHE INTERNAL "The Python that had pyarrow the last time")
    endif()
  endforeach()
  set(ARROW_LIBRARIES ${libraries} PARENT_SCOPE)
endfunction()
