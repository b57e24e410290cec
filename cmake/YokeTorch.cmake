# yoke::torch: libtorch from a Python wheel or a libtorch archive. Does not use `find_package(Torch)`, which fails if no
# CUDA toolkit is installed. Links only torch_cpu and c10, so that a machine without a GPU loads no CUDA library.
#
# Looks for libtorch in this order: YOKE_TORCH_DIR, Torch_DIR, the link of an installed yoke, the Python in whose prefix it
# is installed, the active Python's torch, .deps/ (where scripts/setup puts it). This file is also installed, and
# yokeConfig.cmake includes it, so that users link in the same way.
if(TARGET yoke::torch)
  return()
endif()

# The versions that yoke compiles with; scripts/setup reads these lines. YOKE_TORCH_ANY accepts newer ones.
set(yoke_torch_oldest 2.11)
set(yoke_torch_newest 2.15)

function(yoke_find_torch out)
  set(candidates "${YOKE_TORCH_DIR}" "$ENV{YOKE_TORCH_DIR}")
  foreach(dir "${Torch_DIR}" "$ENV{Torch_DIR}")  # .../torch/share/cmake/Torch
    if(dir)
      list(APPEND candidates "${dir}/../../..")
    endif()
  endforeach()
  if(ARGN)  # the places that an installation knows, if this file is installed
    list(APPEND candidates ${ARGN})
  endif()
  find_program(YOKE_PYTHON NAMES python3 python)
  if(YOKE_PYTHON)
    execute_process(COMMAND "${YOKE_PYTHON}" -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND candidates "${from_python}")
  endif()
  list(APPEND candidates "${PROJECT_SOURCE_DIR}/.deps/python/torch")
  foreach(dir IN LISTS candidates)
    if(dir AND EXISTS "${dir}/lib/libtorch_cpu.so")
      get_filename_component(dir "${dir}" REALPATH)
      set(${out} "${dir}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  if(ARGN)
    set(next "Install torch into this Python's environment by pip, set YOKE_TORCH_DIR")
    set(last "")
  else()
    set(next "Run scripts/setup, set YOKE_TORCH_DIR")
    set(last ", or configure with -DYOKE_TORCH=OFF")
  endif()
  message(FATAL_ERROR "yoke: found no libtorch. ${next} to the folder of a torch wheel or libtorch archive that holds "
                      "lib/libtorch_cpu.so${last}.")
endfunction()

yoke_find_torch(YOKE_TORCH_ROOT ${YOKE_TORCH_RECORDED_DIR})
set(yoke_torch_version_lines "")
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # the second one before libtorch 2.10
  if(NOT yoke_torch_version_lines AND EXISTS "${YOKE_TORCH_ROOT}/include/${header}")
    file(STRINGS "${YOKE_TORCH_ROOT}/include/${header}" yoke_torch_version_lines
         REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  endif()
endforeach()
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" YOKE_TORCH_VERSION
       "${yoke_torch_version_lines}")
message(STATUS "yoke: libtorch ${YOKE_TORCH_VERSION} in ${YOKE_TORCH_ROOT}")

# An installed yoke requires the minor version that it was built with (yokeConfig.cmake), whichever that is.
function(yoke_check_torch_version version)
  if(version)
    set(is "is ${version}")
  else()
    set(is "is of an unknown version")
  endif()
  string(CONCAT text "yoke: the torch in ${YOKE_TORCH_ROOT} ${is}; yoke needs ${yoke_torch_oldest} to "
         "${yoke_torch_newest}. Name another one by -DYOKE_TORCH_DIR=FOLDER, or run scripts/setup, which can "
         "download one")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  if(minor VERSION_GREATER yoke_torch_newest)
    if(NOT YOKE_TORCH_ANY)
      message(FATAL_ERROR "${text}; to try this one all the same: -DYOKE_TORCH_ANY=ON.")
    endif()
    message(WARNING "${text}. YOKE_TORCH_ANY is set, so it is taken, and may not compile.")
  elseif(NOT minor OR minor VERSION_LESS yoke_torch_oldest)
    message(FATAL_ERROR "${text}.")
  endif()
endfunction()
if(NOT YOKE_TORCH_RECORDED_DIR)
  if("$ENV{YOKE_TORCH_ANY}")  # kept, because ninja configures again without this environment
    set(YOKE_TORCH_ANY ON CACHE BOOL "Accept versions of libtorch that are newer than yoke knows" FORCE)
  endif()
  yoke_check_torch_version("${YOKE_TORCH_VERSION}")
endif()

# The fmt of libtorch, which is all that the headers of an installed yoke::base need.
add_library(yoke::torch_fmt INTERFACE IMPORTED GLOBAL)
target_include_directories(yoke::torch_fmt SYSTEM INTERFACE "${YOKE_TORCH_ROOT}/include")
target_compile_definitions(yoke::torch_fmt INTERFACE FMT_HEADER_ONLY=1)

add_library(yoke::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(yoke::torch SYSTEM INTERFACE "${YOKE_TORCH_ROOT}/include"
                           "${YOKE_TORCH_ROOT}/include/torch/csrc/api/include")
target_compile_definitions(yoke::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
# torch_cpu uses symbols of libraries (cupti, cudart) that only torch_cpu's own rpath finds, so the linker ignores them.
target_link_options(yoke::torch INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(yoke::torch INTERFACE "${YOKE_TORCH_ROOT}/lib/libtorch_cpu.so" "${YOKE_TORCH_ROOT}/lib/libc10.so")
