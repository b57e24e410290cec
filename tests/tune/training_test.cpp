// Tests `yoke tune batch` on real trainings: with yoke in C++, and with torch in Python if YOKE_PEER_TORCHRUN names the
// torchrun of a Python that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace yoke::test {
namespace {

using Json = nlohmann::json;

Json tuned(std::vector<std::string> program, std::vector<std::string> options = {}) {
  std::vector<std::string> words = {YOKE_COMMAND, "tune", "batch", "--json", "--soak", "30",
                                    "--seconds",  "0.5",  "--min", "32",     "--max",  "512"};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  words.insert(words.end(), program.begin(), program.end());
  const auto result = run(
      {.argv = words, .environment = {{"CUDA_VISIBLE_DEVICES", ""}, {"YOKE_DEVICE", "cpu"}, {"OMP_NUM_THREADS", "1"}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

const Json& run_with(const Json& answer, int64_t batch) {
  for (const auto& result : answer["results"]) {
    if (result["batch_size"] == batch) return result;
  }
  ADD_FAILURE() << "no run with " << batch;
  return answer["results"][0];
}

TEST(TuneTraining, MeasuresAProgramOnYoke) {
  const auto answer = tuned({YOKE_TUNE_TRAINING, "device"});
  EXPECT_EQ(answer["ranks"], 1);
  EXPECT_GE(answer["batch_size"], 256) << answer;
  const auto &small = run_with(answer, 32), &large = run_with(answer, 512);
  EXPECT_GT(large["step_seconds"], 1.5 * small["step_seconds"].get<double>()) << "71 ms and 23 ms";
  EXPECT_GT(large["samples_per_second"], small["samples_per_second"]);
  EXPECT_GT(large["memory"]["host_peak_bytes"], 50 << 20);
  EXPECT_LT(large["memory"]["host_peak_bytes"], int64_t{2} << 30);
  EXPECT_GE(answer["soak"]["steps"], 30);
}

TEST(TuneTraining, MeasuresTheRanksOfAJobTogether) {
  const auto answer = tuned({YOKE_COMMAND, "run", "-n", "4", "--", YOKE_TUNE_TRAINING, "64"}, {"--max", "32"});
  EXPECT_EQ(answer["ranks"], 4);
  EXPECT_EQ(answer["samples_per_step"], 4 * answer["batch_size"].get<int64_t>());
  EXPECT_NEAR(answer["samples_per_second"].get<double>(),
              answer["samples_per_step"].get<double>() / answer["step_seconds"].get<double>(), 1e-3);
}

TEST(TuneTraining, MeasuresAPythonProgram) {
  const char* const torchrun = std::getenv("YOKE_PEER_TORCHRUN");
  if (torchrun == nullptr) GTEST_SKIP() << "YOKE_PEER_TORCHRUN does not name the torchrun of a Python with torch";
  const TemporaryFolder folder;
  folder.write("train.py", R"(
import os, time, torch
torch.set_num_threads(1)
batch = int(os.environ["BATCH_SIZE"])
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
while True:
    time.sleep(0.02 + 0.0001 * batch)  # clock: the work of a step, so that its speed hardly depends on other load
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(batch, 256)), torch.randint(10, (batch,))).backward()
    optimizer.step()
)");
  const auto python = (std::filesystem::path(torchrun).parent_path() / "python").string();
  const auto answer = tuned({python, folder.path("train.py")});
  EXPECT_GE(answer["batch_size"], 256) << answer;
  EXPECT_GT(run_with(answer, 512)["step_seconds"], 1.5 * run_with(answer, 32)["step_seconds"].get<double>());
}

}  // namespace
}  // namespace yoke::test
