# cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DWORK_DIR=... -DVERSION=... -DLIBDIR=... -DCXX_FLAGS=... -P check.cmake
# Installs jitgemm, moves the installation, builds this folder against it with find_package and with pkg-config, in C++ and
# in C by GCC and Clang where they are, and runs what comes out.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(prefix "${WORK_DIR}/moved prefix")
file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
file(RENAME ${WORK_DIR}/prefix ${prefix})
if(NOT EXISTS ${prefix}/share/doc/jitgemm/LICENSE)
  message(FATAL_ERROR "the licence is not installed")
endif()
set(ENV{JITGEMM_CACHE_DIR} ${WORK_DIR}/cache)

run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DVERSION=${VERSION})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consumer_shared)
run(${WORK_DIR}/build/consumer_static)

if(NOT CXX_FLAGS)  # sanitizers are the C++ compiler's
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/c -B ${WORK_DIR}/c_build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
      -DVERSION=${VERSION})
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/c_build)
  run(${WORK_DIR}/c_build/c_consumer_shared)
  run(${WORK_DIR}/c_build/c_consumer_static)
endif()

# What older C++ gets is one error that says so.
execute_process(COMMAND ${CXX} -std=c++17 -fsyntax-only -I${prefix}/include ${SOURCE_DIR}/main.cpp
                RESULT_VARIABLE status ERROR_VARIABLE messages)
string(REGEX MATCHALL "error:[^\n]*" errors "${messages}")
list(LENGTH errors count)
if(status EQUAL 0 OR NOT count EQUAL 1 OR NOT errors MATCHES "jitgemm needs C\\+\\+20")
  message(FATAL_ERROR "C++17 gets ${count} errors: ${messages}")
endif()
# But the C header is for it, too.
run(${CXX} -x c++ -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -I${prefix}/include ${SOURCE_DIR}/main.c)

find_program(pkg_config NAMES pkg-config pkgconf)
if(NOT pkg_config)
  message("SKIPPED: there is no pkg-config: apt-get install pkg-config")  # the last line; all else has passed
  return()
endif()
set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
function(pkg_config output)
  execute_process(COMMAND ${pkg_config} ${ARGN} jitgemm OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(text UNIX_COMMAND "${text}")
  set(${output} ${text} PARENT_SCOPE)
endfunction()
pkg_config(found_version --modversion)
if(NOT found_version STREQUAL VERSION)
  message(FATAL_ERROR "pkg-config knows version ${found_version} instead of ${VERSION}")
endif()
pkg_config(flags --cflags --libs)
run(${CXX} -std=c++20 ${CXX_FLAGS} ${SOURCE_DIR}/main.cpp -o ${WORK_DIR}/by_pkg_config ${flags}
    "-Wl,-rpath,${prefix}/${LIBDIR}")
run(${WORK_DIR}/by_pkg_config)

# C, against the shared library and against an installation that has the static one alone.
function(run_c kind)
  foreach(cc gcc clang)
    find_program(program_${cc} NAMES ${cc})
    if(program_${cc})
      run(${program_${cc}} -std=c99 -pedantic -Wall -Wextra -Werror ${SOURCE_DIR}/main.c -o ${WORK_DIR}/${cc}_${kind} ${ARGN})
      run(${WORK_DIR}/${cc}_${kind})
      message("a C program runs that ${cc} has linked with the ${kind} library")
    endif()
  endforeach()
endfunction()
if(CXX_FLAGS)
  return()
endif()
run_c(shared ${flags} "-Wl,-rpath,${prefix}/${LIBDIR}")
file(GLOB shared ${prefix}/${LIBDIR}/libjitgemm.so*)
file(REMOVE ${shared})
pkg_config(flags --static --cflags --libs)
run_c(static ${flags})
