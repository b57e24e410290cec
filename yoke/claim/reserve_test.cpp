// Tests making and cancelling reservations, with real files and locks.
#include "yoke/claim/reserve.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

using testing::HasSubstr;

class ClaimReserve : public testing::Test {
 protected:
  ClaimReserve() : path_(testing::TempDir() + "yoke-reserve-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
    chmod(path_.c_str(), 01777);
    for (int i = 0; i < 2; ++i) candidates_.push_back({.key = fmt::format("GPU-{}", i)});
  }
  ~ClaimReserve() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  LockFolder folder() const { return LockFolder(path_, LockFolder::Owner::kRootOrSelf); }
  Reservation attempt(int64_t num_devices) const {
    const auto now = std::chrono::system_clock::now();
    const Reservation wanted{.uid = int64_t{geteuid()},
                             .made = now,
                             .num_devices = num_devices,
                             .start = now + std::chrono::hours(1),
                             .until = now + std::chrono::hours(2)};
    return claim::reserve(wanted, Ledger(folder()), {}, candidates_);
  }

  std::string path_;
  std::vector<Candidate> candidates_;
};

TEST_F(ClaimReserve, OnlyWhatOthersLeave) {
  EXPECT_EQ(attempt(1).num_devices, 1);
  EXPECT_THAT(test::message_of([&] { attempt(2); }, ErrorCode::kFailedPrecondition),
              HasSubstr("2 devices are wanted, and 1 of 2 are not reserved"));
  attempt(1);
  EXPECT_EQ(read_reservations(folder()).size(), 2U);
}

TEST_F(ClaimReserve, WhatIsCancelledIsFreeAgain) {
  const auto made = attempt(2);
  cancel_reservation(made.id(), folder());
  EXPECT_TRUE(read_reservations(folder()).empty());
  EXPECT_THAT(test::message_of([&] { cancel_reservation(made.id(), folder()); }, ErrorCode::kNotFound),
              HasSubstr("there is no reservation " + made.id()));
  attempt(2);
}

}  // namespace
}  // namespace yoke::claim
