# The three kinds of target this project has: a room's library, a room's tests, and the flags common to both.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

# An installed program finds libyoke_dist beside it, and libtorch where it was linked.
file(RELATIVE_PATH YOKE_BIN_TO_LIB "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/${YOKE_BIN_TO_LIB}")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

find_program(YOKE_CCACHE ccache)
if(YOKE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${YOKE_CCACHE}")
endif()

add_library(yoke_flags INTERFACE)
# -Wrestrict: GCC 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
target_compile_options(yoke_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       $<$<BOOL:${YOKE_WERROR}>:-Werror>)
if(YOKE_SANITIZE)
  target_compile_options(yoke_flags INTERFACE -fsanitize=${YOKE_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(yoke_flags INTERFACE -fsanitize=${YOKE_SANITIZE})
endif()

# yoke_library(ROOM [SHARED] SOURCES ... [LINK ...] [PRIVATE ...]): libyoke_ROOM, exported as yoke::ROOM.
function(yoke_library room)
  cmake_parse_arguments(ARG "SHARED" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  set(kind STATIC)
  if(ARG_SHARED)
    set(kind SHARED)
  endif()
  add_library(yoke_${room} ${kind} ${ARG_SOURCES})
  add_library(yoke::${room} ALIAS yoke_${room})
  set_target_properties(yoke_${room} PROPERTIES EXPORT_NAME ${room})
  target_compile_features(yoke_${room} PUBLIC cxx_std_20)
  target_include_directories(yoke_${room} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(yoke_${room} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:yoke_flags>)
endfunction()

# yoke_test(ROOM SOURCES ... [LINK ...] [LABELS ...] [ENVIRONMENT A=b] [TIMEOUT seconds]): one GoogleTest program, one ctest entry a test.
function(yoke_test room)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT YOKE_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(yoke_${room}_test ${ARG_SOURCES})
  target_include_directories(yoke_${room}_test PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(yoke_${room}_test PRIVATE $<$<CONFIG:Release>:-O1>)  # compiling takes longer than running
  target_link_libraries(yoke_${room}_test PRIVATE ${ARG_LINK} yoke_flags GTest::gmock GTest::gtest_main)
  set(properties TIMEOUT ${ARG_TIMEOUT})
  foreach(name LABELS ENVIRONMENT)  # an empty value would swallow the next name
    if(ARG_${name})
      list(APPEND properties ${name} "${ARG_${name}}")
    endif()
  endforeach()
  gtest_discover_tests(yoke_${room}_test TEST_PREFIX "${room}." DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()
