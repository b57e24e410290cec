# Compiles the command for the C library of old distributions, with Zig's Clang and its libc++ (see build).
#
# YOKE_PACKAGE_ARCH   x86_64 or aarch64
# YOKE_PACKAGE_ROOT   the folder that ./libraries has filled for it: bin, include, lib
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "${YOKE_PACKAGE_ARCH}")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES YOKE_PACKAGE_ARCH YOKE_PACKAGE_ROOT)

set(CMAKE_C_COMPILER "${YOKE_PACKAGE_ROOT}/bin/cc")
set(CMAKE_CXX_COMPILER "${YOKE_PACKAGE_ROOT}/bin/c++")
set(CMAKE_AR "${YOKE_PACKAGE_ROOT}/bin/ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "${YOKE_PACKAGE_ROOT}/bin/ranlib" CACHE FILEPATH "")

# Headers and libraries come from that folder alone: those of this machine belong to another C library.
set(CMAKE_FIND_ROOT_PATH "${YOKE_PACKAGE_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
file(GLOB fmt_DIR "${YOKE_PACKAGE_ROOT}/lib/*/cmake/fmt")  # below a folder that is named after this machine's processor
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES "${YOKE_PACKAGE_ROOT}/include")

# The programs inside containers are static. glibc cannot be linked so with Zig, so they have musl.
set(YOKE_STATIC_TARGET -target ${YOKE_PACKAGE_ARCH}-linux-musl)
set(YOKE_LIBC_VERSION 2.28)

# Zig compiles a libc++ for each level of optimising with which something is linked, so checks use that of the product.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s")
# The program contains no paths of this machine, so that it is the same wherever it is compiled.
set(CMAKE_CXX_FLAGS_INIT "-O2 -ffile-prefix-map=${YOKE_PACKAGE_ROOT}/=")
