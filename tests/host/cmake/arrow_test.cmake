# A build that found no pyarrow configures again when one comes, changes or goes, and not otherwise.
# The Pythons are scripts: they answer the questions of cmake/arrow.cmake, and each has pyarrow once
# its folder holds it.
#
#   cmake -DSOURCE=<Tessera> -DGENERATOR=Ninja -DPROGRAM=<ninja> -DFOLDER=<of this test>
#         -P arrow_test.cmake
file(REMOVE_RECURSE ${FOLDER})
set(build ${FOLDER}/build)
set(ENV{VIRTUAL_ENV} ${FOLDER}/environment)
set(ENV{CONDA_PREFIX})
set(ENV{PATH} "${FOLDER}/usual/bin:$ENV{PATH}")

function(make_python name)
  file(WRITE ${FOLDER}/${name}/bin/python3 "#!/bin/sh
packages=${FOLDER}/${name}/lib/python3.99/site-packages
arrow=$packages/pyarrow
case \"$2\" in
  *platlib*) echo $packages; echo /nowhere ;;
  *pyarrow*) test -e $arrow && echo $arrow/include && echo $arrow ;;
esac
")
  file(CHMOD ${FOLDER}/${name}/bin/python3 PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

function(install_pyarrow name version)
  set(folder ${FOLDER}/${name}/lib/python3.99/site-packages/pyarrow)
  file(REMOVE_RECURSE ${folder})
  foreach(library arrow parquet)
    file(WRITE ${folder}/lib${library}.so.${version} "")
  endforeach()
endfunction()

function(remove_pyarrow name)
  file(REMOVE_RECURSE ${FOLDER}/${name}/lib/python3.99/site-packages/pyarrow)
endfunction()

# What the last configuration found, and how many there were.
function(expect condition configurations where version)
  set(wanted)
  if(where)
    set(folder ${FOLDER}/${where}/lib/python3.99/site-packages/pyarrow)
    set(wanted ${folder}/libarrow.so.${version} ${folder}/libparquet.so.${version})
    set(wanted "${folder}/include ${wanted}")
  endif()
  file(READ ${build}/found text)
  string(REGEX MATCHALL "configured" all "${text}")
  list(LENGTH all count)
  string(REGEX REPLACE ".*configured\n" "" last "${text}")
  if(NOT count EQUAL configurations OR NOT last STREQUAL "${wanted}")
    message(SEND_ERROR "${condition}: after ${count} configurations (wanted ${configurations}) "
                       "found '${last}' (wanted '${wanted}')")
  endif()
endfunction()

function(run)
  execute_process(COMMAND ${ARGV} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(WRITE ${FOLDER}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(arrow_test NONE)
include(${SOURCE}/cmake/arrow.cmake)
tessera_find_arrow()
set(found)
if(ARROW_LIBRARIES)
  set(found \"\${ARROW_INCLUDE} \${ARROW_LIBRARIES}\")
endif()
file(APPEND ${build}/found \"configured\\n\${found}\")
add_custom_target(nothing ALL)
")
make_python(usual)
run(${CMAKE_COMMAND} -S ${FOLDER} -B ${build} -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${PROGRAM})
expect("nobody has pyarrow" 1 "" "")
run(${CMAKE_COMMAND} --build ${build})
expect("nothing has changed" 1 "" "")

make_python(environment)
install_pyarrow(environment 1700)
run(${CMAKE_COMMAND} --build ${build})
expect("an environment was made, with pyarrow" 2 environment 1700)
run(${CMAKE_COMMAND} --build ${build})
expect("nothing has changed since" 2 environment 1700)

install_pyarrow(environment 1800)
run(${CMAKE_COMMAND} --build ${build})
expect("pyarrow was upgraded" 3 environment 1800)

set(ENV{VIRTUAL_ENV})
run(${CMAKE_COMMAND} ${build})
expect("the environment is no longer active" 4 environment 1800)

remove_pyarrow(environment)
run(${CMAKE_COMMAND} --build ${build})
expect("pyarrow was removed" 5 "" "")

install_pyarrow(usual 1800)
run(${CMAKE_COMMAND} --build ${build})
expect("the usual Python got pyarrow" 6 usual 1800)

make_python(named)
install_pyarrow(named 1900)
run(${CMAKE_COMMAND} -DTESSERA_PYTHON=${FOLDER}/named/bin/python3 ${build})
expect("a Python was named" 7 named 1900)
