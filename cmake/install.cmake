# `cmake --install` gives a package that find_package(tessera) finds.
include(CMakePackageConfigHelpers)
install(TARGETS tessera EXPORT tessera_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tessera_cli)
  install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY src/tessera/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera
        FILES_MATCHING PATTERN "*.h" PATTERN "*_internal.h" EXCLUDE PATTERN "device" EXCLUDE
        PATTERN "parquet" EXCLUDE PATTERN "gemm" EXCLUDE)
install(EXPORT tessera_targets NAMESPACE tessera:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera
        FILE tesseraConfig.cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
