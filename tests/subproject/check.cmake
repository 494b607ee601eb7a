# cmake -DJITGEMM=... -DSOURCE_DIR=... -DWORK_DIR=... -DGENERATOR=... -DCXX=... -P check.cmake
# Configures a project that has jitgemm as a folder of its own; building it would take as long as jitgemm does. Then looks
# at what is said where something is missing.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
                        -DJITGEMM=${JITGEMM} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${WORK_DIR}/build --prefix ${WORK_DIR}/prefix COMMAND_ERROR_IS_FATAL ANY)
if(EXISTS ${WORK_DIR}/prefix)
  message(FATAL_ERROR "as a subproject, jitgemm installs files")
endif()

function(expect_error text)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${JITGEMM} -B ${WORK_DIR}/missing -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
                          -DJITGEMM_TOOLS=OFF -DJITGEMM_TESTS=OFF ${ARGN}
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE messages)
  string(REGEX REPLACE "[ \n]+" " " messages "${messages}")  # CMake breaks lines
  string(FIND "${messages}" "${text}" found)
  if(status EQUAL 0 OR found EQUAL -1)
    message(FATAL_ERROR "instead of \"${text}\" it says: ${messages}")
  endif()
  file(REMOVE_RECURSE ${WORK_DIR}/missing)
endfunction()
expect_error("spdlog 1.10 or newer: apt-get install libspdlog-dev nlohmann_json 3.11 or newer: apt-get install nlohmann-json3-dev"
             -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
expect_error("xxHash 0.8 or newer: apt-get install libxxhash-dev Boost.Context 1.74 or newer: apt-get install libboost-context-dev"
             -DJITGEMM_XXHASH_INCLUDE_DIR= -DJITGEMM_BOOST_INCLUDE_DIR=)
file(WRITE ${WORK_DIR}/old/nvrtc.h "")
file(WRITE ${WORK_DIR}/old/cuda.h "#define CUDA_VERSION 12020\n")
expect_error("jitgemm needs the headers of CUDA 12.3 or newer" -DJITGEMM_CUDA_INCLUDE_DIR=${WORK_DIR}/old)
