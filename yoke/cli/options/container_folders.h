// yoke/cli/options/container_folders.h -- the folders that a container gets, and why it may not be able to use them.
#pragma once

#include <string>
#include <vector>

#include "yoke/cli/options/container.h"
#include "yoke/container/plan.h"
#include "yoke/storage/mount_table.h"

namespace yoke::cli {

/// The mounts of -v, after those of yoke itself. Files and folders are looked at under a deadline.
/// Errors  kInvalidArgument: one has another form; as errno says, or kTimeout: its source cannot be used.
std::vector<container::Mount> mounts_of_user(const ContainerOptions& options, container::EngineKind engine,
                                             const Context& context);

/// Names those folders of the container that the user reaches only by one of its groups, if the engine drops these;
/// empty: there are none.
std::string note_on_groups(const container::Engine& engine, const container::Request& request);

/// Says of each folder of the container on a FUSE mount, such as one of sshfs, that its kernel lets only the user of
/// the mount see: podman and docker mount as somebody else. Pure.
std::vector<std::string> notes_on_private_mounts(const container::Engine& engine, const container::Request& request,
                                                 const std::vector<storage::Mount>& mounts);

}  // namespace yoke::cli
