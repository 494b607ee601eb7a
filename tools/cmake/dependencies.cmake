# Everything comes from the system; tools/bootstrap.sh installs what is missing.

find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

# The static Boost.Context where there is one: binaries then run on machines without Boost.
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost QUIET COMPONENTS context)
if(NOT Boost_FOUND)
  set(Boost_USE_STATIC_LIBS OFF)
  find_package(Boost REQUIRED COMPONENTS context)
endif()

# spdlog and fmt as headers, so that neither is a run-time dependency; src/util/spdlog.cpp and src/util/fmt.cpp compile
# their code, which takes seconds in every file that logs or prints. Which part of fmt that is depends on its version.
add_library(jitgemm_spdlog INTERFACE)
target_compile_definitions(jitgemm_spdlog INTERFACE SPDLOG_FMT_EXTERNAL SPDLOG_COMPILED_LIB SPDLOG_DISABLE_DEFAULT_LOGGER)
get_target_property(spdlog_include_dirs spdlog::spdlog_header_only INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(jitgemm_spdlog SYSTEM INTERFACE ${spdlog_include_dirs})
target_link_libraries(jitgemm_spdlog INTERFACE Threads::Threads)
if(fmt_VERSION VERSION_GREATER_EQUAL 10 OR fmt_VERSION VERSION_LESS 9)
  target_link_libraries(jitgemm_spdlog INTERFACE fmt::fmt-header-only)
else()
  get_target_property(fmt_include_dirs fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(jitgemm_spdlog SYSTEM INTERFACE ${fmt_include_dirs})
endif()

# CUDA: headers to compile against; NVRTC and the driver are found again at run time.
set(cuda_roots ${CUDA_HOME} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${PROJECT_SOURCE_DIR}/.cuda/nvidia/cu13)
find_path(JITGEMM_CUDA_INCLUDE_DIR NAMES nvrtc.h HINTS ${cuda_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(JITGEMM_CUDA_INCLUDE_DIR NAMES nvrtc.h)
if(NOT JITGEMM_CUDA_INCLUDE_DIR OR NOT EXISTS ${JITGEMM_CUDA_INCLUDE_DIR}/cuda.h)
  message(FATAL_ERROR "cuda.h and nvrtc.h not found: run tools/bootstrap.sh, or set CUDA_HOME")
endif()
find_library(JITGEMM_NVRTC NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12 HINTS ${cuda_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
find_library(JITGEMM_NVRTC NAMES nvrtc)

# cuBLASLt is a peer in benchmarks, nothing else.
find_library(JITGEMM_CUBLASLT NAMES cublasLt HINTS ${cuda_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
find_library(JITGEMM_CUBLAS NAMES cublas HINTS ${cuda_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
find_library(JITGEMM_CUDART NAMES cudart HINTS ${cuda_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
mark_as_advanced(XXHASH_INCLUDE_DIR JITGEMM_CUDA_INCLUDE_DIR JITGEMM_NVRTC JITGEMM_CUBLASLT JITGEMM_CUBLAS JITGEMM_CUDART)
