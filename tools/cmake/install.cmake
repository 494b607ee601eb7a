# What `cmake --install` puts where: libraries, headers, a CMake package, a pkg-config file and the licence. All of it
# may be moved to another folder afterwards.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

list(JOIN boost_context_names " " boost_names)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/jitgemm)
configure_package_config_file(${PROJECT_SOURCE_DIR}/tools/cmake/jitgemm-config.cmake.in jitgemm-config.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(jitgemm-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/jitgemm-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/jitgemm-config-version.cmake
        DESTINATION ${config_dir})
install(TARGETS jitgemm EXPORT jitgemm-shared INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS jitgemm_static EXPORT jitgemm-static INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT jitgemm-shared NAMESPACE jitgemm:: DESTINATION ${config_dir})
install(EXPORT jitgemm-static NAMESPACE jitgemm:: DESTINATION ${config_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/jitgemm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Paths from ${pcfiledir}, which pkg-config knows, unless the packager gives whole ones.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(kind LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${kind}})
    set(pc_${kind} ${CMAKE_INSTALL_${kind}})
  elseif(IS_ABSOLUTE ${pc_dir})
    set(pc_${kind} ${CMAKE_INSTALL_FULL_${kind}})
  else()
    file(RELATIVE_PATH pc_${kind} /${pc_dir} /${CMAKE_INSTALL_${kind}})
    string(REGEX REPLACE "/$" "" pc_${kind} "\${pcfiledir}/${pc_${kind}}")
  endif()
endforeach()
string(STRIP "-lboost_context ${CMAKE_THREAD_LIBS_INIT}" pc_private_libs)
configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/jitgemm.pc.in jitgemm.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/jitgemm.pc DESTINATION ${pc_dir})
