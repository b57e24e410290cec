#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/tui/layout.h"
#include "yoke/tui/machine_test.h"
#include "yoke/tui/processes.h"

namespace yoke::tui {
namespace {

using testing::HasSubstr;

int64_t selected_pid(const Model& model) { return model.selected ? model.selected->pid : 0; }

Model machine(int64_t num_processes = 4) { return make_model({80, 24}, make_sample(2, num_processes)); }

Model click(Model model, Point at) { return update(std::move(model), MouseEvent{MouseEvent::What::kClick, at}); }
Model wheel(Model model, MouseEvent::What what, Point at) { return update(std::move(model), MouseEvent{what, at}); }

TEST(Update, ArrowsSelect) {
  auto model = press(machine(), Key::kDown);
  EXPECT_EQ(selected_pid(model), 1002);
  EXPECT_EQ(selected_pid(press(model, Key::kDown)), 1000);
  EXPECT_EQ(selected_pid(press(model, Key::kEnd)), 1001);
  EXPECT_EQ(selected_pid(press(press(model, Key::kEnd), Key::kDown)), 1001) << "no further";
  EXPECT_EQ(selected_pid(press(machine(), Key::kUp)), 1001) << "from below the last one";
  EXPECT_EQ(selected_pid(press(std::move(model), Key::kEscape)), 0);
  EXPECT_EQ(selected_pid(press(machine(0), Key::kDown)), 0);
}

TEST(Update, TheListFollowsTheSelection) {
  auto model = machine(100);
  const auto height = layout_of(model).processes.height;
  for (int64_t i = 0; i < height + 5; ++i) model = press(std::move(model), Key::kDown);
  EXPECT_EQ(model.first_row, 5);
  model = press(std::move(model), Key::kEnd);
  EXPECT_EQ(model.first_row, 100 - height);
  model = press(std::move(model), Key::kPageUp);
  EXPECT_EQ(selected_row(model, process_list(model).rows), 99 - height);
  EXPECT_EQ(press(std::move(model), Key::kHome).first_row, 0);
}

TEST(Update, TheSelectionStaysWithItsProcess) {
  auto model = press(press(machine(), Key::kDown), "M");
  EXPECT_EQ(selected_pid(model), 1002);
  auto sample = make_sample(2, 4);
  sample.snapshot.time += std::chrono::seconds(1);
  std::reverse(sample.snapshot.devices[0].processes.begin(), sample.snapshot.devices[0].processes.end());
  model = update(std::move(model), SampleEvent{sample});
  EXPECT_EQ(selected_pid(model), 1002);
  model = update(std::move(model), SampleEvent{make_sample(2, 2)});
  EXPECT_EQ(selected_pid(model), 0) << "it has ended; nothing else is chosen in its place";
}

TEST(Update, TheListFollowsAProcessThatMoves) {
  auto model = press(press(machine(100), "P"), Key::kDown);
  auto sample = make_sample(2, 100);
  const auto pid = selected_pid(model);
  for (auto& device : sample.snapshot.devices) {
    for (auto& process : device.processes) {
      if (process.pid == pid) process.utilization_percent = 0;
    }
  }
  EXPECT_GT(update(model, SampleEvent{sample}).first_row, 50) << "it is in sight";
  const auto at = Point{5, layout_of(model).processes.y};
  for (int i = 0; i < 10; ++i) model = wheel(std::move(model), MouseEvent::What::kWheelDown, at);
  EXPECT_EQ(update(model, SampleEvent{sample}).first_row, 30) << "it was not in sight, and the user reads";
}

TEST(Update, AProcessOfTheSameNumberIsAnotherOne) {
  auto model = press(machine(), Key::kDown);
  auto sample = make_sample(2, 4);
  for (auto& process : sample.snapshot.devices[0].processes) process.info.start_ticks = 999'999;
  EXPECT_EQ(selected_pid(update(std::move(model), SampleEvent{sample})), 0);
}

TEST(Update, SortsByKeysAndReversesTheSecondTime) {
  auto model = press(machine(), "M");
  EXPECT_EQ(model.sort_by, SortBy::kMemory);
  EXPECT_FALSE(model.is_reversed);
  EXPECT_TRUE(press(model, "M").is_reversed);
  EXPECT_TRUE(press(model, "r").is_reversed);
  EXPECT_FALSE(press(press(model, "M"), "A").is_reversed);
  EXPECT_EQ(press(model, "<").sort_by, SortBy::kDevice);
  EXPECT_EQ(press(model, ">").sort_by, SortBy::kUtilization);
  EXPECT_EQ(press(model, ">>>>>>").sort_by, SortBy::kAge);
  EXPECT_EQ(press(model, "<<<<<<").sort_by, SortBy::kPid);
}

TEST(Update, FiltersAsOneTypes) {
  auto model = press(machine(), "/gra");
  EXPECT_EQ(process_list(model).num_shown, 2);
  model = press(press(std::move(model), Key::kBackspace), "xy");
  EXPECT_EQ(model.text_filter, "grxy");
  EXPECT_EQ(process_list(model).num_shown, 0);
  model = press(std::move(model), Key::kEscape);
  EXPECT_EQ(model.text_filter, "");
  model = press(press(std::move(model), "uada"), Key::kEnter);
  EXPECT_EQ(model.user_filter, "ada");
  EXPECT_EQ(process_list(model).num_shown, 2);
  EXPECT_FALSE(press(model, "t").has_quit);
  EXPECT_EQ(press(std::move(model), Key::kEscape).user_filter, "");
}

TEST(Update, WhatIsTypedIsNoCommandAndMayBeAnyLetter) {
  auto model = press(machine(), "/qk?");
  EXPECT_FALSE(model.has_quit);
  EXPECT_FALSE(model.shows_help);
  EXPECT_EQ(model.text_filter, "qk?");
  model = update(std::move(model), KeyEvent{Key::kCharacter, "学"});
  EXPECT_EQ(model.text_filter, "qk?学");
  EXPECT_EQ(press(std::move(model), Key::kBackspace).text_filter, "qk?");
}

TEST(Update, MineAndEverybodys) {
  auto model = press(machine(), "m");
  EXPECT_EQ(process_list(model).num_shown, 2);
  EXPECT_EQ(process_list(press(std::move(model), "m")).num_shown, 4);
}

TEST(Update, KillsAskFirst) {
  auto model = press(press(machine(), Key::kDown), "k");
  ASSERT_TRUE(model.asked);
  EXPECT_FALSE(model.requested);
  const auto refused = press(model, "n");
  EXPECT_FALSE(refused.requested);
  EXPECT_FALSE(refused.asked);
  EXPECT_FALSE(press(model, Key::kEscape).requested);
  EXPECT_FALSE(press(model, Key::kEnter).requested) << "Enter is pressed too easily";
  EXPECT_FALSE(press(model, "q").has_quit) << "any other key is a no";
  model = press(std::move(model), "y");
  ASSERT_TRUE(model.requested);
  EXPECT_EQ(model.requested->process, (ProcessKey{1002, 1002 * 7}));
  EXPECT_FALSE(model.requested->is_forced);
}

TEST(Update, TheSecondRequestIsSigkill) {
  auto model = press(press(machine(), Key::kDown), "ky");
  const KillAnswer answer{*model.requested, ""};
  model = update(std::move(model), answer);
  EXPECT_FALSE(model.requested);
  EXPECT_THAT(model.message.text, HasSubstr("sent SIGTERM to 1002"));
  model = press(std::move(model), "k");
  EXPECT_TRUE(model.asked->is_forced);
  model = press(press(std::move(model), "n"), Key::kDown);
  EXPECT_FALSE(press(std::move(model), "k").asked->is_forced) << "of another process it is the first";
}

TEST(Update, ASignalThatWasNotSentIsNotTheFirst) {
  auto model = press(press(machine(), Key::kDown), "ky");
  const KillAnswer answer{*model.requested, "process 1002 belongs to somebody else"};
  model = update(std::move(model), answer);
  EXPECT_EQ(model.message.text, "process 1002 belongs to somebody else");
  EXPECT_EQ(model.message.style, Style::kBad);
  EXPECT_FALSE(press(std::move(model), "k").asked->is_forced);
}

TEST(Update, WhatMustNotBeKilledIsNotAskedFor) {
  EXPECT_THAT(press(machine(), "k").message.text, HasSubstr("choose a process"));
  auto model = press(machine(), Key::kDown);
  model.is_readonly = true;
  EXPECT_THAT(press(model, "k").message.text, HasSubstr("--readonly"));
  EXPECT_FALSE(press(model, "ky").requested);
  model.is_recording = true;
  EXPECT_THAT(press(model, "k").message.text, HasSubstr("recording"));
  auto sample = make_sample(1, 1);
  sample.snapshot.devices[0].processes[0].info.is_visible = false;
  EXPECT_FALSE(press(press(make_model({80, 24}, sample), Key::kDown), "ky").requested)
      << "its number is another's here";
}

TEST(Update, MessagesGoByThemselves) {
  auto model = press(machine(), "k");
  for (int i = 0; i < 10; ++i) model = update(std::move(model), SampleEvent{make_sample(2, 4)});
  EXPECT_EQ(model.message.text, "");
}

TEST(Update, TheMouseSelectsAndSorts) {
  auto model = machine(100);
  const auto layout = layout_of(model);
  model = click(std::move(model), {30, layout.processes.y + 2});
  EXPECT_EQ(selected_row(model, process_list(model).rows), 2);
  for (const auto& column : layout.columns) {
    const auto sorted = click(model, {column.x + 1, *layout.process_heading});
    EXPECT_EQ(sorted.sort_by, column.sort_by.value_or(SortBy::kDevice)) << column.title;
  }
  model = wheel(std::move(model), MouseEvent::What::kWheelDown, {5, layout.processes.y});
  EXPECT_EQ(model.first_row, 3);
  for (int i = 0; i < 5; ++i) model = wheel(std::move(model), MouseEvent::What::kWheelUp, {5, layout.processes.y});
  EXPECT_EQ(model.first_row, 0);
  for (int64_t y = -1; y < 30; ++y) {
    for (int64_t x = -1; x < 90; x += 7) click(model, {x, y});  // anywhere
  }
}

TEST(Update, TheWheelScrollsDevicesThatDoNotFit) {
  auto model = make_model({80, 24}, make_sample(64, 4));
  model = wheel(std::move(model), MouseEvent::What::kWheelDown, {5, 5});
  EXPECT_EQ(layout_of(model).first_device, 3);
  for (int i = 0; i < 50; ++i) model = wheel(std::move(model), MouseEvent::What::kWheelDown, {5, 5});
  const auto last = layout_of(model).first_device;
  model = wheel(std::move(model), MouseEvent::What::kWheelUp, {5, 5});
  EXPECT_EQ(layout_of(model).first_device, last - 3) << "it was not scrolled beyond the end";
}

TEST(Update, ResizingKeepsTheSelectionInSight) {
  auto model = press(machine(100), Key::kEnd);
  for (const Size size : {Size{40, 10}, Size{200, 60}, Size{80, 7}, Size{3, 2}, Size{80, 24}}) {
    model = update(std::move(model), ResizeEvent{size});
    const auto height = std::max<int64_t>(1, layout_of(model).processes.height);
    const auto row = selected_row(model, process_list(model).rows);
    ASSERT_EQ(row, 99);
    EXPECT_LE(model.first_row, *row);
    EXPECT_GT(model.first_row + height, *row);
  }
}

TEST(Update, HistoriesGrowWithSamples) {
  auto model = machine();
  auto sample = make_sample(2, 4);
  model = update(std::move(model), SampleEvent{sample});
  EXPECT_EQ(model.histories.at("1").utilization.samples().size(), 1u) << "the same moment twice is one sample";
  sample.snapshot.time += std::chrono::seconds(1);
  sample.snapshot.devices[1].readings = {};
  model = update(std::move(model), SampleEvent{sample});
  const auto& samples = model.histories.at("1").utilization.samples();
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].value, 10);
  EXPECT_EQ(samples[1].value, std::nullopt);
  EXPECT_EQ(model.histories.at("cpu").memory.samples().back().value, 25);
}

TEST(Want, NothingIsReadThatIsNotShown) {
  auto model = machine();
  EXPECT_TRUE(want_of(model).devices.processes);
  EXPECT_TRUE(want_of(model).devices.process_utilization);
  EXPECT_FALSE(want_of(model).devices.origins) << "no room in 80 columns";
  EXPECT_FALSE(want_of(model).devices.details);
  EXPECT_FALSE(want_of(model).ancestors);
  EXPECT_TRUE(want_of(press(model, "o")).devices.origins);
  EXPECT_TRUE(want_of(press(model, "t")).ancestors);
  const auto hidden = want_of(press(model, "tp"));
  EXPECT_FALSE(hidden.devices.processes);
  EXPECT_FALSE(hidden.devices.process_utilization);
  EXPECT_FALSE(hidden.ancestors);
  const auto wide = want_of(update(model, ResizeEvent{{160, 50}}));
  EXPECT_TRUE(wide.devices.origins);
  EXPECT_TRUE(wide.devices.details);
  EXPECT_FALSE(want_of(update(model, ResizeEvent{{50, 20}})).devices.process_utilization);
  EXPECT_FALSE(wide.devices.links);
  EXPECT_FALSE(wide.devices.pcie_throughput);
}

}  // namespace
}  // namespace yoke::tui
