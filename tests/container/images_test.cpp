// Images that users make and compare, with real engines: yoke container build, packages and extend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/container/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A small root file system with the Python of this machine, pip, and two packages.
constexpr const char* kMakePython = R"sh(set -e
root=$1
python=$(readlink -f /usr/bin/python3)
library=/usr/lib/$(basename "$python")
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/bin" "$root/tmp" "$root/etc" "$root/proc" "$root/sys" "$root/dev" \
  "$root/var/tmp" "$root/opt" "$root/root" "$root/usr/lib/python3/dist-packages"
chmod 1777 "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
cp "$python" "$root/usr/bin/"
ln -s "$(basename "$python")" "$root/usr/bin/python3"
tar -C / --exclude='config-*' --exclude=test --exclude=idlelib --exclude=pydoc_data --exclude=ensurepip --exclude=unittest \
  --exclude=lib2to3 -cf - "${library#/}" | tar -C "$root" -xf -
ldd "$python" | grep -o '/[^ ]*' | while read -r file; do
  mkdir -p "$root$(dirname "$file")"
  cp -L "$file" "$root$file"
done
packages=$root/usr/lib/python3/dist-packages
"$python" -m zipfile -e /usr/share/python-wheels/pip-*.whl "$packages"
mkdir "$packages/base_package-1.5.dist-info" "$packages/Py_Torch_Lightning-2.1.egg-info"
printf 'Metadata-Version: 2.1\nName: base-package\nVersion: 1.5\n\nName: trap\n' \
  > "$packages/base_package-1.5.dist-info/METADATA"
touch "$packages/base_package-1.5.dist-info/RECORD"
printf 'Name: Py_Torch_Lightning\nVersion: 2.1\n' > "$packages/Py_Torch_Lightning-2.1.egg-info/PKG-INFO"
echo root:x:0:0:root:/root:/bin/sh > "$root/etc/passwd"
echo root:x:0: > "$root/etc/group")sh";

/// Wheels of added-package, which needs base-package of the image, and of extra-package, which needs added-package.
constexpr const char* kMakeWheels = R"py(import sys, zipfile
for package, needs in (("added", "base-package"), ("extra", "added-package")):
    name = f"{package}_package-3.0"
    with zipfile.ZipFile(f"{sys.argv[1]}/{name}-py3-none-any.whl", "w") as file:
        file.writestr(f"{package}_package.py", f"def main():\n    print('{package} 3.0')\n")
        file.writestr(f"{name}.dist-info/METADATA",
                      f"Metadata-Version: 2.1\nName: {package}-package\nVersion: 3.0\nRequires-Dist: {needs}>=1\n")
        file.writestr(f"{name}.dist-info/WHEEL",
                      "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}.dist-info/entry_points.txt",
                      f"[console_scripts]\n{package} = {package}_package:main\n")
        file.writestr(f"{name}.dist-info/RECORD", "")
)py";

class Images : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
    const auto& engine = GetParam().engine;
    const bool is_named = engine == "apptainer" && std::getenv("YOKE_APPTAINER") != nullptr;
    const auto program = engine == "docker" ? "dockerd" : engine;
    if (!is_named && !has_program(program)) GTEST_SKIP() << "needs " << program;
    machine_ = std::make_unique<ContainerMachine>(GetParam());
    std::filesystem::copy_file(
        std::filesystem::path(YOKE_COMMAND).parent_path().parent_path() / "libexec/yoke/container-packages",
        machine_->path("libexec/yoke/container-packages"));
  }
  void make_python_image() {
    const auto made = run({.argv = {"sh", "-c", kMakePython, "sh", machine_->path("python")}});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    std::filesystem::create_directory(machine_->path("wheels"));
    const auto wheel = run({.argv = {"/usr/bin/python3", "-c", kMakeWheels, machine_->path("wheels")}});
    ASSERT_EQ(wheel.exit_code, 0) << wheel.err;
    machine_->import_folder("python", "yoke-python:1", "USER 1000");
  }
  bool is(const char* engine) const { return GetParam().engine == engine; }
  std::string user() const { return GetParam().uid == 0 ? "root" : "ada"; }
  std::string python_image() const { return is("apptainer") ? machine_->path("python") : "yoke-python:1"; }
  Result act(const std::string& action, std::vector<std::string> words) const {
    words.insert(words.begin(), {"container", action, "--engine", GetParam().engine});
    return run(machine_->yoke(std::move(words)));
  }

  std::unique_ptr<ContainerMachine> machine_;
};

TEST_P(Images, AreBuiltWithNamesThatTheSiteAllows) {
  if (is("apptainer")) {
    machine_->write("work/toy.def", "Bootstrap: localimage\nFrom: " + machine_->path("rootfs") + "\n");
    machine_->write("work/Toy/any.def", "Bootstrap: localimage\nFrom: ../../rootfs\n%files\n  app.py /app.py\n");
    machine_->write("work/Toy/app.py", "of the folder\n");
    machine_->write("work/app.py", "of another folder\n");
    EXPECT_EQ(act("build", {"-f", "toy.def", "-t", "toy", "--print"}).out,
              machine_->path("bin/apptainer") + "\nbuild\ntoy.sif\ntoy.def\n");
    if (GetParam().uid != 0) return;  // needs fakeroot or a user namespace with newuidmap, as the site has it
    const auto built = act("build", {"-t", "toy", "Toy"});
    EXPECT_EQ(built.exit_code, 0) << built.err;
    EXPECT_EQ(act("run", {"--gpu", "none", "--deadline", "60", "toy.sif", "--", "cat", "/app.py"}).out,
              "of the folder\n");
    const auto packages = act("packages", {"toy.sif"});
    EXPECT_EQ(packages.exit_code, 0) << packages.err;
    EXPECT_EQ(packages.out, "package  toy.sif\nPython   no Python\n");
    return;
  }
  machine_->write("work/Toy/Containerfile", "FROM yoke-toy:1\nARG WORD\nLABEL word=$WORD\n");
  const auto refused = act("build", {"-t", "bob/toy", "Toy"});
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("bob/toy breaks this site's rule for names of images, which is {user}/{name}"),
                    HasSubstr("call it " + user() + "/toy")));
  auto command = Json{machine_->path("bin/" + GetParam().engine), "build", "--tag", user() + "/toy"};
  if (GetParam().engine == "docker") {  // it looks for a Dockerfile alone
    command.push_back("--file");
    command.push_back("Toy/Containerfile");
  }
  command.push_back("Toy");
  EXPECT_EQ(Json::parse(act("build", {"Toy", "--print", "--json"}).out), command);
  const auto built = act("build", {"-f", "Toy/Containerfile", "--build-arg", "WORD=a b", "-t", "toy:2", "Toy"});
  EXPECT_EQ(built.exit_code, 0) << built.out << built.err;
  const auto image = Json::parse(run(machine_->engine_command({"image", "inspect", user() + "/toy:2"})).out);
  EXPECT_EQ(image[0].at("Config").at("Labels").at("word"), "a b") << image;
  EXPECT_NE(act("build", {"-f", "/dev/null", "Toy"}).exit_code, 0) << "the engine's failure is ours";
}

TEST_P(Images, PackagesAreComparedAndAddedOnTop) {
  make_python_image();
  const auto image = python_image();
  const auto compared = act("packages", {image, machine_->image(), "no-such-image.sif"});
  EXPECT_EQ(compared.exit_code, 75) << compared.out;
  EXPECT_THAT(compared.out, AllOf(HasSubstr("no Python"), HasSubstr("not read"), HasSubstr("base-package"),
                                  HasSubstr("py-torch-lightning"), Not(HasSubstr("trap"))))
      << compared.err;
  EXPECT_THAT(compared.err, HasSubstr("no-such-image.sif: "));

  const auto output = is("apptainer") ? "x.sqsh" : "extended:2";
  const auto extended =
      act("extend", {image, "--pip", "added-package", "--wheels", machine_->path("wheels"), "-o", output});
  ASSERT_EQ(extended.exit_code, 0) << extended.out << extended.err;
  EXPECT_EQ(extended.out, is("apptainer") ? machine_->path("work/x.sqsh\n") : user() + "/extended:2\n");
  for (const auto& folder : {"work", "."}) {
    for (const auto& entry : std::filesystem::directory_iterator(machine_->path(folder))) {
      EXPECT_FALSE(entry.path().filename().native().starts_with(".yoke-extension")) << entry;
    }
  }
  std::vector<std::string> words = {"container", "run",  "--engine",   GetParam().engine,
                                    "--gpu",     "none", "--deadline", "60"};
  if (is("apptainer")) {
    words.insert(words.end(), {"--extension", "x.sqsh", image});
  } else {
    words.insert(words.end(), {"--network", "none", user() + "/extended:2"});
  }
  words.insert(words.end(), {"--", "sh", "-c",
                             "added && python3 -c 'import added_package, importlib.metadata as m; "
                             "print(m.version(\"added-package\"), m.version(\"base-package\"))'"});
  const auto used = run(machine_->yoke(words));
  EXPECT_EQ(used.out, "added 3.0\n3.0 1.5\n") << used.err;
  if (GetParam().uid != 0 || is("docker")) return;  // the rest is the same for all users and for docker, and takes time
  const auto failed =
      act("extend", {image, "--pip", "missing-package", "--wheels", machine_->path("wheels"), "-o", "y"});
  EXPECT_EQ(failed.exit_code, 75);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("missing-package"), HasSubstr("could not be installed")));
  EXPECT_FALSE(std::filesystem::exists(machine_->path("work/y")));
  if (is("apptainer")) return;
  const auto both = act("packages", {image, user() + "/extended:2"});
  EXPECT_THAT(both.out, AllOf(HasSubstr("added-package"), Not(HasSubstr("base-package")),
                              HasSubstr("3 packages are the same in all images")));
  const auto matching = act("packages", {image, image, "--grep", "torch.LIGHT", "--csv"});
  EXPECT_EQ(matching.exit_code, 0) << matching.err;
  EXPECT_THAT(matching.out, AllOf(HasSubstr("\npy-torch-lightning,2.1,2.1\n"), Not(HasSubstr("base-package"))));

  // An image on top of an extended one has the packages of both.
  std::filesystem::remove(machine_->path("wheels/added_package-3.0-py3-none-any.whl"));
  const auto again = act("extend", {user() + "/extended:2", "--pip", "extra-package", "--wheels",
                                    machine_->path("wheels"), "-o", "twice"});
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
  std::replace(words.begin(), words.end(), user() + "/extended:2", user() + "/twice");
  words.back() = "extra && " + words.back();
  EXPECT_EQ(run(machine_->yoke(words)).out, "extra 3.0\nadded 3.0\n3.0 1.5\n");
}

INSTANTIATE_TEST_SUITE_P(Engines, Images,
                         testing::Values(Setting{"podman", 0}, Setting{"podman", kAda}, Setting{"docker", 0},
                                         Setting{"docker", kAda}, Setting{"docker", kAda, true},
                                         Setting{"apptainer", 0}, Setting{"apptainer", kAda}),
                         name_of);

}  // namespace
}  // namespace yoke::test
