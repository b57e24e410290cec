#include "yoke/device/doctor/kernel_log.h"

#include <gtest/gtest.h>

namespace yoke::device {
namespace {

using std::chrono::microseconds;

TEST(KernelLog, ReadsXidsOfOldAndNewDrivers) {
  const auto events = parse_kernel_log(
      "6,880,100,-;usb 1-1: new high-speed USB device\n"
      "4,1234,98765432,-;NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
      " SUBSYSTEM=pci\n"
      "4,1235,98765440,c;NVRM: Xid (0000:af:00): 13, Graphics Exception: ESR 0x50\n");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].pci_bus_id, "0000:3b:00.0");
  EXPECT_EQ(events[0].xid, 79);
  EXPECT_EQ(events[0].since_boot, microseconds(98765432));
  EXPECT_EQ(events[0].text, "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
  EXPECT_EQ(events[1].pci_bus_id, "0000:af:00.0");
  EXPECT_EQ(events[1].xid, 13);
}

TEST(KernelLog, ReadsResetsOfAmdgpu) {
  const auto events = parse_kernel_log(
      "3,1,5,-;[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3\n"
      "6,2,6,-;amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n"
      "6,3,7,-;amdgpu 0000:c1:00.0: amdgpu: SMU is resuming...\n");
  ASSERT_EQ(events.size(), 1U) << "the first has no device, and the reset that follows says the same";
  EXPECT_EQ(events[0].pci_bus_id, "0000:c1:00.0");
  EXPECT_EQ(events[0].xid, std::nullopt);
}

TEST(KernelLog, WhatDoesNotParseIsLeftOut) {
  for (const auto* text :
       {"", "\n", "NVRM: Xid (PCI:0000:3b:00): 79", "4,1,2;NVRM: Xid (PCI:0000:3b:00): 79",
        "4,1,x,-;NVRM: Xid (PCI:0000:3b:00): 79, gone", "4,1,2,-;NVRM: Xid (PCI:0000:3b:00)",
        "4,1,2,-;NVRM: Xid (\x1b[31m): 79, gone", "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): many",
        "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, x", " 4,1,2,-;NVRM: Xid (0000:3b:00): 79"}) {
    EXPECT_TRUE(parse_kernel_log(text).empty()) << text;
  }
  EXPECT_EQ(parse_kernel_log("4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79").size(), 1U) << "without a line feed";
}

TEST(KernelLog, ALogThatCannotBeReadSaysWhy) {
  EXPECT_EQ(read_kernel_log("/nonexistent").reason, "No such file or directory");
}

TEST(KernelLog, KnowsWhoseFaultAnXidIs) {
  EXPECT_TRUE(meaning_of_xid(79).is_hardware);
  EXPECT_FALSE(meaning_of_xid(31).is_hardware);
  EXPECT_FALSE(meaning_of_xid(4711).text.empty());
}

}  // namespace
}  // namespace yoke::device
