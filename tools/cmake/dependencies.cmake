# Everything comes from the system; tools/bootstrap.sh installs what is missing. The versions are the oldest that are
# tested, Debian 12's.

set(jitgemm_missing "")

# find_package() that only takes a note, so that one error names all that is missing. An empty version: any.
macro(jitgemm_find_package package version debian)
  find_package(${package} ${version} QUIET)
  if(NOT ${package}_FOUND)
    jitgemm_note_missing("${package}" "${version}" "${debian}" "${${package}_CONSIDERED_VERSIONS}")
  endif()
endmacro()

macro(jitgemm_note_missing what version debian found)
  set(jitgemm_note "  ${what}")
  if(NOT "${version}" STREQUAL "")
    string(APPEND jitgemm_note " ${version} or newer")
  endif()
  if(NOT "${found}" STREQUAL "" AND "${found}" VERSION_LESS "${version}")  # else it misses something itself
    string(APPEND jitgemm_note " (found: ${found})")
  endif()
  list(APPEND jitgemm_missing "${jitgemm_note}: apt-get install ${debian}")
endmacro()

function(jitgemm_stop_if_missing)
  if(NOT jitgemm_missing)
    return()
  endif()
  list(JOIN jitgemm_missing "\n" text)
  list(JOIN ARGN "; " hint)
  if(hint)
    string(PREPEND hint "\n")
  endif()
  message(FATAL_ERROR "jitgemm misses, with their packages in Debian and Ubuntu:\n${text}\n"
                      "tools/bootstrap.sh installs them; CMAKE_PREFIX_PATH names other places to look.${hint}")
endfunction()

# The first group of `regex` in a header; empty if the header is not there.
function(jitgemm_read_version result header regex)
  set(${result} "" PARENT_SCOPE)
  if(EXISTS ${header})
    file(STRINGS ${header} line REGEX ${regex} LIMIT_COUNT 1)
    if(line MATCHES ${regex})
      set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

find_package(Threads REQUIRED)
jitgemm_find_package(spdlog 1.10 libspdlog-dev)
jitgemm_find_package(fmt 9.1 libfmt-dev)
if(NOT TARGET nlohmann_json::nlohmann_json)
  jitgemm_find_package(nlohmann_json 3.11 nlohmann-json3-dev)
endif()

find_path(JITGEMM_XXHASH_INCLUDE_DIR xxhash.h)
jitgemm_read_version(xxhash_version ${JITGEMM_XXHASH_INCLUDE_DIR}/xxhash.h "define XXH_VERSION_MINOR +([0-9]+)")
if(NOT xxhash_version OR xxhash_version LESS 8)
  if(xxhash_version)
    string(PREPEND xxhash_version 0.)
  endif()
  jitgemm_note_missing(xxHash 0.8 libxxhash-dev "${xxhash_version}")
endif()

# Boost.Context by its files: FindBoost answers to variables that are the whole project's. The static library where there
# is one, since binaries then run on machines without Boost.
set(boost_hints ${Boost_ROOT} ${BOOST_ROOT} $ENV{Boost_ROOT} $ENV{BOOST_ROOT})
set(boost_context_names libboost_context.a boost_context)
find_path(JITGEMM_BOOST_INCLUDE_DIR boost/context/detail/fcontext.hpp HINTS ${boost_hints} PATH_SUFFIXES include)
find_library(JITGEMM_BOOST_CONTEXT NAMES ${boost_context_names} HINTS ${boost_hints} PATH_SUFFIXES lib)
jitgemm_read_version(boost_version ${JITGEMM_BOOST_INCLUDE_DIR}/boost/version.hpp "define BOOST_LIB_VERSION \"([0-9_]+)")
string(REPLACE "_" "." boost_version "${boost_version}")
if(JITGEMM_BOOST_CONTEXT AND boost_version VERSION_GREATER_EQUAL 1.74)
  if(NOT TARGET jitgemm::boost_context)  # global, for who links the static library from another folder
    add_library(jitgemm::boost_context UNKNOWN IMPORTED GLOBAL)
    set_target_properties(jitgemm::boost_context PROPERTIES IMPORTED_LOCATION ${JITGEMM_BOOST_CONTEXT})
  endif()
else()
  jitgemm_note_missing(Boost.Context 1.74 libboost-context-dev "${boost_version}")
endif()

# CUDA: headers to compile against; NVRTC and the driver are found again at run time.
set(cuda_roots ${CUDA_HOME} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${PROJECT_SOURCE_DIR}/.cuda/nvidia/cu13)
find_path(JITGEMM_CUDA_INCLUDE_DIR NAMES nvrtc.h HINTS ${cuda_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(JITGEMM_CUDA_INCLUDE_DIR NAMES nvrtc.h)
set(oldest_cuda 12.3)  # whose cuda.h knows the data of a graph's edges
if(JITGEMM_CUDA_INCLUDE_DIR AND EXISTS ${JITGEMM_CUDA_INCLUDE_DIR}/cuda.h)
  jitgemm_read_version(cuda_version ${JITGEMM_CUDA_INCLUDE_DIR}/cuda.h "^#define CUDA_VERSION ([0-9]+)")
  string(REGEX REPLACE "^(.*)0(.+).$" "\\1.\\2" cuda_version "${cuda_version}")  # 12030
  if(cuda_version VERSION_LESS oldest_cuda)
    message(FATAL_ERROR "jitgemm needs the headers of CUDA ${oldest_cuda} or newer, and those in "
                        "${JITGEMM_CUDA_INCLUDE_DIR} are of ${cuda_version}: set JITGEMM_CUDA_INCLUDE_DIR or CUDA_HOME, "
                        "or let tools/bootstrap.sh get them from PyPI")
  endif()
else()
  list(APPEND jitgemm_missing "  cuda.h and nvrtc.h of CUDA ${oldest_cuda} or newer: install a CUDA toolkit and set \
CUDA_HOME, or let tools/bootstrap.sh get them from PyPI")
endif()
jitgemm_stop_if_missing()
find_library(JITGEMM_NVRTC NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12 HINTS ${cuda_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
find_library(JITGEMM_NVRTC NAMES nvrtc)

# spdlog and fmt as headers, so that neither is a run-time dependency; src/util/spdlog.cpp and src/util/fmt.cpp compile
# their code, which takes seconds in every file that logs or prints. Which part of fmt that is depends on its version.
add_library(jitgemm_spdlog INTERFACE)
target_compile_definitions(jitgemm_spdlog INTERFACE SPDLOG_FMT_EXTERNAL SPDLOG_COMPILED_LIB SPDLOG_DISABLE_DEFAULT_LOGGER)
get_target_property(spdlog_include_dirs spdlog::spdlog_header_only INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(jitgemm_spdlog SYSTEM INTERFACE ${spdlog_include_dirs})
target_link_libraries(jitgemm_spdlog INTERFACE Threads::Threads)
if(fmt_VERSION VERSION_GREATER_EQUAL 10)
  target_link_libraries(jitgemm_spdlog INTERFACE fmt::fmt-header-only)
else()
  get_target_property(fmt_include_dirs fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(jitgemm_spdlog SYSTEM INTERFACE ${fmt_include_dirs})
endif()

if(JITGEMM_TOOLS OR JITGEMM_TESTS)  # cuBLASLt is a peer in benchmarks, nothing else.
  find_library(JITGEMM_CUBLASLT NAMES cublasLt HINTS ${cuda_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
  find_library(JITGEMM_CUBLAS NAMES cublas HINTS ${cuda_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
  mark_as_advanced(JITGEMM_CUBLASLT JITGEMM_CUBLAS)
endif()
mark_as_advanced(JITGEMM_XXHASH_INCLUDE_DIR JITGEMM_BOOST_INCLUDE_DIR JITGEMM_BOOST_CONTEXT JITGEMM_CUDA_INCLUDE_DIR
                 JITGEMM_NVRTC)
