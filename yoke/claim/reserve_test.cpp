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

TEST_F(ClaimReserve, AClaimIsNotExtendedIntoThoseOfOthers) {
  using std::chrono::minutes;
  const Ledger ledger(folder());
  const auto end = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()) + minutes(10);
  std::string busy;
  const auto claim = ledger.open(Ledger::Access::kTake).take({"GPU-0"}, {.since = end, .until = end}, busy);
  ASSERT_TRUE(claim);
  const auto reserved = attempt(2);  // an hour from now
  const auto survey = ledger.open(Ledger::Access::kLook).survey();
  const auto extend = [&](const HeldNote& held, minutes length) {
    return extend_claim(held, length, survey, ledger, {}, candidates_);
  };
  auto held = survey.notes.at(0);
  EXPECT_EQ(extend(held, minutes(90)), end + minutes(90)) << "this user has reserved it";
  EXPECT_EQ(claim->read().until, end + minutes(90));
  ++held.uid;
  EXPECT_THAT(test::message_of([&] { extend(held, minutes(90)); }, ErrorCode::kFailedPrecondition),
              HasSubstr(reservation_text(reserved) + ", so the claim of process"));
  EXPECT_NE(test::error_of([&] { extend(held, minutes(40)); }).code(), ErrorCode::kFailedPrecondition)
      << "no reservation is in the way, but the ledger finds no such claim of another user";
  held.note->until.reset();
  EXPECT_THAT(test::message_of([&] { extend(held, minutes(1)); }, ErrorCode::kFailedPrecondition),
              HasSubstr("has no end that could be put off"));
}

}  // namespace
}  // namespace yoke::claim
