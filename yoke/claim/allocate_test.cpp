// Tests attempts to claim devices, with real locks on devices that a snapshot pretends.
#include "yoke/claim/allocate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace yoke::claim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ClaimAllocate : public testing::Test {
 protected:
  ClaimAllocate() : path_(testing::TempDir() + "yoke-claim-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
    chmod(path_.c_str(), 01777);
    for (int64_t i = 0; i < 4; ++i) {
      device::Device device{.index = i, .vendor = device::Vendor::kNvidia};
      device.facts.uuid = fmt::format("GPU-{}", i);
      device.has_process_list = true;
      snapshot_.devices.push_back(device);
    }
  }
  ~ClaimAllocate() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  Ledger ledger() const { return Ledger(LockFolder(path_, LockFolder::Owner::kRootOrSelf)); }
  Allocation attempt(const Ledger& ledger, const AllocationRequest& request, const Place* place = nullptr) const {
    return allocate(ledger, snapshot_, request, {}, place);
  }

  std::string path_;
  device::Snapshot snapshot_;
};

TEST_F(ClaimAllocate, TakesWhatIsLeft) {
  const auto ledger = this->ledger();
  const auto first = attempt(ledger, {.wish = {.num_devices = 3}, .length = std::chrono::seconds(60)});
  ASSERT_TRUE(first.claim);
  EXPECT_THAT(first.ids, ElementsAre("0", "1", "2"));
  EXPECT_EQ(first.claim->note().until, first.claim->note().since + std::chrono::seconds(60));
  const auto second = attempt(ledger, {.wish = {.num_devices = 2}});
  EXPECT_FALSE(second.claim);
  EXPECT_FALSE(second.is_hopeless);
  ASSERT_TRUE(second.refusal);
  EXPECT_THAT(second.refusal->why, HasSubstr("2 devices are wanted, and 1 is free: device 0 is claimed by"));
  EXPECT_EQ(second.refusal->text(), second.refusal->why + "; use --wait to queue, or see `yoke claims`");
  EXPECT_TRUE(attempt(ledger, {.wish = {.num_devices = 5}}).is_hopeless);
  EXPECT_THAT(attempt(ledger, {.wish = {.num_devices = 1}}).ids, ElementsAre("3"));
}

TEST_F(ClaimAllocate, ADryAttemptTakesNothing) {
  const auto ledger = this->ledger();
  EXPECT_THAT(attempt(ledger, {.wish = {.num_devices = 4}, .is_dry = true}).ids, ElementsAre("0", "1", "2", "3"));
  EXPECT_TRUE(attempt(ledger, {.wish = {.num_devices = 4}}).claim);
}

TEST_F(ClaimAllocate, OnlyNamedDevicesAreGiven) {
  const auto ledger = this->ledger();
  EXPECT_THAT(attempt(ledger, {.wish = {.num_devices = 1}, .only = {"2"}}).ids, ElementsAre("2"));
  EXPECT_TRUE(attempt(ledger, {.wish = {.num_devices = 2}, .only = {"2"}}).is_hopeless);
}

TEST_F(ClaimAllocate, AnOldSnapshotIsReadAgain) {
  const auto ledger = this->ledger();
  const auto old = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  const auto result = attempt(ledger, {.wish = {.num_devices = 1}, .read_at = old});
  EXPECT_TRUE(result.is_stale);
  EXPECT_FALSE(result.claim);
}

TEST_F(ClaimAllocate, ItIsTheTurnOfTheOneWhoWaits) {
  const auto ledger = this->ledger();
  const auto place = ledger.open(Ledger::Access::kTake).join({.num_devices = 4});
  EXPECT_THAT(attempt(ledger, {.wish = {.num_devices = 1}}).refusal->why, HasSubstr("1 request has been waiting"));
  EXPECT_TRUE(outlook(ledger, {"GPU-0", "GPU-1"}, {.wish = {.num_devices = 2}}, {}, place).is_worthwhile);
  EXPECT_FALSE(outlook(ledger, {"GPU-0", "GPU-1"}, {.wish = {.num_devices = 3}}, {}, place).is_worthwhile);
  EXPECT_TRUE(attempt(ledger, {.wish = {.num_devices = 4}}, &place).claim);
}

}  // namespace
}  // namespace yoke::claim
