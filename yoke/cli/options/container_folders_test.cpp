#include "yoke/cli/options/container_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "tests/support/command.h"
#include "tests/support/message_of.h"

namespace yoke::cli {
namespace {

using container::EngineKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const container::Engine kPodman{.kind = EngineKind::kPodman, .is_rootless = true};
const container::Engine kDocker{.kind = EngineKind::kDocker};
const container::Engine kApptainer{.kind = EngineKind::kApptainer};

TEST(ContainerFolders, OnAPrivateMountHaveANote) {
  const auto mounts_with = [](const std::string& options) {
    return storage::parse_mountinfo(
        "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 21 0:50 / /home/ada/mnt/server rw,nosuid,nodev - fuse.sshfs server:/data rw," +
        options + "\n");
  };
  container::Request request;
  request.folder = "/home/ada/work";
  request.mounts = {{"/home/ada/mnt/server/set", "/set"}, {"volume", "/v"}};
  const auto of_ada = mounts_with("user_id=1000,group_id=1000");
  for (const auto& engine : {kPodman, kDocker}) {
    EXPECT_THAT(notes_on_private_mounts(engine, request, of_ada),
                ElementsAre(HasSubstr("/home/ada/mnt/server/set is on /home/ada/mnt/server, a mount of sshfs that only "
                                      "its user may see")));
  }
  EXPECT_THAT(notes_on_private_mounts(kApptainer, request, of_ada), IsEmpty());
  EXPECT_THAT(notes_on_private_mounts(kDocker, request, mounts_with("user_id=1000,group_id=1000,allow_other")),
              IsEmpty());
  EXPECT_THAT(notes_on_private_mounts(kDocker, request, mounts_with("user_id=0,group_id=0")), IsEmpty());
  request.mounts.clear();
  EXPECT_THAT(notes_on_private_mounts(kDocker, request, of_ada), IsEmpty());
}

TEST(ContainerFolders, OfALostGroupHaveANote) {
  const test::TemporaryFolder folder;
  container::Request request;
  request.folder = folder.path();
  // Somebody who reaches this process's folder by its group alone.
  request.user = {.uid = geteuid() + 1, .gid = getegid() + 1, .groups = {getegid() + 1, getegid()}, .name = "ada"};
  chmod(folder.path().c_str(), 0770);
  EXPECT_THAT(note_on_groups(kPodman, request), HasSubstr(folder.path() + " by one of them"));
  auto with_crun = kPodman;
  with_crun.can_keep_groups = true;
  for (const auto& engine : {with_crun, kDocker, kApptainer}) EXPECT_EQ(note_on_groups(engine, request), "");
  chmod(folder.path().c_str(), 0777);
  EXPECT_EQ(note_on_groups(kPodman, request), "") << "all can use it";
}

TEST(ContainerFolders, SayWhyTheyCannotBeUsed) {
  const test::TemporaryFolder folder;
  folder.write("file", "");
  std::ostringstream out;
  const Context context{out, {}, {}, {}};
  const auto message = [&](const std::string& source, ErrorCode code) {
    ContainerOptions options;
    options.volumes = {source + ":/x"};
    return test::message_of([&] { mounts_of_user(options, EngineKind::kPodman, context); }, code);
  };
  EXPECT_THAT(message(folder.path("none"), ErrorCode::kNotFound), HasSubstr("none does not exist"));
  EXPECT_THAT(message(folder.path("file/x"), ErrorCode::kNotFound), HasSubstr("cannot be used: Not a directory"));
}

}  // namespace
}  // namespace yoke::cli
