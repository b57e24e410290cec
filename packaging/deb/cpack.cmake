# CPack's configuration for the package of Debian and Ubuntu. packaging/deb/build gives in the environment, since CPack reads
# this file before it sets the variables of its option -D: DEB_STAGE, the tree to package; DEB_VERSION, DEB_REVISION,
# DEB_ARCHITECTURE, DEB_COMPRESSION and DEB_MAINTAINER; DEB_CONTROL, the folder with conffiles and maintainer scripts; DEB_OUTPUT.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME yoke-gpu)
set(CPACK_PACKAGE_VERSION "$ENV{DEB_VERSION}")
set(CPACK_PACKAGE_CONTACT "$ENV{DEB_MAINTAINER}")
set(CPACK_PACKAGE_DIRECTORY "$ENV{DEB_OUTPUT}")
set(CPACK_INSTALLED_DIRECTORIES "$ENV{DEB_STAGE};/")
set(CPACK_PACKAGING_INSTALL_PREFIX /)
set(CPACK_SET_DESTDIR OFF)

set(CPACK_PACKAGE_FILE_NAME yoke-gpu)  # CPack requires it; the next line replaces it
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "$ENV{DEB_REVISION}")
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE "$ENV{DEB_ARCHITECTURE}")
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE "$ENV{DEB_COMPRESSION}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # Depends
# None of these is needed by most users, and yoke names what is missing when a command needs it: hwloc for `yoke topo`, the
# others because yoke starts them. hwloc is not recommended, because Debian's own recommends X11 and OpenCL with it.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
    "libhwloc15, openssh-client, slurm-client, podman | docker.io, sshfs, python3-venv, elfutils | gdb")
set(scripts conffiles postinst prerm postrm)
list(TRANSFORM scripts PREPEND "$ENV{DEB_CONTROL}/" OUTPUT_VARIABLE CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "launch, watch and share the GPUs of a machine or a cluster")
set(CPACK_PACKAGE_DESCRIPTION "yoke shows the GPUs of NVIDIA and AMD and who uses them, gives each user of
a shared server devices of their own, starts a program once for each rank on
one or many machines, and checks and submits jobs of Slurm. It needs no
daemon. Devices are claimed by locks in /run/yoke, and an administrator sets
limits in /etc/yoke/config.toml.
.
This package has the command alone. The training library in C++ is built on
PyTorch's libtorch, which Debian does not have in this version.")
