# Defines the targets of a room (a folder below yoke/): its library, its tests, and the compiler flags of both.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# yoke_install_rpath(TARGET LIB): the installed target finds yoke's libraries in LIB, a path relative to its own folder,
# and libtorch through the link in LIB (YokeInstall.cmake). It contains no paths of this machine except those in
# CMAKE_INSTALL_RPATH, which users may set for libraries in other places.
function(yoke_install_rpath target lib)
  cmake_path(APPEND origin "$ORIGIN" ${lib})
  set_target_properties(${target} PROPERTIES
                        INSTALL_RPATH "${origin};${origin}/yoke/torch/lib;${CMAKE_INSTALL_RPATH}")
endfunction()

# ccache treats paths below the checkout as relative, so that presets and checkouts share results of equal compilations.
find_program(YOKE_CCACHE ccache)
if(YOKE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      "${YOKE_CCACHE}")
endif()

add_library(yoke_flags INTERFACE)
# -Wrestrict: GCC 12 wrongly reports overlaps in std::string's operator+ (GCC bug 105651).
# -Wsubobject-linkage: in a unity build, a generated file includes the sources, so GCC takes them for headers.
target_compile_options(yoke_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-subobject-linkage>
                       $<$<BOOL:${YOKE_WERROR}>:-Werror>
                       # Assertions in headers contain the header's path, and installed libraries must not contain this
                       # machine's folders.
                       "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(YOKE_SANITIZE)
  # TSan must see every access, so tests are instrumented too. With ASan and UBSan only the product is instrumented, so
  # that ccache can reuse the objects of tests from other builds. Optimising would take more time than it saves in the
  # tests. The four checks below take a third of the compile time, and ASan reports null pointers anyway, so only the
  # fuzz targets have these checks.
  set(flags -O0 -g1 -UNDEBUG -fno-omit-frame-pointer -fsanitize=${YOKE_SANITIZE})
  if(YOKE_SANITIZE MATCHES undefined)
    list(APPEND flags -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  target_compile_options(yoke_flags INTERFACE
                         "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:YOKE_NOT_SANITIZED>>>:${flags}>")
  target_link_options(yoke_flags INTERFACE -fsanitize=${YOKE_SANITIZE})
endif()

# Compiles several sources as one, because headers, mainly libtorch's, take most of the compile time.
function(yoke_unite target batch_size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${YOKE_UNITY} UNITY_BUILD_BATCH_SIZE ${batch_size})
endfunction()

# yoke_library(ROOM [SHARED] SOURCES ... [HEADERS ...] [LINK ...] [PRIVATE ...]): libyoke_ROOM, named yoke::ROOM.
# HEADERS are the public headers. A library with HEADERS is installed; a library without HEADERS is not.
function(yoke_library room)
  cmake_parse_arguments(ARG "SHARED" "" "SOURCES;HEADERS;LINK;PRIVATE" ${ARGN})
  set(kind STATIC)
  if(ARG_SHARED)
    set(kind SHARED)
  endif()
  add_library(yoke_${room} ${kind} ${ARG_SOURCES})
  add_library(yoke::${room} ALIAS yoke_${room})
  yoke_unite(yoke_${room} 8)
  set_target_properties(yoke_${room} PROPERTIES EXPORT_NAME ${room})
  target_compile_features(yoke_${room} PUBLIC cxx_std_20)
  if(ARG_HEADERS)
    target_sources(yoke_${room} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${ARG_HEADERS})
    set_property(GLOBAL APPEND PROPERTY YOKE_INSTALLED_ROOMS ${room})
  endif()
  target_include_directories(yoke_${room} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(yoke_${room} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:yoke_flags>)
endfunction()

# yoke_test(ROOM SOURCES ... [LINK ...] [DEFINES NAME="value" ...] [DEPENDS target ...] [ENVIRONMENT A=b]
#           [TIMEOUT seconds] [THREADS] [COMPUTES])
# Adds a GoogleTest program with one ctest entry per test. It is built after the targets in DEPENDS. THREADS: the tested
# code has threads, so the program is part of the TSan build, which contains only such programs. COMPUTES: each test
# keeps a processor busy, whereas other tests mostly wait.
#
# scripts/test runs four tests per processor at a time; a test with COMPUTES counts as four. The label of a test is
# `machine` or `training` (with libtorch). `machine` tests are the same with and without libtorch, so they run once.
function(yoke_test room)
  cmake_parse_arguments(ARG "THREADS;COMPUTES" "TIMEOUT"
                        "SOURCES;LINK;DEFINES;DEPENDS;ENVIRONMENT" ${ARGN})
  if(NOT YOKE_TESTS OR (YOKE_SANITIZE STREQUAL "thread" AND NOT ARG_THREADS))
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 240)  # with a sanitizer, a test of one second may take a minute on a busy machine
  endif()
  add_executable(yoke_${room}_test ${ARG_SOURCES})
  target_include_directories(yoke_${room}_test PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(yoke_${room}_test PRIVATE ${ARG_DEFINES})
  if(ARG_DEPENDS)
    add_dependencies(yoke_${room}_test ${ARG_DEPENDS})
  endif()
  target_compile_options(yoke_${room}_test PRIVATE $<$<CONFIG:Release>:-O1>)  # compiling takes longer than running
  yoke_unite(yoke_${room}_test 8)
  if(NOT YOKE_SANITIZE STREQUAL "thread")
    set_target_properties(yoke_${room}_test PROPERTIES YOKE_NOT_SANITIZED ON)
  endif()
  target_link_libraries(yoke_${room}_test PRIVATE ${ARG_LINK} yoke_flags GTest::gmock GTest::gtest_main)
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_COMPUTES)
    list(APPEND properties PROCESSORS 4)
  endif()
  list(APPEND properties LABELS ${yoke_half})
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  gtest_discover_tests(yoke_${room}_test TEST_PREFIX "${room}." DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()

# yoke_command_test(NAME SOURCES ... [arguments of yoke_test]): a yoke_test that runs the command on machines of fakes/.
function(yoke_command_test name)
  cmake_parse_arguments(ARG "" "" "LINK;DEFINES;DEPENDS" ${ARGN})
  yoke_test(${name} ${ARG_UNPARSED_ARGUMENTS} TIMEOUT 300
    LINK yoke_test_support nlohmann_json::nlohmann_json ${ARG_LINK}
    DEFINES
      YOKE_COMMAND="$<TARGET_FILE:yoke>"
      YOKE_FAKES_FOLDER="${CMAKE_BINARY_DIR}/fakes"
      YOKE_FAKE_SYSFS="${CMAKE_BINARY_DIR}/fakes/sysfs"
      YOKE_STATES_FOLDER="${PROJECT_SOURCE_DIR}/fakes/nvml/states"
      YOKE_TOPOLOGIES="${PROJECT_SOURCE_DIR}/fakes/topologies"
      ${ARG_DEFINES}
    DEPENDS yoke yoke_fake_cuda yoke_fake_nvml yoke_fake_nvml_old yoke_fake_sysfs ${ARG_DEPENDS})
endfunction()
