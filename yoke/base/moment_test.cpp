#include "yoke/base/moment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace yoke {
namespace {

TEST(Moment, HasWholeSecondsSince1970) {
  using std::chrono::system_clock;
  EXPECT_EQ(seconds_since_epoch(system_clock::from_time_t(1'700'000'000) + std::chrono::milliseconds(999)),
            1'700'000'000);
}

TEST(Moment, IsRead) {
  const char* const zone_before = std::getenv("TZ");
  const std::string before = zone_before == nullptr ? "" : zone_before;
  setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
  tzset();
  const auto now = std::chrono::system_clock::from_time_t(1'795'420'800);  // 08:00 UTC
  ASSERT_EQ(moment_text(now), "2026-11-23 09:00:00");
  struct Row {
    const char* text;
    const char* moment;  // nullptr: refused
  };
  for (const auto& row : {Row{"14:00", "2026-11-23 14:00:00"},
                          Row{"9:30", "2026-11-23 09:30:00"},
                          Row{"09:30:15", "2026-11-23 09:30:15"},
                          Row{"today 14:00", "2026-11-23 14:00:00"},
                          Row{"tomorrow 9:00", "2026-11-24 09:00:00"},
                          Row{"2026-11-24 09:00", "2026-11-24 09:00:00"},
                          Row{"2026-11-24T09:00", "2026-11-24 09:00:00"},
                          Row{"2026-11-24T09:00:30", "2026-11-24 09:00:30"},
                          Row{"2026-11-24T09:00Z", "2026-11-24 10:00:00"},
                          Row{"2026-11-24T09:00:00+05:30", "2026-11-24 04:30:00"},
                          Row{"2026-11-24T09:00-0500", "2026-11-24 15:00:00"},
                          Row{"2026-07-01 09:00", "2026-07-01 09:00:00"},
                          Row{"2026-12-01", "2026-12-01 00:00:00"},
                          Row{"+2h", "2026-11-23 11:00:00"},
                          Row{"+1d12h", "2026-11-24 21:00:00"},
                          Row{"now", "2026-11-23 09:00:00"},
                          Row{"", nullptr},
                          Row{"9", nullptr},
                          Row{"24:00", nullptr},
                          Row{"9:60", nullptr},
                          Row{"9:00pm", nullptr},
                          Row{"2026-02-30 09:00", nullptr},
                          Row{"2026-13-01 09:00", nullptr},
                          Row{"2027-03-28 02:30", nullptr},  // the clock skips it
                          Row{"2026-11-24 ", nullptr},
                          Row{"2026-11-24T09:00X", nullptr},
                          Row{"tomorrow", nullptr},
                          Row{"yesterday 9:00", nullptr},
                          Row{"+2x", nullptr},
                          Row{"9999-12-31 23:59", nullptr},  // after the end of the clock
                          Row{"123456789:00", nullptr}}) {
    const auto moment = parse_moment(row.text, now);
    EXPECT_EQ(moment ? moment_text(*moment) : "", row.moment == nullptr ? "" : row.moment) << row.text;
  }
  if (zone_before == nullptr) {
    unsetenv("TZ");
  } else {
    setenv("TZ", before.c_str(), 1);
  }
  tzset();
}

}  // namespace
}  // namespace yoke
