#include "yoke/container/packages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::container {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kText =
    "python\t/usr/bin/python3\n"
    "python\t/usr/bin/python3.12\n"
    "python\t/opt/old/bin/python3.9\n"
    "package\tTorch\t2.7.0\t/usr/lib/python3/dist-packages\n"
    "package\tpytorch_lightning\t2.5\t/opt/old/lib/python3.9/site-packages\n"
    "a line that means nothing\n"
    "package\ttoo\tshort\n";

TEST(Packages, AreParsedInOrder) {
  const auto image = parse_packages("lab.sif", kText);
  EXPECT_EQ(image.image, "lab.sif");
  EXPECT_THAT(image.pythons, ElementsAre("3.9", "3.12"));
  EXPECT_THAT(image.packages, ElementsAre(Package{"pytorch_lightning", "2.5", "/opt/old/lib/python3.9/site-packages"},
                                          Package{"Torch", "2.7.0", "/usr/lib/python3/dist-packages"}));
  EXPECT_THAT(parse_packages("x", "").pythons, IsEmpty());
  EXPECT_THAT(parse_packages("x", "python\t/usr/bin/python3\n").pythons, ElementsAre(""));
  EXPECT_THAT(parse_packages("x", "python\t/python3.x/bin/python3\n").pythons, ElementsAre(""));
}

TEST(Packages, NamesAreComparedAsPythonDoes) {
  EXPECT_EQ(normal_name("Pytorch_Lightning"), "pytorch-lightning");
  EXPECT_EQ(normal_name("zope.-interface"), "zope-interface");
}

ImagePackages image(const std::string& name, const std::vector<std::pair<std::string, std::string>>& packages) {
  ImagePackages result{.image = name, .error = {}, .pythons = {"3.11"}, .packages = {}};
  for (const auto& [package, version] : packages) result.packages.push_back({package, version, "/site-packages"});
  return result;
}

using Rows = std::vector<std::vector<std::string>>;

TEST(PackageTables, ShowWhatDiffersOrMatches) {
  const std::vector<ImagePackages> images = {
      image("a", {{"NumPy", "2.0"}, {"torch", "2.7"}, {"Lightning_Utilities", "1"}}),
      image("b", {{"numpy", "2.0"}, {"torch", "2.6"}, {"torch", "2.7"}, {"lightning-utilities", "1"}}),
  };
  const auto differing = compare_packages(images, {});
  EXPECT_EQ(differing.table.rows, (Rows{{"Python", "3.11", "3.11"}, {"torch", "2.7", "2.6, 2.7"}}));
  EXPECT_EQ(differing.num_same, 2);
  const auto all = compare_packages(images, {.shows_all = true});
  EXPECT_EQ(all.num_same, 0);
  EXPECT_EQ(all.table.rows.size(), 4U);
  EXPECT_EQ(compare_packages(images, {.patterns = {"LIGHTNING_"}}).table.rows,
            (Rows{{"Python", "3.11", "3.11"}, {"lightning-utilities", "1", "1"}}));
  EXPECT_EQ(compare_packages({images[0]}, {}).table.rows.size(), 4U) << "one image shows all of its packages";
}

TEST(PackageTables, HaveShortTitlesIfTheseDiffer) {
  const auto titles = [](const std::string& a, const std::string& b) {
    const auto table = compare_packages({image(a, {}), image(b, {})}, {}).table;
    return table.columns.at(1).title + " " + table.columns.at(2).title;
  };
  EXPECT_EQ(titles("/lab/a.sif", "old/b.sif"), "a.sif b.sif");
  EXPECT_EQ(titles("/lab/a.sif", "old/a.sif"), "/lab/a.sif old/a.sif");
  EXPECT_EQ(titles("ada/x", "bob/x"), "ada/x bob/x");
}

TEST(PackageTables, HaveAColumnForImagesWithoutAnswer) {
  ImagePackages failed{.image = "broken", .error = "no such file", .pythons = {}, .packages = {}};
  ImagePackages empty{.image = "toy", .error = {}, .pythons = {}, .packages = {}};
  const auto table = compare_packages({image("a", {{"torch", "2"}}), failed, image("b", {{"torch", "2"}})}, {});
  EXPECT_EQ(table.table.rows, (Rows{{"Python", "3.11", "not read", "3.11"}}));
  EXPECT_EQ(table.num_same, 1) << "an image that cannot be read does not differ";
  EXPECT_EQ(compare_packages({image("a", {{"torch", "2"}}), empty}, {}).table.rows,
            (Rows{{"Python", "3.11", "no Python"}, {"torch", "2", "-"}}));
}

}  // namespace
}  // namespace yoke::container
