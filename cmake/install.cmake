# `cmake --install` gives a package that find_package(tessera) finds.
include(CMakePackageConfigHelpers)
set(config ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(TARGETS tessera EXPORT tessera_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tessera_tools EXPORT tessera_tools_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tessera_cli)
  install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY src/tessera/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera
        FILES_MATCHING PATTERN "*.h" PATTERN "*_internal.h" EXCLUDE PATTERN "device" EXCLUDE
        PATTERN "parquet" EXCLUDE PATTERN "gemm" EXCLUDE PATTERN "commands" EXCLUDE)
install(FILES src/tessera/commands/commands.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera/commands)
install(EXPORT tessera_targets NAMESPACE tessera:: DESTINATION ${config})
install(EXPORT tessera_tools_targets NAMESPACE tessera:: DESTINATION ${config})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES cmake/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
        DESTINATION ${config})
