// Compares 100 steps of yoke's DistributedDataParallel with PyTorch's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

using nlohmann::json;

json run_trajectory(std::vector<std::string> options = {}) {
  std::vector<std::string> argv = {YOKE_COMMAND, "run", "--no-prefix", "-n", "2", "--", YOKE_TRAJECTORY};
  argv.insert(argv.end(), options.begin(), options.end());
  const auto result = test::run({.argv = argv});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out);
}

double number(const json& hex) { return std::strtod(hex.get<std::string>().c_str(), nullptr); }

/// Kernels depend on the CPU model, and so do the last bits of results. Momentum amplifies such differences. Therefore
/// the first steps must agree closely, and all 100 steps roughly.
void expect_near(const json& ours, const json& recorded) {
  ASSERT_EQ(ours["losses_hex"].size(), recorded["losses_hex"].size());
  for (size_t rank = 0; rank < recorded["losses_hex"].size(); ++rank) {
    const auto& expected = recorded["losses_hex"][rank];
    ASSERT_EQ(ours["losses_hex"][rank].size(), expected.size());
    for (size_t step = 0; step < expected.size(); ++step) {
      const double tolerance = step < 10 ? 1e-5 : 2e-2;
      EXPECT_NEAR(number(ours["losses_hex"][rank][step]), number(expected[step]), tolerance)
          << "rank " << rank << ", step " << step;
    }
  }
}

TEST(DdpTrajectory, FollowsTheRecordedOne) {
  expect_near(run_trajectory(), json::parse(read_file(test::reference("ddp_trajectory.json"))));
}

TEST(DdpTrajectory, TwoRunsAreEqualToTheLastBitWhateverTheBuckets) {
  const auto first = run_trajectory({"--steps", "15"});
  EXPECT_EQ(first, run_trajectory({"--steps", "15"}));
  EXPECT_EQ(first, run_trajectory({"--steps", "15", "--bucket-cap-mb", "0.1"}));
}

// Compares with PyTorch on this machine. CI does not run this test, because it needs a Python with torch.
TEST(DdpTrajectory, EqualsPyTorchsToTheLastBit) {
  const char* torchrun = std::getenv("YOKE_PEER_TORCHRUN");
  if (torchrun == nullptr) GTEST_SKIP() << "YOKE_PEER_TORCHRUN does not name the torchrun of a Python with torch";
  const auto peer = test::run(
      {.argv = {torchrun, "--standalone", "--nproc-per-node", "2", test::reference("record_ddp_trajectory.py")},
       .environment = {{"OMP_NUM_THREADS", "1"}}});
  ASSERT_EQ(peer.exit_code, 0) << peer.err;
  const auto theirs = json::parse(peer.out), ours = run_trajectory();
  for (const auto* key : {"losses_hex", "parameter_crc32"}) EXPECT_EQ(ours[key], theirs[key]) << key;
}

}  // namespace
}  // namespace yoke
