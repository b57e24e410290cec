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

}  // namespace
}  // namespace yoke::environment
