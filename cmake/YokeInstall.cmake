# Defines where `cmake --install` puts files, so that find_package(yoke) works. Libraries with public headers are
# installed; with YOKE_TORCH=OFF, those that need libtorch are not built. The command, the tools and the recipes have
# install rules in their own folders.
#
#   bin/yoke  lib/libyoke_*  include/yoke/...  lib/cmake/yoke/  libexec/yoke/{yoke-NAME,recipes/NAME/}
#   lib/yoke/torch -> libtorch  share/yoke/{examples,notebooks}/
#
# No installed file contains a path of this machine. Only the link lib/yoke/torch points to libtorch, so users must set
# it again after moving the tree to a different machine.
#
# `cmake --install` installs everything. What only the package yoke-torch contains is the component `training`: libraries,
# headers, the CMake package, the plug, recipes, and tools with libtorch; the target yoke_training builds it.
if(NOT PROJECT_IS_TOP_LEVEL)  # the enclosing project's programs load these two libraries
  foreach(target yoke_dist yoke_gpu)
    if(TARGET ${target})
      install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    endif()
  endforeach()
  return()
endif()

include(CMakePackageConfigHelpers)
set(YOKE_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/yoke")
get_property(yoke_installed_rooms GLOBAL PROPERTY YOKE_INSTALLED_ROOMS)
list(TRANSFORM yoke_installed_rooms PREPEND "yoke_" OUTPUT_VARIABLE yoke_installed_targets)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples/" DESTINATION "${CMAKE_INSTALL_DATADIR}/yoke/examples"
        PATTERN "build" EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/notebooks/" DESTINATION "${CMAKE_INSTALL_DATADIR}/yoke/notebooks" FILES_MATCHING PATTERN "*.ipynb")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME training)  # from here on
install(TARGETS ${yoke_installed_targets} EXPORT yokeTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

# yoke_product builds everything that `cmake --install` installs, without tests and benches.
get_property(training GLOBAL PROPERTY YOKE_PRODUCT)
if(TARGET yoke_gpu)
  list(APPEND training yoke_gpu)
endif()
add_custom_target(yoke_training)
add_dependencies(yoke_training ${yoke_installed_targets} ${training})
set(product yoke_training)
foreach(target yoke yoke_generated yoke_fake_nvml yoke_fake_nvml_old)
  if(TARGET ${target})
    list(APPEND product ${target})
  endif()
endforeach()
add_custom_target(yoke_product)
add_dependencies(yoke_product ${product})

# The packages whose targets the installed libraries link, publicly or privately. yokeConfig.cmake must find them too.
set(yoke_dependencies "")
foreach(target IN LISTS yoke_installed_targets)
  get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
  string(REGEX MATCHALL "[A-Za-z0-9_]+::" links "${links}")
  list(APPEND yoke_dependencies ${links})
endforeach()
list(TRANSFORM yoke_dependencies REPLACE "::" "")
list(REMOVE_DUPLICATES yoke_dependencies)
list(REMOVE_ITEM yoke_dependencies yoke)

# find_package also finds the build tree: CMAKE_PREFIX_PATH=build/release.
set(yoke_build_config "${PROJECT_BINARY_DIR}/lib/cmake/yoke")
if(YOKE_TORCH)
  list(APPEND yoke_installed_targets yoke_train_pch)
  install(TARGETS yoke_train_pch EXPORT yokeTargets)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/YokeTorch.cmake" "${yoke_build_config}/YokeTorch.cmake" COPYONLY)
  install(FILES "${yoke_build_config}/YokeTorch.cmake" DESTINATION "${YOKE_CMAKE_DIR}")
  set(make_link [[
    cmake_path(GET link PARENT_PATH folder)
    file(MAKE_DIRECTORY "${folder}")
    file(REMOVE "${link}")
    file(CREATE_LINK "${root}" "${link}" SYMBOLIC)]])
  install(CODE "set(root \"${YOKE_TORCH_ROOT}\")
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/yoke/torch\")
${make_link}" COMPONENT link)
  set(root "${YOKE_TORCH_ROOT}")
  set(link "${PROJECT_BINARY_DIR}/lib/yoke/torch")
  cmake_language(EVAL CODE "${make_link}")
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" yoke_torch_minor "${YOKE_TORCH_VERSION}")
string(REPLACE "." "\\\\." yoke_torch_minor_regex "${yoke_torch_minor}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/yokeConfig.cmake.in" "${yoke_build_config}/yokeConfig.cmake"
                              INSTALL_DESTINATION "${YOKE_CMAKE_DIR}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${yoke_build_config}/yokeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${yoke_build_config}/yokeConfig.cmake" "${yoke_build_config}/yokeConfigVersion.cmake"
        DESTINATION "${YOKE_CMAKE_DIR}")

install(EXPORT yokeTargets NAMESPACE yoke:: DESTINATION "${YOKE_CMAKE_DIR}")
export(TARGETS ${yoke_installed_targets} yoke_flags NAMESPACE yoke:: FILE "${yoke_build_config}/yokeTargets.cmake")
