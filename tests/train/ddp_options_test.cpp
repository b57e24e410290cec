// Trains 20 steps with each option of DistributedDataParallel, and compares the results with PyTorch's.
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

const json& ours() {
  static const json result = [] {
    const auto run =
        test::run({.argv = {YOKE_COMMAND, "run", "--no-prefix", "-n", "2", "--", YOKE_OPTIONS}, .environment = {}});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return json::parse(run.out)["cases"];
  }();
  return result;
}

double to_double(const json& hex) { return std::strtod(hex.get<std::string>().c_str(), nullptr); }

/// Kernels depend on the CPU model, and so do the last bits of results. Options that round gradients to 8 or 11 bits,
/// or approximate them, amplify such differences.
double tolerance(const std::string& name) {
  if (name == "fp16" || name == "bf16") return 1e-2;
  return name.rfind("power_sgd", 0) == 0 ? 1e-2 : 1e-4;
}

/// Returns the rank whose recorded tensor must equal that of `rank`. PyTorch copies rank 0's buffers before each
/// forward, so at the end the other ranks have buffers of their own last forward. In yoke, all ranks end a step with
/// rank 0's buffers.
size_t rank_of(const std::string& tensor, size_t rank) {
  return tensor.find("running") == std::string::npos ? rank : 0;
}

void expect_near(const std::string& name, const json& mine, const json& theirs) {
  ASSERT_EQ(mine.size(), theirs.size()) << name;
  for (size_t rank = 0; rank < theirs.size(); ++rank) {
    const auto& losses = mine[rank]["losses_hex"];
    const auto& expected = theirs[rank]["losses_hex"];
    ASSERT_EQ(losses.size(), expected.size()) << name << ", rank " << rank;
    for (size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(to_double(losses[step]), to_double(expected[step]), tolerance(name))
          << name << ", rank " << rank << ", step " << step;
    }
    for (const auto& [tensor, sum] : mine[rank]["sums_hex"].items()) {
      const auto& their_sum = theirs[rank_of(tensor, rank)]["sums_hex"][tensor];
      EXPECT_NEAR(to_double(sum), to_double(their_sum), 20 * tolerance(name))
          << name << ", rank " << rank << ", " << tensor;
    }
  }
}

TEST(DdpOptions, EachFollowsTheRecordedOne) {
  const auto recorded = json::parse(read_file(test::reference("ddp_options.json")))["cases"];
  ASSERT_EQ(recorded.size(), ours().size());
  for (const auto& [name, theirs] : recorded.items()) {
    ASSERT_TRUE(ours().contains(name)) << name;
    expect_near(name, ours()[name], theirs);
  }
}

// The recorded results of different options must differ. Otherwise equality with them would prove nothing.
TEST(DdpOptions, ChangeTheTraining) {
  for (const auto* name : {"no_sync", "buffers", "join", "join_active", "ignored", "fp16", "bf16", "power_sgd",
                           "power_sgd_rank_4", "power_sgd_plain", "sync_batch_norm"}) {
    EXPECT_NE(ours()[name][0]["crc32"]["a.weight"], ours()["plain"][0]["crc32"]["a.weight"]) << name;
  }
  EXPECT_NE(ours()["join"], ours()["buffers"]);
  EXPECT_NE(ours()["sync_batch_norm"], ours()["buffers"]);
}

TEST(DdpOptions, ThatOnlySaveWorkChangeNoBit) {
  for (const auto* name : {"views", "static_graph"}) EXPECT_EQ(ours()[name], ours()["plain"]) << name;
  EXPECT_EQ(ours()["no_sync_views"], ours()["no_sync"]);
}

TEST(DdpOptions, LeaveAllRanksWithTheSameModel) {
  for (const auto& [name, ranks] : ours().items()) {
    for (const auto& [tensor, crc] : ranks[0]["crc32"].items()) {
      if (name == "ignored" && tensor.rfind("b.", 0) == 0) {
        EXPECT_NE(ranks[1]["crc32"][tensor], crc) << tensor;
      } else {
        EXPECT_EQ(ranks[1]["crc32"][tensor], crc) << name << ", " << tensor;
      }
    }
  }
}

// Compares with PyTorch on this machine. CI does not run this test, because it needs a Python with torch. PyTorch has
// no SyncBatchNorm on the CPU.
TEST(DdpOptions, EachEqualsPyTorchsToTheLastBit) {
  const char* torchrun = std::getenv("YOKE_PEER_TORCHRUN");
  if (torchrun == nullptr) GTEST_SKIP() << "YOKE_PEER_TORCHRUN does not name the torchrun of a Python with torch";
  const auto peer =
      test::run({.argv = {torchrun, "--standalone", "--nproc-per-node", "2", test::reference("record_ddp_options.py")},
                 .environment = {{"OMP_NUM_THREADS", "1"}}});
  ASSERT_EQ(peer.exit_code, 0) << peer.err;
  for (const auto& [name, theirs] : json::parse(peer.out)["cases"].items()) {
    if (name == "sync_batch_norm") {
      expect_near(name, ours()[name], theirs);
      continue;
    }
    for (const size_t rank : {0, 1}) {
      EXPECT_EQ(ours()[name][rank]["losses_hex"], theirs[rank]["losses_hex"]) << name << ", rank " << rank;
      for (const auto& [tensor, crc] : ours()[name][rank]["crc32"].items()) {
        EXPECT_EQ(crc, theirs[rank_of(tensor, rank)]["crc32"][tensor]) << name << ", rank " << rank << ", " << tensor;
      }
    }
  }
}

}  // namespace
}  // namespace yoke
