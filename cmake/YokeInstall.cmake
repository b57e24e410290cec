# What `cmake --install` puts where, so that find_package(yoke) works. Each target is installed if this build has it:
# with YOKE_TORCH=OFF the components of the training half are simply not there. The command and the recipes
# install themselves (yoke/cli, recipes).
#
#   bin/yoke  lib/libyoke_*  include/yoke/...  lib/cmake/yoke/  libexec/yoke/{yoke-NAME,recipes/NAME/}
#   share/yoke/examples/
include(CMakePackageConfigHelpers)
set(YOKE_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/yoke")
set(yoke_machine_rooms base device claim launch cluster)
set(yoke_training_rooms dist train)
set(yoke_installed_rooms "")

foreach(room IN LISTS yoke_machine_rooms yoke_training_rooms)
  if(NOT TARGET yoke_${room})
    continue()
  endif()
  list(APPEND yoke_installed_rooms ${room})
  install(TARGETS yoke_${room} EXPORT yokeTargets
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/yoke/${room}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/yoke"
          FILES_MATCHING PATTERN "*.h"
          PATTERN "*_test.h" EXCLUDE
          PATTERN "*_declarations" EXCLUDE)  # what yoke declares of libraries that ship no headers
endforeach()

if(TARGET yoke_cuda)  # a plug: loaded by libyoke_dist, linked by nobody
  install(TARGETS yoke_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples/" DESTINATION "${CMAKE_INSTALL_DATADIR}/yoke/examples"
        PATTERN "build" EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# The packages whose targets the installed rooms name, in public or only for the linker: yokeConfig finds them again.
set(yoke_dependencies "")
foreach(room IN LISTS yoke_installed_rooms)
  get_target_property(links yoke_${room} INTERFACE_LINK_LIBRARIES)
  string(REGEX MATCHALL "[A-Za-z0-9_]+::" links "${links}")
  list(APPEND yoke_dependencies ${links})
endforeach()
list(TRANSFORM yoke_dependencies REPLACE "::" "")
list(REMOVE_DUPLICATES yoke_dependencies)
list(REMOVE_ITEM yoke_dependencies yoke)

# The build tree is found as an installation is: CMAKE_PREFIX_PATH=build/release.
set(yoke_build_config "${PROJECT_BINARY_DIR}/lib/cmake/yoke")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/yokeConfig.cmake.in" "${yoke_build_config}/yokeConfig.cmake"
                              INSTALL_DESTINATION "${YOKE_CMAKE_DIR}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${yoke_build_config}/yokeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
set(yoke_config_files "${yoke_build_config}/yokeConfig.cmake" "${yoke_build_config}/yokeConfigVersion.cmake")
if(YOKE_TORCH)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/YokeTorch.cmake" "${yoke_build_config}/YokeTorch.cmake" COPYONLY)
  list(APPEND yoke_config_files "${yoke_build_config}/YokeTorch.cmake")
endif()
install(FILES ${yoke_config_files} DESTINATION "${YOKE_CMAKE_DIR}")

install(EXPORT yokeTargets NAMESPACE yoke:: DESTINATION "${YOKE_CMAKE_DIR}")
list(TRANSFORM yoke_installed_rooms PREPEND "yoke_" OUTPUT_VARIABLE yoke_installed_targets)
export(TARGETS ${yoke_installed_targets} yoke_flags NAMESPACE yoke:: FILE "${yoke_build_config}/yokeTargets.cmake")
