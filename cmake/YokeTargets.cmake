# Defines the targets of a room (a folder below yoke/): its library, its tests, and the compiler flags of both.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# The folders, relative to a prefix, that Pythons of that prefix have for packages: those of a virtual environment, of
# Debian's Python in /usr/local, and of Red Hat's.
set(yoke_site_packages "")
foreach(minor RANGE 10 15)
  list(APPEND yoke_site_packages "lib/python3.${minor}/site-packages")
endforeach()
foreach(place lib/python3.14t/site lib/python3.15t/site lib/python3.11/dist lib/python3.12/dist lib/python3.13/dist
              lib/python3.14/dist lib64/python3.12/site lib64/python3.13/site lib64/python3.14/site)
  list(APPEND yoke_site_packages "${place}-packages")
endforeach()

# yoke_install_rpath(TARGET LIB): the installed target finds yoke's libraries in LIB, a path relative to its own folder,
# and libtorch through the link in LIB (YokeInstall.cmake), or, without that link, in a Python of the same prefix, where
# pip installs the package yoke-torch. It contains no paths of this machine except those in CMAKE_INSTALL_RPATH, which
# users may set for libraries in other places.
function(yoke_install_rpath target lib)
  cmake_path(APPEND origin "$ORIGIN" ${lib})
  set(torches ${yoke_site_packages})
  list(TRANSFORM torches PREPEND "${origin}/../")
  list(TRANSFORM torches APPEND "/torch/lib")
  set_target_properties(${target} PROPERTIES
                        INSTALL_RPATH "${origin};${origin}/yoke/torch/lib;${CMAKE_INSTALL_RPATH};${torches}")
endfunction()

# ccache treats paths below the checkout as relative, so that presets and checkouts share results of equal compilations.
find_program(YOKE_CCACHE ccache)
if(YOKE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros "${YOKE_CCACHE}")
endif()

# lld takes a fifth of GNU ld's processor time: the 300 links of scripts/test took 156 s with ld. It is not required.
find_program(YOKE_LLD ld.lld)
if(YOKE_LLD AND PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_link_options(-fuse-ld=lld)
endif()

# Clang compiles tests in two fifths of GCC's time: it reads of a precompiled header only what a file uses, and keeps the
# templates in it instantiated, of which GCC instantiates those of libtorch again for each file, in 7 s. The product is
# compiled as users compile it; for targets with the property YOKE_CLANG ccache runs Clang instead of that compiler.
# YOKE_UNITY=OFF, which shows files that lack an include, has neither.
option(YOKE_PRECOMPILED "Compile tests by Clang with precompiled headers, if there is Clang" ON)
find_program(YOKE_TEST_CLANG clang++)
set(yoke_precompiles OFF)
set(yoke_clang_launcher "")
if(YOKE_PRECOMPILED AND YOKE_UNITY)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(yoke_precompiles ON)
  elseif(YOKE_TEST_CLANG AND YOKE_CCACHE AND "${YOKE_CCACHE}" IN_LIST CMAKE_CXX_COMPILER_LAUNCHER)
    set(yoke_precompiles ON)
    set(yoke_clang_launcher "${CMAKE_COMMAND}" -E env "CCACHE_COMPILER=${YOKE_TEST_CLANG}"
        ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
endif()
set(yoke_is_gcc "$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<BOOL:$<TARGET_PROPERTY:YOKE_CLANG>>>>")

add_library(yoke_flags INTERFACE)
# -Wrestrict: GCC 12 wrongly reports overlaps in std::string's operator+ (GCC bug 105651).
# -Wmaybe-uninitialized: at -O2, GCC 12 wrongly reports members of a std::variant that holds another type.
# -Wsubobject-linkage: in a unity build, a generated file includes the sources, so GCC takes them for headers.
# -Wshadow: Clang reports names of other sources of the unit, too.
target_compile_options(yoke_flags INTERFACE -Wall -Wextra -Wpedantic $<${yoke_is_gcc}:-Wshadow> -Wno-missing-field-initializers
                       "$<${yoke_is_gcc}:-Wno-restrict;-Wno-subobject-linkage;-Wno-maybe-uninitialized>"
                       $<$<BOOL:${YOKE_WERROR}>:-Werror>
                       # Assertions in headers contain the header's path, and installed libraries must not contain this
                       # machine's folders.
                       "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
# GCC collects garbage each time its heap has grown by a third. With these limits it hardly ever does, compiles up to a
# sixth faster, and takes a third more memory (at most 2.5 GB for a unit with libtorch).
target_compile_options(yoke_flags INTERFACE
                       "$<${yoke_is_gcc}:--param=ggc-min-expand=400;--param=ggc-min-heapsize=1000000>")
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

# Compiles several sources as one, because headers, mainly libtorch's, take most of the compile time: 16 sources of
# yoke/train take 41 s as one unit, and 58 s as two. Tests use more names of their own, so their units are smaller.
function(yoke_unite target batch_size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${YOKE_UNITY} UNITY_BUILD_BATCH_SIZE ${batch_size})
endfunction()

# yoke_test_options(TARGET): tests, programs of tests and of docs compile at -O0, because compiling takes longer than
# running. -O1 takes a third to two thirds longer to compile. YOKE_TEST_OPTIONS adds options for other compilers.
function(yoke_test_options target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0> ${YOKE_TEST_OPTIONS})
  if(yoke_clang_launcher)
    set_target_properties(${target} PROPERTIES YOKE_CLANG ON CXX_COMPILER_LAUNCHER "${yoke_clang_launcher}")
  endif()
endfunction()

# yoke_precompile(TARGET [WITHOUT_TORCH]): the executable TARGET has yoke_test_options, and begins with the precompiled
# headers of tests/headers/torch.cpp, or of tests/headers/machine.cpp. These include what changes with its packages only.
# Clang writes a precompiled header where it would write an object, so an object library has it. Without time stamps in it,
# ccache finds it equal in other builds. It has the path of its source, so another checkout must not use it: ccache gets no
# base directory.
function(yoke_precompile target)
  cmake_parse_arguments(ARG "WITHOUT_TORCH" "" "" ${ARGN})
  yoke_test_options(${target})
  if(NOT yoke_precompiles)
    return()
  endif()
  set(name torch)
  set(libraries yoke::dist)
  if(ARG_WITHOUT_TORCH)
    set(name machine)
    set(libraries fmt::fmt)
  endif()
  set(headers yoke_${name}_headers)
  if(NOT TARGET ${headers})
    add_library(${headers} OBJECT EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/headers/${name}.cpp")
    target_include_directories(${headers} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${headers} PRIVATE ${libraries} yoke_flags GTest::gmock nlohmann_json::nlohmann_json)
    yoke_test_options(${headers})
    set_target_properties(${headers} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    if(NOT YOKE_SANITIZE STREQUAL "thread")
      set_target_properties(${headers} PROPERTIES YOKE_NOT_SANITIZED ON)
    endif()
    target_compile_options(${headers} PRIVATE -x c++-header -fPIE -fpch-instantiate-templates
                           "SHELL:-Xclang -fno-pch-timestamp")
    if(YOKE_CCACHE)
      get_target_property(launcher ${headers} CXX_COMPILER_LAUNCHER)
      string(REPLACE "${YOKE_CCACHE}" "${CMAKE_COMMAND};-E;env;--unset=CCACHE_BASEDIR;${YOKE_CCACHE}" launcher
             "${launcher}")
      set_target_properties(${headers} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    endif()
    add_custom_target(${headers}_done DEPENDS $<TARGET_OBJECTS:${headers}>)  # which no target else would wait for
  endif()
  add_dependencies(${target} ${headers}_done)
  target_compile_options(${target} PRIVATE "SHELL:-include-pch $<TARGET_OBJECTS:${headers}>"
                         "SHELL:-Xclang -fno-pch-timestamp")
endfunction()

option(YOKE_TRAINING_AT_O0 "Compile the training half at -O0, in four fifths of the time, to see whether it compiles" OFF)

# yoke_program_options(TARGET): a program or a part of one that leaves the computing to libtorch, and needs no more than -O1.
function(yoke_program_options target)
  set(level -O1)
  if(YOKE_TRAINING_AT_O0)
    set(level -O0)
  endif()
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:${level}>")
endfunction()

# yoke_library(ROOM [SHARED] [COMPUTES] SOURCES ... [HEADERS ...] [LINK ...] [PRIVATE ...]): libyoke_ROOM, named yoke::ROOM.
# HEADERS are the public headers. A library with HEADERS is installed; a library without HEADERS is not. COMPUTES: the
# code works on much data, and -O2 pays. Other rooms read and print words; for them -O2 takes about a sixth longer to
# compile than -O1.
function(yoke_library room)
  cmake_parse_arguments(ARG "SHARED;COMPUTES" "" "SOURCES;HEADERS;LINK;PRIVATE" ${ARGN})
  set(kind STATIC)
  if(ARG_SHARED)
    set(kind SHARED)
  endif()
  add_library(yoke_${room} ${kind} ${ARG_SOURCES})
  add_library(yoke::${room} ALIAS yoke_${room})
  yoke_unite(yoke_${room} 28)
  if(YOKE_TRAINING_AT_O0 AND yoke_half STREQUAL "training")
    set(level -O0)
  elseif(ARG_COMPUTES)  # -O2 of GCC 12 vectorises few loops; with this cost model it does so as -O3 does
    set(level -O2 $<$<CXX_COMPILER_ID:GNU>:-fvect-cost-model=dynamic>)
  else()
    set(level -O1)
  endif()
  target_compile_options(yoke_${room} PRIVATE "$<$<CONFIG:Release>:${level}>")
  set_target_properties(yoke_${room} PROPERTIES EXPORT_NAME ${room})
  target_compile_features(yoke_${room} PUBLIC cxx_std_20)
  # A sanitized build contains tests and what they use. TSan's tests are few, and do not need every room.
  if(YOKE_SANITIZE)
    set_target_properties(yoke_${room} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(ARG_HEADERS)
    target_sources(yoke_${room} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${ARG_HEADERS})
    set_property(GLOBAL APPEND PROPERTY YOKE_INSTALLED_ROOMS ${room})
  endif()
  target_include_directories(yoke_${room} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(yoke_${room} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:yoke_flags>)
endfunction()

# yoke_discover_suites(TARGET PREFIX PROPERTY VALUE ...): gtest_discover_tests, but with an entry for each suite.
function(yoke_discover_suites target prefix)
  set(tests "${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake")
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND "${CMAKE_COMMAND}" "-DPROGRAM=$<TARGET_FILE:${target}>" "-DPREFIX=${prefix}" "-DPROPERTIES=${ARGN}"
            "-DEMULATOR=$<TARGET_PROPERTY:${target},CROSSCOMPILING_EMULATOR>" "-DALSO_WITH=${ARG_ALSO_WITH}"
            "-DTESTS=${tests}" "-DSKIPS=${PROJECT_SOURCE_DIR}/tests/expected-skips.txt"
            -P "${PROJECT_SOURCE_DIR}/cmake/DiscoverSuites.cmake")
  # ctest works in a tree of which only a part was built, too.
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake" @ONLY CONTENT
       "if(EXISTS \"@tests@\")\n  include(\"@tests@\")\nelse()\n  add_test(@target@_NOT_BUILT @target@_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
endfunction()

# yoke_test(ROOM SOURCES ... [LINK ...] [DEFINES NAME="value" ...] [DEPENDS target ...] [ENVIRONMENT A=b]
#           [TIMEOUT seconds] [THREADS] [COMPUTES] [PROCESSORS n] [COST n] [PRECOMPILED] [BY_SUITE] [BY_TEST]
#           [ALSO_WITH A=b suite ...])
# Adds a GoogleTest program with one ctest entry per test, or per suite (BY_SUITE). A program with libtorch takes 0.5 s of
# a processor to start, which is longer than most unit tests take, and one with a sanitizer 0.05 s, so unit tests with a
# sanitizer are by suite, too, except with BY_TEST. A test that tests/expected-skips.txt names has an entry of its own.
# The program is built after the targets in DEPENDS. THREADS: the tested code has threads, so the program is part of the
# TSan build, which contains only such programs. COMPUTES: each test keeps a processor busy, whereas other tests mostly
# wait. COST: such tests start before those with a smaller cost, because they take long: ctest remembers what tests took, but not
# those whose names have spaces, as with parameters. PRECOMPILED: see
# yoke_precompile. ALSO_WITH: the entries of these suites run them a second time, with this variable (BY_SUITE only).
#
# scripts/test runs four or five tests per processor at a time; a test with COMPUTES counts as three, one with
# PROCESSORS as n. The label of a test is `machine` or `training` (with libtorch). `machine` tests are the same with and without libtorch, so they run once;
# scripts/test builds them once, too (YOKE_MACHINE_TESTS).
option(YOKE_MACHINE_TESTS "Build the tests of the machine half" ON)
function(yoke_test room)
  cmake_parse_arguments(ARG "THREADS;COMPUTES;PRECOMPILED;BY_SUITE;BY_TEST" "TIMEOUT;PROCESSORS;COST"
                        "SOURCES;LINK;DEFINES;DEPENDS;ENVIRONMENT;ALSO_WITH" ${ARGN})
  if(NOT YOKE_TESTS OR (YOKE_SANITIZE STREQUAL "thread" AND NOT ARG_THREADS)
     OR (yoke_half STREQUAL "machine" AND NOT YOKE_MACHINE_TESTS))
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
  yoke_unite(yoke_${room}_test 8)
  if(ARG_PRECOMPILED)
    yoke_precompile(yoke_${room}_test)
  else()
    yoke_precompile(yoke_${room}_test WITHOUT_TORCH)
  endif()
  if(NOT YOKE_SANITIZE STREQUAL "thread")
    set_target_properties(yoke_${room}_test PROPERTIES YOKE_NOT_SANITIZED ON)
  endif()
  target_link_libraries(yoke_${room}_test PRIVATE ${ARG_LINK} yoke_flags GTest::gmock GTest::gtest_main)
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_COMPUTES)
    set(ARG_PROCESSORS 3)
  endif()
  foreach(property PROCESSORS COST)
    if(ARG_${property})
      list(APPEND properties ${property} ${ARG_${property}})
    endif()
  endforeach()
  list(APPEND properties LABELS ${yoke_half})
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  if(ARG_BY_SUITE OR (YOKE_SANITIZE AND NOT ARG_BY_TEST))
    yoke_discover_suites(yoke_${room}_test "${room}." ${properties})
    return()
  endif()
  gtest_discover_tests(yoke_${room}_test TEST_PREFIX "${room}." DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()

# yoke_command_test(NAME SOURCES ... [SANITIZED] [arguments of yoke_test]): a yoke_test that runs the command on machines
# of fakes/. They took longer under ASan than in the stage machine, and unit tests reach most of the code, so ASan's build
# has only those marked SANITIZED, and TSan's has none, unless YOKE_SANITIZED_COMMANDS is ON (scripts/test --long).
option(YOKE_SANITIZED_COMMANDS "Run all tests of whole commands under sanitizers too" OFF)
function(yoke_command_test name)
  cmake_parse_arguments(ARG "SANITIZED" "" "LINK;DEFINES;DEPENDS" ${ARGN})
  if(YOKE_SANITIZE AND NOT YOKE_SANITIZED_COMMANDS AND NOT (ARG_SANITIZED AND YOKE_SANITIZE MATCHES "address"))
    return()
  endif()
  yoke_test(${name} ${ARG_UNPARSED_ARGUMENTS} TIMEOUT 300 BY_TEST
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
