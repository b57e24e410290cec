#include "yoke/launch/process/python_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using testing::ElementsAre;

TEST(PythonProgram, TheScriptFollowsTheOptionsOfPython) {
  const auto script =
      python_program({"/opt/venv/bin/python3.12", "-u", "-Wignore", "-X", "dev", "train.py", "-m", "2"});
  ASSERT_TRUE(script);
  EXPECT_THAT(script->interpreter, ElementsAre("/opt/venv/bin/python3.12", "-u", "-Wignore", "-X", "dev"));
  EXPECT_FALSE(script->is_module);
  EXPECT_THAT(script->program, ElementsAre("train.py", "-m", "2"));
  EXPECT_THAT(loading_command(*script, "/share/yoke_preload.py", "torch,numpy"),
              ElementsAre("/opt/venv/bin/python3.12", "-u", "-Wignore", "-X", "dev", "/share/yoke_preload.py",
                          "torch,numpy", "script", "train.py", "-m", "2"));
  const auto module = python_program({"python", "-u", "-m", "lab.train", "--lr", "0.1"});
  ASSERT_TRUE(module);
  EXPECT_THAT(module->interpreter, ElementsAre("python", "-u"));
  EXPECT_TRUE(module->is_module);
  EXPECT_THAT(module->program, ElementsAre("lab.train", "--lr", "0.1"));
}

TEST(PythonProgram, OtherCommandLinesAreNone) {
  for (const std::vector<std::string>& argv : std::vector<std::vector<std::string>>{
           {},
           {"./train"},
           {"pythonic", "train.py"},
           {"python"},
           {"python", "-u"},
           {"python", "-m"},
           {"python", "-c", "import torch"},
           {"python", "-", "x"},
           {"python", "-i", "train.py"},
           {"python", "--version"},
           {"sh", "-c", "python train.py"},
       }) {
    EXPECT_FALSE(python_program(argv)) << testing::PrintToString(argv);
  }
}

}  // namespace
}  // namespace yoke::launch
