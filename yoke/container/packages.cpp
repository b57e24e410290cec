#include "yoke/container/packages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "yoke/base/text.h"
#include "yoke/container/image.h"

namespace yoke::container {
namespace {

/// "3.12" in "/usr/bin/python3.12" or "/usr/lib/python3.12/site-packages". nullopt if there is no version.
std::optional<std::string> python_version_in(std::string_view path) {
  constexpr std::string_view kWord = "/python";
  const auto at = path.rfind(kWord);
  if (at == path.npos) return std::nullopt;
  const auto rest = path.substr(at + kWord.size());
  const auto text = rest.substr(0, rest.find('/'));
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  };
  const auto dot = text.find('.');
  if (dot == text.npos || !is_part(text.substr(0, dot)) || !is_part(text.substr(dot + 1))) return std::nullopt;
  return std::string(text);
}

/// 3.9 comes before 3.12.
bool is_older(const std::string& a, const std::string& b) { return std::pair(a.size(), a) < std::pair(b.size(), b); }

std::string joined(const std::set<std::string>& texts) { return fmt::format("{}", fmt::join(texts, ", ")); }

std::string python_cell(const ImagePackages& image) {
  if (image.error) return "not read";
  if (!image.pythons.empty()) {
    const auto text = fmt::format("{}", fmt::join(image.pythons, ", "));
    return text.empty() ? "yes" : text;
  }
  return image.packages.empty() ? "no Python" : "?";
}

/// The names of the images, without folders if the files have different names.
std::vector<std::string> titles_of(const std::vector<ImagePackages>& images) {
  std::vector<std::string> titles, names;
  for (const auto& image : images) {
    names.push_back(image.image);
    titles.emplace_back(names_file(image.image) ? base_name(image.image) : std::string_view(image.image));
  }
  const std::set<std::string> different(titles.begin(), titles.end());
  return different.size() == titles.size() && !different.contains("") ? titles : names;
}

}  // namespace

std::string normal_name(std::string_view name) {
  std::string result;
  for (const char c : lower_case(name)) {
    if (c != '-' && c != '_' && c != '.') {
      result += c;
    } else if (!result.ends_with('-')) {
      result += '-';
    }
  }
  return result;
}

ImagePackages parse_packages(const std::string& image, std::string_view text) {
  ImagePackages result{.image = image, .error = {}, .pythons = {}, .packages = {}};
  std::set<std::string> pythons;
  bool has_python = false;
  for (const auto line : lines_of(text)) {
    const auto fields = split(line, '\t');
    if (fields.size() == 2 && fields[0] == "python") {
      has_python = true;
      if (const auto version = python_version_in(fields[1])) pythons.insert(*version);
    } else if (fields.size() == 4 && fields[0] == "package") {
      result.packages.push_back({std::string(fields[1]), std::string(fields[2]), std::string(fields[3])});
    }
  }
  if (has_python && pythons.empty()) pythons.insert("");
  result.pythons.assign(pythons.begin(), pythons.end());
  std::ranges::sort(result.pythons, is_older);
  std::ranges::sort(result.packages, [](const Package& a, const Package& b) {
    return std::tuple(normal_name(a.name), a.version, a.folder) < std::tuple(normal_name(b.name), b.version, b.folder);
  });
  return result;
}

PackageTable compare_packages(const std::vector<ImagePackages>& images, const PackageView& view) {
  PackageTable result;
  result.table.columns.push_back({"package"});
  for (auto& title : titles_of(images)) result.table.columns.push_back({std::move(title)});
  std::vector<std::string> pythons = {"Python"};
  std::map<std::string, std::vector<std::set<std::string>>> versions;  // by normal name, a set for each image
  for (size_t i = 0; i < images.size(); ++i) {
    pythons.push_back(python_cell(images[i]));
    for (const auto& package : images[i].packages) {
      auto& row = versions[normal_name(package.name)];
      row.resize(images.size());
      row[i].insert(package.version);
    }
  }
  result.table.rows.push_back(std::move(pythons));
  std::vector<std::string> patterns;
  for (const auto& pattern : view.patterns) patterns.push_back(normal_name(pattern));
  for (const auto& [name, row] : versions) {
    const bool matches =
        std::ranges::any_of(patterns, [&](const auto& pattern) { return name.find(pattern) != name.npos; });
    if (!patterns.empty() && !matches) continue;
    std::set<std::set<std::string>> different;
    size_t num_read = 0;
    for (size_t i = 0; i < images.size(); ++i) {
      if (images[i].error) continue;
      ++num_read;
      different.insert(row[i]);
    }
    if (patterns.empty() && !view.shows_all && num_read > 1 && different.size() == 1) {
      ++result.num_same;
      continue;
    }
    std::vector<std::string> cells = {name};
    for (const auto& cell : row) cells.push_back(cell.empty() ? "-" : joined(cell));
    result.table.rows.push_back(std::move(cells));
  }
  return result;
}

}  // namespace yoke::container
