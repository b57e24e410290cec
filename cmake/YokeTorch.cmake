# yoke::torch: libtorch from a Python wheel or a libtorch archive. Does not use `find_package(Torch)`, which fails if no
# CUDA toolkit is installed. Links only torch_cpu and c10, so that a machine without a GPU loads no CUDA library.
#
# Looks for libtorch in this order: YOKE_TORCH_DIR, Torch_DIR, the link of an installed yoke, the active Python's torch,
# .deps/ (where scripts/setup puts it). This file is also installed, and yokeConfig.cmake includes it, so that users
# link in the same way.
if(TARGET yoke::torch)
  return()
endif()

function(yoke_find_torch out)
  set(candidates "${YOKE_TORCH_DIR}" "$ENV{YOKE_TORCH_DIR}")
  foreach(dir "${Torch_DIR}" "$ENV{Torch_DIR}")  # .../torch/share/cmake/Torch
    if(dir)
      list(APPEND candidates "${dir}/../../..")
    endif()
  endforeach()
  if(ARGN)  # the link of the installation, if this file is installed
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
  message(FATAL_ERROR "yoke: found no libtorch. Run scripts/setup, or set YOKE_TORCH_DIR to the folder of a torch "
                      "wheel or libtorch archive that holds lib/libtorch_cpu.so, or configure with -DYOKE_TORCH=OFF.")
endfunction()

yoke_find_torch(YOKE_TORCH_ROOT ${YOKE_TORCH_RECORDED_DIR})
set(yoke_torch_version_header "${YOKE_TORCH_ROOT}/include/torch/headeronly/version.h")
if(NOT EXISTS "${yoke_torch_version_header}")  # the place in libtorch before 2.10
  set(yoke_torch_version_header "${YOKE_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h")
endif()
file(STRINGS "${yoke_torch_version_header}" yoke_torch_version_lines
     REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" YOKE_TORCH_VERSION
       "${yoke_torch_version_lines}")
message(STATUS "yoke: libtorch ${YOKE_TORCH_VERSION} in ${YOKE_TORCH_ROOT}")

add_library(yoke::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(yoke::torch SYSTEM INTERFACE "${YOKE_TORCH_ROOT}/include"
                           "${YOKE_TORCH_ROOT}/include/torch/csrc/api/include")
target_compile_definitions(yoke::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
# torch_cpu uses symbols of libraries (cupti, cudart) that only torch_cpu's own rpath finds, so the linker ignores them.
target_link_options(yoke::torch INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(yoke::torch INTERFACE "${YOKE_TORCH_ROOT}/lib/libtorch_cpu.so" "${YOKE_TORCH_ROOT}/lib/libc10.so")
