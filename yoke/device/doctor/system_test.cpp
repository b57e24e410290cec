#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <fstream>

#include "yoke/device/doctor/doctor.h"

namespace yoke::device {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class SystemRoot {
 public:
  SystemRoot() : path_(fs::temp_directory_path() / ("yoke-doctor-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
  }
  SystemRoot(const SystemRoot&) = delete;
  SystemRoot& operator=(const SystemRoot&) = delete;
  ~SystemRoot() { fs::remove_all(path_); }

  void write(const std::string& file, const std::string& text = "") const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  void link(const std::string& file, const std::string& target) const {
    fs::create_directories((path_ / file).parent_path());
    fs::create_symlink(target, path_ / file);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(DoctorSystem, ReadsAMachineWithBothVendors) {
  const SystemRoot root;
  const std::string pci = "sys/bus/pci/devices/";
  root.write(pci + "0000:3b:00.0/vendor", "0x10de\n");
  root.write(pci + "0000:3b:00.0/class", "0x030200\n");
  root.link(pci + "0000:3b:00.0/driver", "../../../bus/pci/drivers/nvidia");
  root.write(pci + "0000:3b:00.0/iommu_group/type", "DMA-FQ\n");
  root.write(pci + "0000:3b:00.1/vendor", "0x10de\n");  // the GPU's audio function
  root.write(pci + "0000:3b:00.1/class", "0x040300\n");
  root.write(pci + "0000:c1:00.0/vendor", "0x1002\n");
  root.write(pci + "0000:c1:00.0/class", "0x120000\n");
  root.write(pci + "0000:05:00.0/vendor", "0x1a03\n");  // the management controller of the board
  root.write(pci + "0000:05:00.0/class", "0x030000\n");
  root.write("sys/module/nvidia/version", "580.65.06\n");
  root.write("sys/class/kfd/kfd/topology/generation_id", "1");
  root.write("sys/class/infiniband/mlx5_0/fw_ver");
  for (const auto* node :
       {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "kfd", "null", "dri/renderD128", "dri/card0"}) {
    root.write(std::string("dev/") + node);
  }
  root.write("usr/lib64/libcuda.so.580.65.06");
  root.link("usr/lib64/libcuda.so.1", "libcuda.so.580.65.06");
  root.write("opt/rocm-6.4/lib/libamdhip64.so");
  root.write("opt/rocm-6.4/.info/version", "6.4.0-47\n");
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  root.write("run/.containerenv");

  const auto system = read_system(root.path(), {{"ROCM_PATH", "/opt/rocm-6.4"}});
  ASSERT_EQ(system.pci_gpus.size(), 2U);
  EXPECT_EQ(system.pci_gpus[0].pci_bus_id, "0000:3b:00.0");
  EXPECT_EQ(system.pci_gpus[0].kernel_driver, "nvidia");
  EXPECT_EQ(system.pci_gpus[0].iommu_type, "DMA-FQ");
  EXPECT_EQ(system.pci_gpus[1].vendor, Vendor::kAmd);
  EXPECT_EQ(system.pci_gpus[1].kernel_driver, "");
  EXPECT_EQ(system.nvidia_module_version, "580.65.06");
  EXPECT_TRUE(system.has_kfd);
  EXPECT_TRUE(system.has_infiniband);
  EXPECT_TRUE(system.is_contained);
  EXPECT_EQ(system.cuda, (LibraryFile{"/usr/lib64/libcuda.so.1", "580.65.06"}));
  EXPECT_EQ(system.nvml, LibraryFile());
  EXPECT_EQ(system.hip.path, "/opt/rocm-6.4/lib/libamdhip64.so");
  EXPECT_EQ(system.rocm_version, "6.4.0-47");
  EXPECT_EQ(system.cgroup.cpus, 2);
  std::vector<std::string> nodes;
  for (const auto& node : system.nodes) {
    nodes.push_back(node.path);
    EXPECT_TRUE(node.is_usable) << node.path;
  }
  EXPECT_THAT(nodes,
              ElementsAre("/dev/kfd", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl", "/dev/dri/renderD128"));
  EXPECT_EQ(system.shared_memory_bytes, std::nullopt) << "limits of this process are not the fixture's";
}

/// Makes this process run as a different user than root during its lifetime, because root may use every file.
class AsNobody {
 public:
  AsNobody() : was_root_(getuid() == 0) {
    if (was_root_ && setresuid(65534, 65534, 0) != 0) ADD_FAILURE() << "setresuid";
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  ~AsNobody() {
    if (was_root_ && setresuid(0, 0, 0) != 0) ADD_FAILURE() << "setresuid";
    prctl(PR_SET_DUMPABLE, 1);  // seteuid clears it; without it, other tests could not read /proc/PID of children
  }

 private:
  const bool was_root_;
};

TEST(DoctorSystem, AFileThatMayNotBeUsedNamesItsOwner) {
  const SystemRoot root;
  root.write("dev/nvidia0");
  fs::permissions(root.path() / "dev/nvidia0", fs::perms::owner_read);
  const AsNobody nobody;
  const auto system = read_system(root.path(), {});
  ASSERT_EQ(system.nodes.size(), 1U);
  EXPECT_FALSE(system.nodes[0].is_usable);
  EXPECT_THAT(system.nodes[0].owner, testing::EndsWith(", mode 400"));
}

TEST(DoctorSystem, AnEmptyTreeAndThisMachine) {
  const auto nothing = read_system("/nonexistent", {});
  EXPECT_TRUE(nothing.pci_gpus.empty());
  EXPECT_TRUE(nothing.nodes.empty());
  const auto here = read_system("/", Environment::of_process());
  EXPECT_TRUE(here.max_open_files);
}

}  // namespace
}  // namespace yoke::device
