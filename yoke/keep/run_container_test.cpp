// Tests the two processes of a container whose engine fails. Real containers are in tests/container.
#include "yoke/keep/run_container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/keep/kept_containers.h"
#include "yoke/keep/machine_test.h"

namespace yoke::keep {
namespace {

using testing::IsEmpty;

/// A container under an engine that is a script.
KeptContainer container_of(const TestMachine& machine, const std::string& script,
                           container::EngineKind kind = container::EngineKind::kDocker) {
  machine.folder.write("engine", "#!/bin/sh\n" + script + "\n", true);
  KeptContainer kept;
  kept.engine = container::assumed_engine(kind);
  kept.engine.program = machine.folder.path("engine");
  kept.request.image = "debian";
  kept.request.program = {"true"};
  kept.request.name = "test";
  kept.request.folder = machine.folder.path();
  kept.request.init = kept.request.command = "/bin/true";
  return kept;
}

int run(TestMachine& machine, const std::function<std::optional<KeptContainer>(int&)>& prepare) {
  return run_container({.prepare = prepare}, machine.environment, machine.tell);
}

TEST(KeepContainer, AnErrorBeforeItsBeginIsTheCallers) {
  TestMachine machine;
  const auto fails = [](int&) -> std::optional<KeptContainer> {
    throw Error(ErrorCode::kFailedPrecondition, "device \xff is lost");
  };
  EXPECT_EQ(test::message_of([&] { run(machine, fails); }, ErrorCode::kFailedPrecondition), "device \xff is lost");
}

TEST(KeepContainer, AnInterruptedClaimIsAStatus) {
  TestMachine machine;
  const auto interrupted = [](int& status) -> std::optional<KeptContainer> {
    status = 130;
    return std::nullopt;
  };
  EXPECT_EQ(run(machine, interrupted), 130);
}

TEST(KeepContainer, AnEngineThatFailsHasItsOwnStatusAndGivesTheDevicesBack) {
  TestMachine machine;
  struct Row {
    const char* script;
    int status;
  };
  for (const auto& row : {Row{"test \"$1\" = run && exit 3", kEngineFailed}, Row{"kill -TERM $$", 128 + SIGTERM}}) {
    const auto status = run(machine, [&](int&) -> std::optional<KeptContainer> {
      auto kept = container_of(machine, row.script);
      kept.claim = std::move(machine.acquire(machine.wish(2)).allocation.claim);
      return kept;
    });
    EXPECT_EQ(status, row.status) << row.script;
    EXPECT_TRUE(test::wait_until([&] { return machine.held().empty(); }));
  }
}

TEST(KeepContainer, AClientThatIsNoProgramIsAnError) {
  TestMachine machine;
  EXPECT_THAT(test::message_of(
                  [&] {
                    run(machine, [&](int&) -> std::optional<KeptContainer> {
                      auto kept = container_of(machine, "");
                      kept.engine.program = "/nowhere/docker";
                      return kept;
                    });
                  },
                  ErrorCode::kNotFound),
              testing::HasSubstr("starting /nowhere/docker"));
}

}  // namespace
}  // namespace yoke::keep
