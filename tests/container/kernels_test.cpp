// Kernels of Jupyter that run in real containers: `yoke jupyter install --image`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/container/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

/// A root file system with ipykernel: the Python of `$2`, a virtual environment, and its packages.
constexpr const char* kMakeNotebookImage = R"sh(set -e
root=$1 jupyter=$2
site=$("$jupyter" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
base=$("$jupyter" -c 'import os, sys; print(os.path.realpath(sys._base_executable))')
library=$("$jupyter" -c 'import os; print(os.path.dirname(os.__file__))')
mkdir -p "$root/usr/bin" "$root/opt/site" "$root/opt/python/bin" "$root/opt/python/lib" "$root/opt/broken/ipykernel"
echo "raise ImportError('libzmq.so.5: no such file')" > "$root/opt/broken/ipykernel/__init__.py"
cp "$base" "$root/opt/python/bin/"
tar -C "$(dirname "$library")" --exclude='config-*' --exclude=test --exclude=site-packages --exclude=dist-packages \
  --exclude=idlelib --exclude=ensurepip --exclude=lib2to3 --exclude=tkinter --exclude='*.opt-?.pyc' \
  --exclude=pydoc_data -cf - "$(basename "$library")" | tar -C "$root/opt/python/lib" -xf -
tar -C "$site" --exclude=jedi --exclude=debugpy --exclude=pip --exclude=setuptools --exclude=tzdata --exclude=tests \
  --exclude=pkg_resources -cf - . | tar -C "$root/opt/site" -xf -
{ ldd "$base"; find "$root/opt" -name '*.so*' -exec ldd {} + 2> /dev/null; } |
  grep -o '=> /[^ ]*\|/[^ ]*ld-linux[^ ]*' | grep -o '/[^ ]*' | sort -u | while read -r file; do
  case $file in
    "$root"*) continue ;;
    "$HOME"/*) cp -L "$file" "$root/opt/python/lib/" && continue ;; # Apptainer's empty home hides an image's
  esac
  mkdir -p "$root$(dirname "$file")"
  cp -L "$file" "$root$file"
done
printf '#!/bin/sh\nLD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=${SITE-/opt/site} exec /opt/python/bin/%s "$@"\n' "$(basename "$base")" > "$root/usr/bin/python3"
chmod 755 "$root/usr/bin/python3")sh";

class KernelsInContainers : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    const auto* const python = std::getenv("YOKE_JUPYTER_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "YOKE_JUPYTER_PYTHON is not set";
    python_ = python;
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make device nodes";
    const auto& engine = GetParam().engine;
    const bool is_named = engine == "apptainer" && std::getenv("YOKE_APPTAINER") != nullptr;
    if (!is_named && !has_program(engine)) GTEST_SKIP() << "needs " << engine;
    machine_ = std::make_unique<ContainerMachine>(GetParam());
    const auto build = std::filesystem::path(YOKE_COMMAND).parent_path().parent_path();
    std::filesystem::create_directories(machine_->path("share/yoke/python"));
    std::filesystem::copy(build / "share/yoke/python/kernels", machine_->path("share/yoke/python/kernels"),
                          std::filesystem::copy_options::recursive);
  }
  void make_image() {
    const auto made = run({.argv = {"bash", "-c", kMakeNotebookImage, "bash", machine_->path("rootfs"), python_}});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    machine_->import();
  }
  CommandOptions with_jupyter(CommandOptions options) const {
    for (const auto* name : {"DATA", "RUNTIME"}) {
      options.environment.emplace_back(std::string("JUPYTER_") + name + "_DIR",
                                       machine_->path("work/" + std::string(name)));
    }
    return options;
  }
  Result install(Words words) const {
    words.insert(words.begin(),
                 {"jupyter", "install", "--name", "work", "--engine", GetParam().engine, "--image", machine_->image()});
    return run(with_jupyter(machine_->yoke(std::move(words))));
  }
  void drive(const std::string& scenario) const {
    auto options = with_jupyter(machine_->yoke({YOKE_DRIVE_KERNEL, scenario, machine_->path("bin/yoke"), "work"}));
    std::replace(options.argv.begin(), options.argv.end(), machine_->path("bin/yoke"), python_);
    options.argv[options.argv.size() - 2] = machine_->path("bin/yoke");
    const auto result = run(options);
    EXPECT_EQ(result.out, "passed\n") << scenario << ": " << result.err;
  }

  std::string python_;
  std::unique_ptr<ContainerMachine> machine_;
};

TEST_P(KernelsInContainers, HoldAClaimUntilTheyEnd) {
  const auto bare = install({});
  EXPECT_EQ(bare.exit_code, 69);
  EXPECT_THAT(bare.err, HasSubstr("has no python3"));
  make_image();
  const auto lacking = install({"-e", "SITE=/none"});
  EXPECT_EQ(lacking.exit_code, 69);
  EXPECT_THAT(lacking.err, AllOf(HasSubstr("lacks the package ipykernel"),
                                 HasSubstr("yoke container extend " + machine_->image() + " --pip ipykernel")));
  const auto broken = install({"-e", "SITE=/opt/broken"});
  EXPECT_EQ(broken.exit_code, 69);
  EXPECT_THAT(broken.err, AllOf(HasSubstr("ImportError: libzmq.so.5"), HasSubstr("cannot import ipykernel")));
  const auto installed =
      install({"--claim", "2", "-v", "../data:/data:ro", "-e", "GREETING=a b", "-e",
               "no_proxy=hidden." + std::to_string(getpid())});  // other tests type theirs at the same time
  ASSERT_EQ(installed.exit_code, 0) << installed.err;
  const auto kernels = Json::parse(run(with_jupyter(machine_->yoke({"jupyter", "list", "--json"}))).out).at("kernels");
  ASSERT_EQ(kernels.size(), 1);
  EXPECT_EQ(kernels[0].at("image"), machine_->image());
  EXPECT_EQ(kernels[0].at("state"), "ready");
  const auto file = kernels[0].at("folder").get<std::string>() + "/kernel.json";
  EXPECT_THAT(Json::parse(slurp(file)).at("argv").dump(), Not(HasSubstr("a b"))) << "all users can read command lines";
  EXPECT_EQ(std::filesystem::status(file).permissions() & std::filesystem::perms::others_read,
            std::filesystem::perms::none);
  drive("in_container");
  if (GetParam().engine == "apptainer") return;  // the rest does not depend on the engine
  drive("restart");
  Command other(
      machine_->yoke({"claim", "-n", "7", "--deadline", "60", "--", "sh", "-c", "echo started; exec sleep 1000"}));
  ASSERT_TRUE(other.wait_for_output("started"));
  drive("refused");
}

INSTANTIATE_TEST_SUITE_P(Engines, KernelsInContainers, testing::Values(Setting{"podman", 0}, Setting{"apptainer", 0}),
                         [](const auto& one) { return one.param.engine; });

}  // namespace
}  // namespace yoke::test
