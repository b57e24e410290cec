// What is said of a Python that lacks ipykernel. A shell script stands in for Python.
#include "yoke/environment/ipykernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::environment {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Ipykernel : public testing::Test {
 protected:
  void require(const std::string& script) {
    folder_.write("python", "#!/bin/sh\n" + script + "\n", true);
    require_ipykernel({python(), "/nowhere/yoke_environment.py", Environment::of_process()}, false);
  }
  std::string complaint(const std::string& script) {
    return test::message_of([&] { require(script); }, ErrorCode::kFailedPrecondition);
  }
  std::string python() const { return folder_.path("python"); }

  test::TemporaryFolder folder_;
};

TEST_F(Ipykernel, IsThereIfItCanBeImported) { require("exit 0"); }

TEST_F(Ipykernel, TellsWhatInstallsItIfItIsMissing) {
  EXPECT_THAT(complaint("exit 42"),
              AllOf(HasSubstr("lacks the package ipykernel"),
                    HasSubstr(python() + " -m pip install --disable-pip-version-check ipykernel")));
}

TEST_F(Ipykernel, TellsWhyItCannotBeImported) {
  EXPECT_THAT(complaint("echo 'ImportError: no zmq' >&2; exit 43"), HasSubstr("cannot import ipykernel, which runs its "
                                                                              "cells (ImportError: no zmq); try: "));
  EXPECT_THAT(complaint("kill -SEGV $$"), HasSubstr("SIGSEGV"));
}

TEST_F(Ipykernel, IsImportedInAContainerLikeThatOfTheKernel) {
  KernelRequest request{.python = "python3", .yoke = folder_.path("yoke")};
  request.container = {.image = "image", .options = {"-e", "A"}, .variables = {{"A", "value"}}};
  folder_.write("yoke", "#!/bin/sh\necho $A $1 $2 $3 $4 $5 $6 $7 $8 $9 > " + folder_.path("words") + "\nexit $STATUS\n",
                true);
  auto environment = Environment::of_process();
  const auto require = [&](const char* status) {
    environment.set("STATUS", status);
    require_ipykernel_in_image(request, "extension", environment);
  };
  require("0");
  EXPECT_EQ(test::slurp(folder_.path("words")), "value container run --gpu none --network host -e A image\n");
  for (const auto& [status, message] :
       {std::pair{"42",
                  "extension lacks the package ipykernel, which runs its cells; add it: yoke container extend image "},
        {"43", "extension cannot import ipykernel, which runs its cells, for the reason above; "},
        {"127", "image has no python3, in which a kernel could run"},
        {"69", "image: a container of it did not run python3 (exit status 69)"}}) {
    EXPECT_THAT(test::message_of([&, status = status] { require(status); }, ErrorCode::kFailedPrecondition),
                testing::StartsWith(message));
  }
}

}  // namespace
}  // namespace yoke::environment
